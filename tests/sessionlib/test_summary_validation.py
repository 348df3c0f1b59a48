"""Validation accepts exactly the contract: each purpose's headings, a digest's bullets, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionlib.summaries.purposes import DIGEST_LIMIT_BYTES, EMPTY_BULLET, HEADINGS, Purpose
from sessionlib.summaries.validation import complaint, is_empty_digest
from tests.sessionlib.summarizing import summary

SOURCE = "x" * 100_000
"""Larger than every answer here."""


def fault(text: str, purpose: Purpose, source: str = SOURCE) -> str:
    return complaint(text, purpose, source=source)


def digest(done: str = "- none", learned: str = "- none", before: str = "", after: str = "") -> str:
    return before + summary(Purpose.DIGEST, {"Done": done, "Learned": learned}) + after


words = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r`~#", exclude_categories=["Cs", "Cc"]), max_size=20
)
bullets = words.map(lambda text: f"- said {text}")
continuations = words.map(lambda text: f"  and {text}")


@st.composite
def account_sections(draw: st.DrawFn, purpose: Purpose) -> dict[str, str]:
    """Text under the headings of a continuation or handoff: bullets, prose, deeper headings, fenced headings."""
    lines = st.one_of(bullets, words.map(lambda text: f"prose {text}"), st.just("### Deeper"), st.just(""))
    blocks = st.lists(st.one_of(lines, st.just("```\n## Scope\n```"), st.just("~~~\n## Other\n~~~")), max_size=4)
    said = {heading: "\n".join(draw(blocks)) for heading in HEADINGS[purpose]}
    return {**said, "Key Decisions": f"{draw(bullets)}\n{said['Key Decisions']}"}


@st.composite
def digest_sections(draw: st.DrawFn) -> dict[str, str]:
    """Bullets with continuation lines and blank lines between them, or the empty bullet."""
    bullet = st.tuples(bullets, st.lists(st.one_of(continuations, st.just("")), max_size=2))
    said = {}
    for heading in HEADINGS[Purpose.DIGEST]:
        chosen = draw(st.lists(bullet, max_size=3))
        said[heading] = "\n".join("\n".join([first, *more]) for first, more in chosen) or "- none"
    return said


@given(data=st.data(), purpose=st.sampled_from(Purpose), around=st.sampled_from(["", "\n", " \n\t"]))
def test_valid_texts_are_accepted(data: st.DataObject, purpose: Purpose, around: str) -> None:
    """Whatever stands under the right headings, and for a digest whatever bullets: no complaint."""
    sections = digest_sections() if purpose is Purpose.DIGEST else account_sections(purpose)
    assert fault(f"{around}{summary(purpose, data.draw(sections))}{around}", purpose) == ""


@given(data=st.data(), purpose=st.sampled_from(Purpose))
def test_headings_that_are_not_the_purpose_s_are_refused(data: st.DataObject, purpose: Purpose) -> None:
    """One taken out, doubled, renamed, moved, deepened, indented or hidden: none is accepted."""
    lines = summary(purpose).split("\n")
    at = data.draw(st.sampled_from([number for number, line in enumerate(lines) if line.startswith("## ")]))
    heading = lines[at]
    mutants = {
        "missing": [],
        "double": [heading, EMPTY_BULLET[purpose], heading],
        "renamed": [f"{heading}s"],
        "coloned": [f"{heading}:"],
        "lower": [heading.lower()],
        "deeper": [f"#{heading}"],
        "higher": [heading[1:]],
        "unspaced": [heading.replace(" ", "", 1)],
        "doubly spaced": [heading.replace(" ", "  ", 1)],
        "indented": [f" {heading}"] if at else [f"x\n {heading}"],
        "bullet": [f"- {heading}"],
        "fenced": ["```", heading, "```"],
        "bare": ["##"],
        "closed": [f"{heading} ##"],
    }
    mutated = [*lines[:at], *mutants[data.draw(st.sampled_from(sorted(mutants)))], *lines[at + 1 :]]
    assert fault("\n".join(mutated), purpose)


@given(purpose=st.sampled_from(Purpose), order=st.data())
def test_another_order_of_headings_is_refused(purpose: Purpose, order: st.DataObject) -> None:
    """Every permutation but the right one."""
    shuffled = order.draw(st.permutations(HEADINGS[purpose]))
    assume(tuple(shuffled) != HEADINGS[purpose])
    text = "\n".join(f"## {heading}\n- x" for heading in shuffled)
    assert "is not" in fault(text, purpose)


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("other", Purpose)
def test_a_summary_for_another_purpose_is_refused(purpose: Purpose, other: Purpose) -> None:
    """Only its own headings make a summary valid for a purpose."""
    assert (fault(summary(other), purpose) == "") == (purpose is other)


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("text", ["", " \n\t", "\u3000", "Error: rate limited", "I cannot summarize this."])
def test_blank_and_other_text_is_refused(purpose: Purpose, text: str) -> None:
    """Nothing, blanks, or prose without headings."""
    assert fault(text, purpose)


def test_reasons_say_what_is_wrong() -> None:
    """They count and name headings of ours, and quote nothing of the answer."""
    assert fault(" ", Purpose.DIGEST) == "the answer is blank"
    assert fault("## Secret\n- x", Purpose.DIGEST) == "a digest has 4 headings; the answer has 1"
    text = summary(Purpose.CONTINUATION).replace("## Key Decisions", "## Secret")
    assert fault(text, Purpose.CONTINUATION) == "heading 4 of the answer is not 'Key Decisions'"
    assert fault("## Done\udead", Purpose.DIGEST) == "the answer holds a lone surrogate"


@pytest.mark.parametrize(
    ("opening", "closing"), [("```", "```"), ("~~~", "~~~"), ("  ```python", "\t```"), ("```", "~~~")]
)
def test_headings_inside_a_fence_are_text(opening: str, closing: str) -> None:
    """Lines that begin, after blanks, with a fence toggle; what is between two of them is no heading."""
    text = summary(Purpose.HANDOFF, {"Scope": f"{opening}\n## Done\n## Next Steps\n{closing}"})
    assert fault(text, Purpose.HANDOFF) == ""


def test_a_heading_has_a_blank_after_its_marks() -> None:
    """Otherwise Markdown shows it as text."""
    assert fault(summary(Purpose.HANDOFF, {"Scope": "##17 was merged"}), Purpose.HANDOFF) == ""


def test_a_fence_that_is_not_closed_hides_the_headings_after_it() -> None:
    """Half an answer, cut inside a block, is no summary."""
    assert fault(summary(Purpose.HANDOFF, {"Scope": "```\nx"}), Purpose.HANDOFF)


def test_a_continuation_is_smaller_than_its_source() -> None:
    """Strictly, blanks around it not counted; a handoff has no source to be compared with."""
    text = summary(Purpose.CONTINUATION)
    assert fault(f"  {text}\n", Purpose.CONTINUATION, "x" * (len(text) + 1)) == ""
    said = f"the answer has {len(text)} characters; its source has {len(text)}"
    assert fault(f"  {text}\n", Purpose.CONTINUATION, "x" * len(text)) == said
    assert fault(summary(Purpose.HANDOFF), Purpose.HANDOFF, "x") == ""


def test_a_continuation_that_says_nothing_is_refused() -> None:
    """It would take the place of its source. A handoff and a digest may say that there is nothing."""
    empty = {purpose: summary(purpose, {}) for purpose in Purpose}
    assert fault(empty[Purpose.CONTINUATION], Purpose.CONTINUATION) == "the answer says nothing under its headings"
    bare = "\n\n".join(f"## {heading}" for heading in HEADINGS[Purpose.CONTINUATION])
    assert fault(bare, Purpose.CONTINUATION) == "the answer says nothing under its headings"
    assert fault(empty[Purpose.HANDOFF], Purpose.HANDOFF) == ""
    assert fault(empty[Purpose.DIGEST], Purpose.DIGEST) == ""


def test_a_line_that_mentions_a_heading_says_something() -> None:
    """Only a line that is a heading, or an empty bullet, says nothing."""
    assert fault(summary(Purpose.CONTINUATION, {"Scope": "as under ## Done"}), Purpose.CONTINUATION) == ""


@pytest.mark.parametrize("size_bytes", [DIGEST_LIMIT_BYTES - 1, DIGEST_LIMIT_BYTES, DIGEST_LIMIT_BYTES + 1])
@pytest.mark.parametrize("letter", ["x", "ä"])
def test_a_digest_has_a_cap_in_bytes(size_bytes: int, letter: str) -> None:
    """Bytes of UTF-8, exactly the cap included."""
    room = size_bytes - len(digest("- ").encode())
    said = letter * (room // len(letter.encode())) + "." * (room % len(letter.encode()))
    text = digest(f"- {said}")
    assert len(text.encode()) == size_bytes
    expected = "" if size_bytes <= DIGEST_LIMIT_BYTES else "a digest has at most 16,384 bytes; the answer has 16,385"
    assert fault(text, Purpose.DIGEST) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (digest(before="Here is the digest.\n"), "a digest has nothing outside its sections"),
        (digest(before="- said\n"), "a digest has nothing outside its sections"),
        (digest(before="See ## Done below.\n"), "a digest has nothing outside its sections"),
        (digest(after="\n\nBye."), "under Unfinished: the empty bullet is not alone, or not exact"),
        (digest("- x\nprose"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n one blank"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n\tindented by a tab"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n-no blank"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n-"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\nprose - with a dash"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\nprose  with two blanks"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n* star"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("- x\n### Deeper"), "under Done: a line is neither a bullet nor the continuation of one"),
        (digest("prose"), "under Done: the first line is no bullet"),
        (digest("prose - with a dash"), "under Done: the first line is no bullet"),
        (digest("  continuation first"), "under Done: the first line is no bullet"),
        (digest("none"), "under Done: the first line is no bullet"),
        (digest(""), "under Done: there is no bullet"),
        (digest("\n \n"), "under Done: there is no bullet"),
        (digest("- x\n- none"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- none\n- x"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- none\n- none"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- none\n  really"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- None"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- none."), "under Done: the empty bullet is not alone, or not exact"),
        (digest("- (none)"), "under Done: the empty bullet is not alone, or not exact"),
        (digest("-  none"), "under Done: the empty bullet is not alone, or not exact"),
        (digest(learned="- _None_"), "under Learned: the empty bullet is not alone, or not exact"),
        (digest("- x\n  ```\n  y\n  ```"), "a digest has no fenced blocks"),
        (digest("- x\n~~~\n~~~"), "a digest has no fenced blocks"),
    ],
)
def test_a_digest_that_is_malformed_is_refused(text: str, reason: str) -> None:
    """Nothing outside its sections, bullets with indented continuations only, the empty bullet exact and alone."""
    assert fault(text, Purpose.DIGEST) == reason
    assert not is_empty_digest(text)


@pytest.mark.parametrize(
    "text",
    [
        digest("- x"),
        digest("- x\n- y\n  goes on\n    and on\n\n- z"),
        digest("- none of the tests failed"),
        digest("- nonetheless"),
        digest("- tests that fail:\n  none"),
        digest("-   x"),
        digest("- none") + "\n",
        digest("- x").replace("\n", "\r\n"),
        digest("- x ` ~~~ inside"),
        digest("- x\n  ``code``\n  ~~struck~~"),
        digest("- x\n    ## four blanks make code"),
    ],
)
def test_a_digest_that_is_well_formed_is_accepted(text: str) -> None:
    """Bullets, continuations by two blanks or more, blank lines between, either kind of line end."""
    assert fault(text, Purpose.DIGEST) == ""


def test_only_a_valid_digest_of_empty_bullets_is_empty() -> None:
    """One bullet that says something, or one that is missing, and it is not."""
    assert is_empty_digest(digest())
    assert is_empty_digest(f"\n{digest()}\n")
    for heading in HEADINGS[Purpose.DIGEST]:
        assert not is_empty_digest(summary(Purpose.DIGEST, {heading: "- x"}))
    assert not is_empty_digest(digest().replace("## Surprised", "## Surprise"))
    assert not is_empty_digest("")
    assert not is_empty_digest("- none")
