"""What `show` and `ls` draw, by value: no terminal, no store."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from sessionlib.entries import Entry
from sessionlib.layout import Carried, Layout, Method, Record
from sessionlib.providers.contract import CallRequest
from sessionlib.stores.contract import AgentRef, Event, SessionState, SessionView, Trim
from sessionlib.transcript import Transcript
from sessionlib.window import Budgets
from sessionlib.window_facts import WindowFact, WindowSource
from workers.cli import drawing
from workers.cli.drawing import CARRIED, FREE, FRESH, LIMIT, LINE, LIVE, OLDER, Part
from workers.cli.figures import fill_of, layout_figures, session_figures
from workers.cli.ls import session_table, state_text
from workers.cli.printing import PLAIN_WIDTH, age_text, bytes_text, one_line, printable, rendered

BUDGETS = Budgets(
    window_tokens=1_100,
    fixed_tokens=100,
    line_tokens=700,
    limit_tokens=900,
    trim_tokens=720,
    tail_tokens=100,
    stretched_tail_tokens=200,
    record_tokens=100,
    result_cap_tokens=333,
)
"""An effective window of 1,000 tokens, so that a bar of ten columns has 100 each."""

RECORDS = (
    Record(first_seq=1, last_seq=9, text="old", tokens=100, tier=2, rewrite_count=3, source_tokens=400),
    Record(first_seq=10, last_seq=12, text="newer", tokens=100, method=Method.EXTRACTIVE),
)
LAYOUT = Layout(
    RECORDS, Carried(12, Entry.user("asked"), 100), Transcript((Entry.user("a"), Entry.assistant("b")), (60, 40), 13)
)


def make_view(**changes: object) -> SessionView:
    fields: dict[str, object] = {
        "session_id": "s",
        "state": SessionState.OPEN,
        "agent": AgentRef(name="echo", digest="d" * 64),
        "epoch": 2,
        "next_seq": 15,
        "live_from": 13,
        "live_tokens": 100,
        "record_tokens": 200,
        "carried_tokens": 100,
        "calibration": 1.0,
        "trim": Trim(),
        "queued": (),
        "running": None,
        "rotation_id": None,
        "rotation_state": "",
        "open_calls": (),
        "created_at": 0.0,
        "updated_at": 0.0,
        "archived_bytes": 48_100,
    }
    return SessionView(**{**fields, **changes})  # type: ignore[arg-type]


def drawn(table: Table) -> list[str]:
    stream = io.StringIO()
    rendered(table, stream)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_bar_has_every_part_where_it_ends() -> None:
    """Records, carried input, live entries, room; line and limit in their columns."""
    assert drawing.bar(drawing.parts_of(LAYOUT), BUDGETS, 10) == (
        f"{OLDER}{FRESH}{CARRIED}{LIVE}{FREE * 3}{LINE}{FREE}{LIMIT}"
    )


@given(tokens=st.lists(st.integers(0, 5_000), max_size=8), columns=st.integers(1, 200))
def test_bar_always_has_its_columns(tokens: list[int], columns: int) -> None:
    """However full the window is, or fuller."""
    assert len(drawing.bar([Part(LIVE, count) for count in tokens], BUDGETS, columns)) == columns


@given(tokens=st.lists(st.integers(0, 60), max_size=8))
def test_bar_is_filled_by_the_sum(tokens: list[int]) -> None:
    """Rounding does not add up over many small parts."""
    bar = drawing.bar([Part(LIVE, count) for count in tokens], BUDGETS, 10)
    assert bar.count(LIVE) == round(sum(tokens) / 100)


@pytest.mark.parametrize(("fraction", "filled"), [(0.0, 0), (0.04, 0), (0.5, 5), (1.0, 10), (7.0, 10), (-1.0, 0)])
def test_small_bar(fraction: float, filled: int) -> None:
    """Ten columns, never more."""
    assert drawing.small_bar(fraction) == LIVE * filled + FREE * (10 - filled)


def test_tier_table_has_a_row_for_each_part() -> None:
    """Oldest first, with span, tokens and origin."""
    assert [line.split(maxsplit=3) for line in drawn(drawing.tier_table(LAYOUT))] == [
        ["tier", "entries", "tokens", "what it is"],
        ["2", "1–9", "100", "record of 400 tokens, rewritten 3 times"],
        ["1", "10–12", "100", "record, written once, extractive"],
        ["12", "100", "the", "running turn's input, carried"],
        ["0", "13–14", "100", "2 entries, verbatim"],
    ]


def test_heading_counts_entries_and_archive() -> None:
    """What left the window is in the archive."""
    assert drawing.heading(make_view()).splitlines() == [
        "session s: open, epoch 2",
        f"agent echo ({'d' * 12})",
        "14 entries, 12 of them archived (48.1 kB)",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "no rotation is due: 400 of the 700 tokens at which one is requested, 300 left"),
        ({"live_tokens": 400}, "past the rotation line (700 of 700 tokens): the next commit requests a rotation"),
        ({"rotation_id": "r3", "rotation_state": "running"}, "rotation r3 is running"),
        ({"rotation_id": "r3", "rotation_state": "pending"}, "rotation r3 was requested and waits"),
        ({"rotation_state": "backing off: no_gain"}, "no rotation is requested for now, backing off: no_gain"),
    ],
)
def test_why_it_rotates_or_not(changes: dict[str, object], expected: str) -> None:
    """The reason with its figures."""
    assert drawing.why(make_view(**changes), BUDGETS).startswith(expected)


def test_why_without_a_window() -> None:
    """An agent that cannot be read leaves its session listed."""
    assert "is not known here" in drawing.why(make_view(), None)
    assert fill_of(make_view(), None) is None


def test_notes_tell_what_is_out_of_the_ordinary() -> None:
    """Nothing else."""
    assert drawing.notes(make_view()) == []
    view = make_view(
        running="t1",
        queued=("t2", "t3"),
        open_calls=(CallRequest(call_id="c1", name="lookup", arguments="secret"),),
        trim=Trim(pointers_before_seq=14, dropped_before_seq=13, records_dropped=True),
        calibration=1.25,
    )
    assert drawing.notes(view) == [
        "turn t1 is running",
        "2 queued: t2, t3",
        "calls wait for their results: lookup [c1]",
        "requests are trimmed until the next rotation: records are sent as a marker, entries before 13 are sent as a "
        "marker, tool results before 14 are sent as pointers",
        "the provider counts up to 1.25 times our tokens; all figures allow for it",
    ]


def test_last_rotation_is_the_newest() -> None:
    """Other lines of the audit do not count."""
    figures = {"rotation_id": "r2", "reason": "line", "tokens_before": 900, "tokens_after": 200, "saturations": [{}]}
    audit = [
        Event(id="1", kind="rotated", data={}, at=10.0),
        Event(id="2", kind="rotated", data={**figures, "consolidation_count": 2}, at=20.0),
        Event(id="3", kind="closed", data={}, at=30.0),
    ]
    newest = drawing.last_rotation(audit)
    assert newest is audit[1]
    assert drawing.rotation_text(audit[1], 50.0) == (
        "rotation r2 (line), 30 s ago: 900 to 200 tokens, 2 consolidations, 1 saturated"
    )
    assert drawing.last_rotation([]) is None


def test_text_has_records_and_entries_under_their_numbers() -> None:
    """Oldest first."""
    assert drawing.text_of(LAYOUT).split("\n\n") == [
        *("[1-9, tier 2]\nold", "[10-12, tier 1]\nnewer"),
        *("[12] USER: asked", "[13] USER: a", "[14] ASSISTANT: b"),
    ]


def test_figures_have_no_content_unless_asked() -> None:
    """Neither texts nor arguments of open calls."""
    view = make_view(open_calls=(CallRequest(call_id="c1", name="lookup", arguments="secret"),))
    assert "secret" not in str(session_figures(view, BUDGETS))
    assert "newer" not in str(layout_figures(LAYOUT))
    assert layout_figures(LAYOUT, with_text=True)["records"][1]["text"] == "newer"


def test_session_table_fits_a_plain_width() -> None:
    """The longest id is folded, not cut, and nothing in it is markup."""
    view = make_view(session_id="[bold]" + "x" * 122, running="t1", rotation_id="r1")
    lines = drawn(session_table([(view, BUDGETS), (make_view(), None)], now=90.0))
    assert max(map(len, lines)) <= PLAIN_WIDTH
    folded = "".join(line.split()[0] for line in lines[1:-1] if line)
    assert folded == view.session_id
    assert "?" in lines[-1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "open"),
        ({"state": SessionState.CLOSED}, "closed"),
        ({"running": "t"}, "running"),
        ({"running": "t", "rotation_id": "r"}, "running+rotating"),
    ],
)
def test_state_of_a_row(changes: dict[str, object], expected: str) -> None:
    """What happens is worth more than that it is open."""
    assert state_text(make_view(**changes)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain [bold] ü 漢 👩‍💻\n\tx", "plain [bold] ü 漢 👩‍💻\n\tx"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\nb\x00\x7f\x9b", "a\\r\nb\\x00\\x7f\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("line\u2028end", "line\\u2028end"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """Nothing steers the terminal; all else stays."""
    assert printable(text) == expected


@given(text=st.text())
def test_one_line_is_one_short_line(text: str) -> None:
    """Of whatever text."""
    line = one_line(text, 20)
    assert len(line) <= 20
    assert len(line.splitlines()) <= 1


@given(text=st.text())
def test_rendering_never_fails(text: str) -> None:
    """Of whatever content, without a terminal."""
    table = Table("content")
    table.add_row(printable(text))
    assert drawn(table)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 B"), (999, "999 B"), (48_100, "48.1 kB"), (2_340_000, "2.3 MB"), (5e9, "5.0 GB")]
)
def test_bytes_text(count: float, expected: str) -> None:
    """The unit that people would take."""
    assert bytes_text(int(count)) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-3.0, "0 s"), (8.4, "8 s"), (119.0, "119 s"), (720.0, "12 min"), (10_800.0, "3 h"), (432_000.0, "5 d")],
)
def test_age_text(seconds: float, expected: str) -> None:
    """The largest unit; a clock that is behind counts as now."""
    assert age_text(seconds) == expected


@pytest.mark.parametrize(
    ("window", "calibration", "expected"),
    [
        (
            WindowFact(32_768, WindowSource.REPORTED),
            1.0,
            "window 32,768 tokens: reported by the provider, smaller than declared",
        ),
        (WindowFact(16_000, WindowSource.REFUSED), 1.0, "window 16,000 tokens: the provider refused more"),
        (
            WindowFact(128_000, WindowSource.DECLARED),
            1.284,
            "window 128,000 tokens: declared by the agent; the provider counts up to 1.28 × our tokens",
        ),
    ],
)
def test_window_text_says_who_says_so(window: WindowFact, calibration: float, expected: str) -> None:
    """And how the provider's tokens compare with ours, once it reported more."""
    assert drawing.window_text(window, make_view(calibration=calibration)) == expected
