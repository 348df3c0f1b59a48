"""`sessionctl`: what each command prints, on which stream, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sessionlib.agent import Agent
from sessionlib.errors import ProviderRejected
from sessionlib.inputs import open_request
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.stores.contract import TurnState
from tests.workers.commands import Desk
from workers.cli.app import build_app
from workers.cli.ls import page
from workers.health import Observations, ServerFigures, Watched
from workers.settings import Settings
from workers.store import RedisStore


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.store.close_connections()


@pytest.fixture
def filled(desk: Desk) -> Desk:
    """A session `s` with three exchanges of some thousand tokens, which took it across its rotation line."""
    for number in range(3):
        assert desk.run("send", "s", f"{number} " + "word " * 1_200, "--agent", "echo").exit_code == 0
    return desk


def test_answer_is_alone_on_stdout(desk: Desk) -> None:
    """Progress is on stderr, and names the turn."""
    result = desk.run("send", "s", "hello", "--agent", "echo", "--turn-id", "t1")
    assert (result.exit_code, result.stdout) == (0, "You said: hello\n")
    assert result.stderr.splitlines()[:3] == ["turn t1", "  queued", "  started attempt=1"]


def test_message_is_read_from_stdin(desk: Desk) -> None:
    """`-` stands for all of stdin."""
    assert desk.run("send", "s", "-", "--agent", "echo", stdin="two\nlines").stdout == "You said: two\nlines\n"


def test_stdin_that_is_no_text_is_bad_input(desk: Desk) -> None:
    """The place is named; nothing was submitted."""
    result = desk.run("send", "s", "-", "--agent", "echo", stdin=b"\xff\xfe")
    assert result.exit_code == 2
    assert "must be UTF-8" in result.stderr
    assert list(desk.sessions) == []


def test_markup_and_control_characters_reach_a_pipe_as_they_are(desk: Desk) -> None:
    """What looks like markup is content; only a terminal is spared escape sequences."""
    text = "[bold]x[/bold] [/] :smile: \x1b[31m"
    assert desk.run("send", "s", text, "--agent", "echo").stdout == f"You said: {text}\n"


def test_send_prints_one_document(desk: Desk) -> None:
    """With the figures of the turn."""
    reply = desk.json("send", "s", "hello", "--agent", "echo", "--turn-id", "t1")
    assert (reply["turn_id"], reply["text"], reply["round_count"]) == ("t1", "You said: hello", 1)


def test_events_are_lines_and_the_reply_is_the_last(desk: Desk) -> None:
    """Each line is a document."""
    result = desk.run("send", "s", "hello", "--agent", "echo", "--events", "--json")
    kinds = [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert kinds == ["queued", "started", "round", "answered", "reply"]


def test_same_turn_id_is_the_same_turn(desk: Desk) -> None:
    """The second call gets the first answer; the provider is asked once."""
    answers = [desk.run("send", "s", "hello", "--agent", "echo", "--turn-id", "t1").stdout for _ in range(2)]
    assert answers == ["You said: hello\n"] * 2
    assert len(desk.provider.requests) == 1


def test_turn_id_with_another_input_is_refused(desk: Desk) -> None:
    """The caller is told that it is theirs to mend."""
    desk.run("send", "s", "hello", "--agent", "echo", "--turn-id", "t1")
    result = desk.run("send", "s", "other", "--turn-id", "t1")
    assert result.exit_code == 2
    assert result.stderr.startswith("error (caller): turn t1 of session s was submitted before")


def test_open_calls_are_named_and_their_results_sent(desk: Desk) -> None:
    """The answer to the results goes on where the calls were left."""
    left = desk.run("send", "s", "call it", "--agent", "echo")
    assert 'open call c1: lookup({"q": "train"})' in left.stderr
    assert desk.run("send", "s", "--result", "c1=14:05=late").stdout == "You said: 14:05=late\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "s", "--agent", "echo"],
        ["send", "s", "  ", "--agent", "echo"],
        ["send", "s", "hi", "--agent", "nobody"],
        ["send", "s", "hi", "--agent", "echo", "--timeout", "nan"],
        ["send", "s", "hi", "--agent", "echo", "--timeout", "-1"],
        ["send", "s", "hi", "--agent", "echo", "--turn-id", "a b"],
        ["send", "s", "hi", "--agent", "echo", "--busy", "perhaps"],
        ["send", "s", "hi", "--agent", "echo", "--result", "c1=x"],
        ["send", "s", "--agent", "echo", "--result", "c1"],
        ["send", "bad id", "hi", "--agent", "echo"],
        ["send", "s", "word " * 20_000, "--agent", "echo"],
        ["send", "unknown", "hi"],
        ["show", "unknown"],
        ["show", "unknown", "--turn", "t1"],
        ["rotate", "unknown"],
        ["cancel", "unknown"],
        ["cancel", "unknown", "t1", "--rotation"],
        ["close", "unknown"],
        ["purge", "unknown", "--yes"],
        ["ls", "--limit", "0"],
        ["ls", "--after", "x"],
        ["ls", "--after", "7:a"],
        ["ls", "--store", "http://example.org"],
        ["worker", "sideways"],
        ["worker", "front", "--name", "a b"],
        ["health", "--role", "everything"],
        ["nonsense"],
    ],
)
def test_bad_input_exits_2_with_nothing_on_stdout(desk: Desk, arguments: list[str]) -> None:
    """And nothing was accepted."""
    result = desk.run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    assert desk.provider.requests == ()


def test_error_is_a_document_too(desk: Desk) -> None:
    """With `--json` stdout says what stderr says."""
    result = desk.run("show", "unknown", "--json")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"], error["fault"]) == (2, "unknown_session", "caller")
    assert "--agent NAME" in error["advice"]


def test_failed_turn_exits_1_and_names_the_provider() -> None:
    """Whose fault it is, is in the first line."""
    desk = Desk(provider=ScriptedProvider(failures=lambda _: ProviderRejected("no such model")))
    result = desk.run("send", "s", "hello", "--agent", "echo")
    desk.store.close_connections()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error (provider): turn" in result.stderr
    assert "no such model" in result.stderr


def test_turn_without_an_answer_in_time_exits_4(desk: Desk) -> None:
    """The turn itself goes on."""
    desk.dispatch.is_working = False
    result = desk.run("send", "s", "hello", "--agent", "echo", "--turn-id", "t1", "--timeout", "0.1")
    assert result.exit_code == 4
    assert "it goes on" in result.stderr
    view = desk.store.turn("s", "t1")
    assert view is not None
    assert view.state is TurnState.QUEUED


def test_lists_sessions_with_their_figures(filled: Desk) -> None:
    """State, fill, epoch, queued turns and archive of each."""
    (listed,) = filled.json("ls")["sessions"]
    assert (listed["session_id"], listed["state"], listed["queued_count"]) == ("s", "open", 0)
    assert listed["epoch"] >= 1
    assert listed["archived_bytes"] > 0
    assert 0 < listed["fill"] < 1


def test_list_for_people_has_a_row_a_session(filled: Desk) -> None:
    """On 100 columns, without a terminal."""
    heading, row = filled.run("ls").stdout.splitlines()
    assert heading.split() == ["session", "state", "agent", "fill", "tokens", "epoch", "queued", "archive", "updated"]
    assert row.split()[:3] == ["s", "open", "echo"]
    assert len(row) <= 100


def test_pages_of_a_list_have_every_session_once(desk: Desk) -> None:
    """Each page names the next; the last names none."""
    for number in range(5):
        desk.sessions.open(f"s{number}", "echo")
    pages = [desk.json("ls", "--limit", "2")]
    while cursor := pages[-1]["after"]:
        pages.append(desk.json("ls", "--limit", "2", "--after", cursor))
    seen = [session["session_id"] for page in pages for session in page["sessions"]]
    assert (seen, len(pages)) == ([f"s{number}" for number in range(5)], 3)


def test_pages_go_from_partition_to_partition(valkey_url: str, namespace: str) -> None:
    """On a real server as well: every session once, however the pages fall."""
    store = RedisStore.connect(Settings(store_url=valkey_url, namespace=namespace, partitions=4))
    wanted = {f"s{number}" for number in range(11)}
    for session_id in wanted:
        store.open(open_request(session_id, Agent(name="echo", window_tokens=8_000), (), False))
    seen: list[str] = []
    cursor = "0:"
    while cursor:
        ids, cursor = page(store, cursor, 3)
        seen += ids
    store.close_connections()
    assert (len(seen), set(seen)) == (11, wanted)


def test_empty_list_is_said(desk: Desk) -> None:
    """On stderr: stdout has the heading only."""
    assert desk.run("ls").stderr == "no sessions\n"
    assert desk.json("ls") == {"sessions": [], "after": None}


def test_show_draws_tiers_bar_and_reason(filled: Desk) -> None:
    """Records, live entries, the line, and why it does not rotate now."""
    shown = filled.run("show", "s").stdout
    assert "session s: open, epoch" in shown
    assert "record of" in shown
    assert "entries, verbatim" in shown
    assert "┆ rotation line" in shown
    assert "no rotation is due" in shown
    assert "ago: " in shown  # the last rotation


def test_show_prints_no_content_unless_asked(filled: Desk) -> None:
    """Figures only; `--text` adds what records and entries say."""
    assert "word" not in filled.run("show", "s").stdout
    assert "word" not in filled.run("show", "s", "--json").stdout
    assert "word word" in filled.run("show", "s", "--text").stdout
    assert "word word" in filled.run("show", "s", "--text", "--json").stdout


def test_show_has_the_figures_of_the_drawing(filled: Desk) -> None:
    """Records and live entries add up to what the session holds."""
    shown = filled.json("show", "s")
    tokens = sum(record["tokens"] for record in shown["layout"]["records"]) + shown["layout"]["live"]["tokens"]
    assert tokens == shown["conversation_tokens"]
    assert shown["last_rotation"]["data"]["tokens_after"] < shown["window"]["line_tokens"]


def test_text_cannot_steer_the_terminal(desk: Desk) -> None:
    """Escape sequences are shown, not sent."""
    desk.run("send", "s", "\x1b[2Jgone", "--agent", "echo")
    shown = desk.run("show", "s", "--text").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown


def test_show_turn_has_its_answer(desk: Desk) -> None:
    """With its figures and the span of its entries."""
    desk.run("send", "s", "hello", "--agent", "echo", "--turn-id", "t1")
    shown = desk.run("show", "s", "--turn", "t1").stdout
    assert shown.startswith("turn t1: answered\n")
    assert shown.endswith("\n\nYou said: hello\n")
    assert desk.json("show", "s", "--turn", "t1")["answer"]["text"] == "You said: hello"


def test_unknown_turn_is_bad_input(desk: Desk) -> None:
    """The session is there, the turn is not."""
    desk.sessions.open("s", "echo")
    result = desk.run("show", "s", "--turn", "t9")
    assert result.exit_code == 2
    assert "is not known" in result.stderr


def test_rotation_is_requested(desk: Desk) -> None:
    """Without `--wait` nothing is waited for."""
    desk.sessions.open("s", "echo")
    desk.dispatch.is_working = False
    assert desk.json("rotate", "s") == {"rotation_id": "r1", "state": "requested"}
    assert "r1 was requested and waits" in desk.run("show", "s").stdout


def test_rotation_is_waited_for() -> None:
    """Its outcome is the answer."""
    desk = Desk(agents=(Agent(name="echo", window_tokens=16_000),))
    for number in range(4):
        desk.run("send", "s", f"{number} " + "word " * 700, "--agent", "echo")
    adopted = desk.json("rotate", "s", "--wait")
    desk.store.close_connections()
    assert (adopted["state"], adopted["epoch"]) == ("rotated", 1)
    assert adopted["tokens_after"] < adopted["tokens_before"]


def test_rotation_of_nothing_exits_1(desk: Desk) -> None:
    """There is nothing that it could shorten."""
    desk.sessions.open("s", "echo")
    result = desk.run("rotate", "s", "--wait")
    assert result.exit_code == 1
    assert "changed nothing" in result.stdout


def test_rotation_that_takes_too_long_exits_4(desk: Desk) -> None:
    """It goes on."""
    desk.sessions.open("s", "echo")
    desk.dispatch.is_working = False
    result = desk.run("rotate", "s", "--wait", "--timeout", "0.1")
    assert result.exit_code == 4
    assert desk.store.view("s").rotation_id == "r1"


def test_cancel_ends_the_next_turn(desk: Desk) -> None:
    """Without an id; a second call finds nothing."""
    desk.sessions.open("s", "echo")
    desk.dispatch.is_working = False
    desk.sessions.get("s").submit("hello", turn_id="t1")
    assert desk.json("cancel", "s") == {"turn_id": "t1", "state": "cancelled"}
    assert desk.json("cancel", "s") == {"turn_id": None, "state": None}
    assert desk.json("cancel", "s", "t1") == {"turn_id": "t1", "state": "cancelled"}


def test_cancel_drops_a_rotation(desk: Desk) -> None:
    """And says whether there was one."""
    desk.sessions.open("s", "echo")
    desk.dispatch.is_working = False
    desk.run("rotate", "s")
    assert [desk.json("cancel", "s", "--rotation")["cancelled"] for _ in range(2)] == [True, False]


def test_close_refuses_new_turns_and_counts_the_others(desk: Desk) -> None:
    """Accepted turns finish unless `--now` ends them."""
    desk.sessions.open("s", "echo")
    desk.dispatch.is_working = False
    desk.sessions.get("s").submit("hello", turn_id="t1")
    assert desk.json("close", "s")["unfinished"] == ["t1"]
    assert desk.run("send", "s", "more").exit_code == 2
    assert desk.json("close", "s", "--now")["unfinished"] == []


def test_purge_asks_for_yes(desk: Desk) -> None:
    """Without it nothing is deleted; with it the session is gone."""
    desk.run("send", "s", "hello", "--agent", "echo")
    refused = desk.run("purge", "s")
    assert refused.exit_code == 2
    assert "2 entries and 0 unfinished turns would be deleted" in refused.stderr
    assert desk.json("purge", "s", "--yes") == {"session_id": "s", "state": "purged"}
    assert desk.json("ls")["sessions"] == []


def test_worker_becomes_celery(desk: Desk) -> None:
    """With the options in its environment."""
    result = desk.run("worker", "front", "--namespace", "n1", "--agents", "my_agents", "--name", "front-2")
    ((command, environment),) = desk.became
    assert result.exit_code == 0
    assert [*command[1:6], "front-2@%h" in command] == ["-m", "celery", "-A", "workers.app", "worker", True]
    assert (environment["SESSIONLIB_NAMESPACE"], environment["SESSIONLIB_AGENTS"]) == ("n1", "my_agents")


def test_worker_command_is_printed(desk: Desk) -> None:
    """`--print` runs nothing."""
    assert "-Q rotations,summaries,upkeep" in desk.run("worker", "background", "--print").stdout
    assert desk.became == []


def test_worker_without_agents_is_warned_about(desk: Desk) -> None:
    """It can answer nothing, but it may sweep."""
    assert "can answer no turn" in desk.run("worker", "front").stderr


WELL = Observations(
    servers=(ServerFigures(maxmemory_policy="noeviction", is_append_only=True, used_bytes=1, limit_bytes=0),),
    watched={role: Watched(workers=(f"{role}@a",), probe_seconds=0.01) for role in ("front", "background")},
    deadline_seconds=10,
)
ILL = Observations(servers=WELL.servers, deadline_seconds=10)


def test_health_is_said_in_figures(desk: Desk) -> None:
    """A document with each check."""
    desk.observed = WELL
    document = desk.json("health")
    assert document["is_well"] is True
    assert [check["name"] for check in document["checks"]] == [
        *("store", "memory policy", "append-only file"),
        *("front", "background"),
    ]


def test_ill_health_exits_1_with_the_reason(desk: Desk) -> None:
    """Of the role that was asked about only."""
    desk.observed = ILL
    result = desk.run("health", "--role", "front")
    assert result.exit_code == 1
    assert "no front worker answers" in result.stderr
    assert desk.run("health", "--role", "store").exit_code == 0


def test_ctrl_c_exits_130(desk: Desk) -> None:
    """Whatever the command was at."""
    result = desk.run("health", "--role", "store", interrupt=True)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_fault_of_ours_is_said_to_be_ours(desk: Desk) -> None:
    """With the place where it happened."""
    result = desk.run("health", "--json")  # nothing was to be observed
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "error (us): AssertionError: nothing was to be observed" in result.stderr
    assert json.loads(result.stdout)["error"]["fault"] == "us"


def test_agents_file_that_raises_is_the_callers(tmp_path: Path) -> None:
    """The file and what it raised are named; there is no traceback of ours."""
    (tmp_path / "agents.py").write_text("1 / 0\n")
    arguments = ["ls", "--agents", str(tmp_path / "agents.py"), "--store", "redis://127.0.0.1:1"]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_command_has_examples_and_exit_codes(desk: Desk) -> None:
    """Help teaches."""
    names = [command.name for command in build_app().registered_commands]
    for name in names:
        shown = desk.run(str(name), "--help").stdout
        assert "Example" in shown, name
        assert "Exit codes:" in shown, name
        assert "--json" in shown, name
