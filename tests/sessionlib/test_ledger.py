"""The ledger: what was done, from tool calls alone, bounded, read back and updated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.actions import (
    ACTION_CHARACTERS,
    LOOKED_AT_CHARACTERS,
    SECRET_CHARACTERS,
    action_of,
    one_line,
)
from sessionlib.entries import LINE_BREAKS, Entry
from sessionlib.ledger import (
    ACTIONS_CHARACTERS,
    ACTIONS_LIMIT,
    LEDGER_CHARACTERS,
    NARRATION_CHARACTERS,
    updated_ledger,
)
from sessionlib.recordings import read_recording
from sessionlib.summaries.redaction import redact
from tests.sessionlib.hostile import hostile_entries, hostile_texts
from tests.sessionlib.planted import KINDS, planted

DEEP = "/home/me/projects/a-rather-long-name/of-a-work-tree/lib/pump/transcripts/annotation_builder.ex"
GITHUB_TOKEN = "ghp_" + "a1B2" * 9


def call(tool_name: str, **arguments: Any) -> Entry:
    return Entry.tool_call("c", json.dumps(arguments), tool_name)


def read(number: int) -> Entry:
    return call("Read", file_path=f"lib/{number}.py")


# --- one action


@pytest.mark.parametrize(
    ("tool_name", "arguments", "action"),
    [
        # Claude Code
        ("Read", {"file_path": "lib/a.py"}, "read lib/a.py"),
        ("Read", {"file_path": "lib/a.py", "offset": 40, "limit": 20}, "read lib/a.py (lines 40-59)"),
        ("Read", {"file_path": "lib/a.py", "limit": 20}, "read lib/a.py (lines 1-20)"),
        ("Read", {"file_path": "lib/a.py", "offset": 40}, "read lib/a.py (lines 40-)"),
        ("Write", {"file_path": "lib/a.py", "content": "x = 1"}, "wrote lib/a.py"),
        ("Edit", {"replace_all": False, "file_path": "lib/a.py", "old_string": "x"}, "edited lib/a.py"),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "x"}, "edited a.ipynb"),
        ("Bash", {"command": "mix test", "description": "Run tests"}, "ran mix test"),
        ("Grep", {"pattern": "flash", "path": "lib", "glob": "*.ex"}, "searched flash in lib"),
        ("Grep", {"pattern": "flash"}, "searched flash"),
        ("Glob", {"pattern": "priv/*.exs"}, "searched priv/*.exs"),
        ("WebSearch", {"query": "pump curves"}, "searched pump curves"),
        ("LS", {"path": "lib"}, "mapped structure of lib"),
        ("Task", {"description": "Explore", "prompt": "Look"}, "spawned sub-agent: Explore"),
        ("Agent", {"prompt": "Look around"}, "spawned sub-agent: Look around"),
        ("TaskOutput", {"task_id": "bd0afab", "block": True}, "TaskOutput bd0afab"),
        ("EnterPlanMode", {}, "EnterPlanMode"),
        # Codex
        ("shell", {"command": ["bash", "-lc", "ls -la"]}, "ran ls -la"),
        ("shell", {"command": ["git", "status"]}, "ran git status"),
        ("exec_command", {"cmd": "pytest -q"}, "ran pytest -q"),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: a.py\n-x\n*** Add File: b.py\n+y"},
            "edited a.py, b.py",
        ),
        # Gemini CLI, Cline
        ("read_file", {"absolute_path": "/lib/a.py"}, "read /lib/a.py"),
        ("replace", {"file_path": "a.py", "old_string": "x"}, "edited a.py"),
        ("run_shell_command", {"command": "make"}, "ran make"),
        ("search_file_content", {"pattern": "x", "path": "lib"}, "searched x in lib"),
        ("list_directory", {"dir_path": "lib"}, "mapped structure of lib"),
        ("list_code_definition_names", {}, "mapped structure"),
        ("write_to_file", {"path": "a.py", "content": "x"}, "wrote a.py"),
        # text editors of the APIs
        (
            "str_replace_based_edit_tool",
            {"command": "view", "path": "a.py", "view_range": [3, 9]},
            "read a.py (lines 3-9)",
        ),
        ("str_replace_editor", {"command": "view", "path": "a.py", "view_range": [3, -1]}, "read a.py (lines 3-)"),
        ("str_replace_editor", {"command": "create", "path": "a.py"}, "wrote a.py"),
        ("str_replace_editor", {"command": "str_replace", "path": "a.py"}, "edited a.py"),
        # MCP servers, namespaces
        ("mcp__files__read-file", {"path": "a.py", "start_line": 2, "end_line": 5}, "read a.py (lines 2-5)"),
        ("functions.read_file", {"path": "a.py"}, "read a.py"),
        # ours
        ("notes.write_file", {"name": "plan.md", "content": "x"}, "note written: plan.md"),
        ("notes.append_to_file", {"name": "plan.md", "content": "x"}, "note written: plan.md"),
        # any other
        ("get_user_details", {"user_id": "mia_li_3668"}, "get_user_details mia_li_3668"),
        ("book", {"seats": 2, "flight": "HAT136", "class": "economy"}, "book HAT136"),
        ("think", {"thought": "The total is $255"}, "think The total is $255"),
        ("think", {"thought": "0123456789" * 5}, "think 0123456789012345678901234567890123456..."),
        ("Read", {"page": "seven"}, "Read seven"),
        ("Bash", {"restart": True}, "Bash"),
    ],
)  # fmt: skip
def test_a_call_in_a_few_words(tool_name: str, arguments: dict[str, Any], action: str) -> None:
    """What was done to what; of unknown tools the name and the first argument that is a text."""
    assert action_of(tool_name, json.dumps(arguments)) == action


@pytest.mark.parametrize(
    ("tool_name", "arguments"),
    [
        ("history.read_item", '{"item": 5}'),
        ("history.search_contents", '{"query": "x"}'),
        ("notes.list_files", "{}"),
        ("notes.read_file", '{"name": "plan.md"}'),
        ("notes.search_contents", '{"query": "x"}'),
        ("notes.write_file", '{"content": "a name is missing"}'),
        ("Read", '{"file_path": "lib/a'),
        ("Read", '["lib/a.py"]'),
        ("Read", "[" * 100_000),
        ("", '{"file_path": "lib/a.py"}'),
        (" ", "{}"),
    ],
)
def test_what_is_not_worth_telling(tool_name: str, arguments: str) -> None:
    """Looking into history and notes; calls that cannot be read."""
    assert action_of(tool_name, arguments) == ""


def test_a_call_without_arguments_is_told() -> None:
    """An empty text is an empty object, as for the tools themselves."""
    assert action_of("list_all_airports", "") == "list_all_airports"


def test_a_long_path_keeps_its_end() -> None:
    """The file's name says most; the lines that were read stay."""
    assert action_of("Read", json.dumps({"file_path": DEEP, "offset": 1, "limit": 9})) == (
        "read .../of-a-work-tree/lib/pump/transcripts/annotation_builder.ex (lines 1-9)"
    )
    assert action_of("Grep", json.dumps({"pattern": "flash", "path": DEEP})).endswith("/annotation_builder.ex")


@pytest.mark.parametrize(
    ("tool_name", "arguments", "before", "after"),
    [
        ("Read", {"offset": 2, "limit": 3}, "read ", " (lines 2-4)"),
        ("Write", {}, "wrote ", ""),
        ("LS", {}, "mapped structure of ", ""),
        ("Grep", {"pattern": "flash"}, "searched flash in ", ""),
    ],
)
def test_a_path_takes_the_room_that_its_line_has(
    tool_name: str, arguments: dict[str, Any], before: str, after: str
) -> None:
    """To the last of eighty characters; one more, and its end is kept."""
    room = ACTION_CHARACTERS - len(before) - len(after)

    def told(path: str) -> str:
        return action_of(tool_name, json.dumps({**arguments, "path": path}))

    assert told("p" * room) == f"{before}{'p' * room}{after}"
    assert told("q" + "p" * room) == f"{before}...{'p' * (room - 3)}{after}"
    assert told("long/" * 20 + "/p.py").startswith(f"{before}.../long/")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"offset": 0, "limit": 5}, " (lines 1-5)"),
        ({"offset": -5}, ""),
        ({"limit": 0}, ""),
        ({"start_line": 10**9}, ""),
        ({"start_line": 10**9 - 1}, " (lines 999999999-)"),
        ({"start_line": "7"}, ""),
        ({"offset": True}, ""),
    ],
)
def test_lines_are_told_where_they_are_numbers_of_lines(arguments: dict[str, Any], lines: str) -> None:
    """Some tools count from 0; whatever else is written there is passed over."""
    assert action_of("Read", json.dumps({"path": "a.py", **arguments})) == f"read a.py{lines}"


def test_a_shell_that_is_given_a_script_is_not_told() -> None:
    """What it is to do is; a command of three words is told whole."""
    assert action_of("shell", '{"command": ["bash", "-c", "make"]}') == "ran make"
    assert action_of("shell", '{"command": ["git", "add", "a.py"]}') == "ran git add a.py"
    assert action_of("shell", '{"command": ["tar", "-c", "a.py", "b.py"]}') == "ran tar -c a.py b.py"


def test_a_long_command_keeps_its_beginning() -> None:
    """Sixty characters, on one line."""
    command = "python - <<'EOF'\nimport sys\n" + "print(sys.path)\n" * 20
    assert action_of("Bash", json.dumps({"command": command})) == (
        "ran python - <<'EOF' import sys print(sys.path) print(sys.pat..."
    )
    assert action_of("Bash", json.dumps({"command": "x" * 60})) == "ran " + "x" * 60
    assert action_of("Bash", json.dumps({"command": "x" * 61})) == "ran " + "x" * 57 + "..."


@pytest.mark.parametrize(
    ("tool_name", "arguments"),
    [
        ("Bash", {"command": f"git push https://{GITHUB_TOKEN}@github.com/me/it"}),
        ("Bash", {"command": f"export TOKEN={GITHUB_TOKEN}"}),
        ("Bash", {"command": "x" * 40 + f" {GITHUB_TOKEN}"}),
        ("login", {"password": "correct7horse"}),
        ("Grep", {"pattern": GITHUB_TOKEN}),
        ("Task", {"description": f"use {GITHUB_TOKEN}"}),
    ],
)
def test_secrets_are_redacted(tool_name: str, arguments: dict[str, Any]) -> None:
    """Before anything is cut, so that no half of one stays; by its look, its place or its name."""
    action = action_of(tool_name, json.dumps(arguments))
    assert action
    assert "correct7" not in action
    assert "ghp_" not in action


@pytest.mark.parametrize("tool_name", ["Read", "Bash", "Grep", "Task", "deploy", "apply_patch"])
def test_an_action_can_always_be_stored(tool_name: str) -> None:
    """JSON can name half a character, which UTF-8 has no form for."""
    names = ("path", "command", "pattern", "description", "input")
    arguments = json.dumps(dict.fromkeys(names, "a\ud800b.py")) if tool_name != "deploy" else '{"x": "a\\udfffb"}'
    assert action_of(tool_name, arguments).encode().decode().endswith(("a\ufffdb.py", "a\ufffdb"))


@pytest.mark.parametrize("blanks", ["\n", " ", "\t \r\n"])
def test_blanks_in_front_halve_no_secret(blanks: str) -> None:
    """They are collapsed first, however many there are; then secrets are replaced."""
    for size in (4_058, 4_090, LOOKED_AT_CHARACTERS, 5_000_000):
        command = blanks * (size // len(blanks)) + f"{GITHUB_TOKEN} it"
        assert action_of("Bash", json.dumps({"command": command})) == "ran [redacted: github-token] it"


def secrets() -> Iterator[tuple[str, str]]:
    """Secrets that are known when they are whole, as they are written, and alone."""
    for secret, _, _ in planted(7, 2 * len(KINDS)):
        if secret.value not in redact(secret.written).text:
            yield secret.written, secret.value
    yield f"postgres://me:{'p4sS' * 2_000}@db/x", "p4sS" * 3
    yield f"eyJhbGciOiJIUzI1NiJ9.eyJ{'x1Yz' * 2_000}.{'s1Gn' * 12}", "x1Yz" * 3
    block = " ".join(["k1Ey" * 16] * 120)
    kind = "PRIVATE KEY-----"
    yield f"-----BEGIN RSA {kind} Proc-Type: 4,ENCRYPTED {block} -----END RSA {kind}", "k1Ey" * 3


@pytest.mark.parametrize("front", ["word ", f"{GITHUB_TOKEN}a1B2"], ids=["words", "one secret"])
def test_no_half_of_a_secret_is_told_where_a_text_is_read_no_further(front: str) -> None:
    """Of one word, of several, known by its end alone; also where all that is in front of it is replaced."""
    for written, value in secrets():
        for seen in (5, len(value) // 2, len(value) - 1, len(written) - 1):
            start = LOOKED_AT_CHARACTERS - seen - written.find(value[:4])
            text = f"{front[:-4] + front[-4:] * LOOKED_AT_CHARACTERS}"[: max(0, start - 1)]
            told = one_line(f"{text} {written}{' and more' * LOOKED_AT_CHARACTERS}")
            assert not any(value[at : at + 8] in told for at in range(min(len(value), 400) - 7))


def test_of_a_longer_text_the_beginning_is_told() -> None:
    """What it begins with is no secret's half: as much as may be one stands between it and where reading ends."""
    told = one_line("make all " * 1_000_000)
    assert told.startswith("make all make all ")
    assert len(told) <= LOOKED_AT_CHARACTERS - SECRET_CHARACTERS
    assert one_line(f"echo {GITHUB_TOKEN}{'a1B2' * LOOKED_AT_CHARACTERS} done") == "echo [redacted: github-token]"
    assert one_line("x" * LOOKED_AT_CHARACTERS) == "x" * LOOKED_AT_CHARACTERS
    assert one_line("x" * (LOOKED_AT_CHARACTERS + 1)) == "x" * (LOOKED_AT_CHARACTERS - SECRET_CHARACTERS)


@pytest.mark.parametrize("value", ["s3cret" * 200, 'pa"ss"7word', "hunter22!\n"])
def test_whatever_is_called_a_secret_is_not_told(value: str) -> None:
    """However long it is, and whatever it holds."""
    assert action_of("login", json.dumps({"password": value})) == "login [redacted]"


def test_what_was_said_is_redacted() -> None:
    """Like a command."""
    assert "ghp_" not in updated_ledger("", [Entry.assistant(f"The token is {GITHUB_TOKEN}.")])


# --- the ledger


def test_a_ledger_lists_what_was_done_and_what_was_said_last() -> None:
    """In the order of the doing; the last words that are not blank, on one line."""
    entries = [
        Entry.user("fix it"),
        Entry.assistant("I look."),
        read(1),
        Entry.tool_result("c", "x = 1", "Read"),
        Entry.assistant("It is\n\n  fixed."),
        call("Edit", file_path="lib/1.py"),
        Entry.assistant(" "),
    ]
    assert updated_ledger("", entries) == "Done so far:\n- read lib/1.py\n- edited lib/1.py\nLast said: It is fixed."


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [Entry.user("hello")],
        [Entry.assistant(" ")],
        [call("history.read_item", item=5)],
        [Entry.opaque("{}", "a/b")],
    ],
)
def test_nothing_done_and_nothing_said_is_no_ledger(entries: list[Entry]) -> None:
    """An empty text."""
    assert updated_ledger("", entries) == ""


def test_a_ledger_may_hold_only_what_was_said() -> None:
    """A conversation without tools."""
    assert updated_ledger("", [Entry.assistant("Hello.")]) == "Last said: Hello."


def test_what_is_done_again_is_listed_once_as_the_last() -> None:
    """Duplicates take no line."""
    assert updated_ledger("", [read(1), read(2), read(1)]) == "Done so far:\n- read lib/2.py\n- read lib/1.py"


def test_the_newest_thirty_are_kept_and_the_others_counted() -> None:
    """By count here; the names are short."""
    text = updated_ledger("", [read(number) for number in range(ACTIONS_LIMIT + 5)])
    lines = text.split("\n")
    assert lines[0] == "Done so far (5 older ones left out):"
    assert lines[1:] == [f"- read lib/{number}.py" for number in range(5, ACTIONS_LIMIT + 5)]


def test_the_count_of_what_was_left_out_adds_up() -> None:
    """Over updates."""
    text = ""
    for first in range(0, 100, 10):
        text = updated_ledger(text, [read(number) for number in range(first, first + 10)])
    assert text.startswith("Done so far (70 older ones left out):\n- read lib/70.py\n")


def test_what_was_said_stays_until_something_else_is() -> None:
    """An update that says nothing keeps it."""
    text = updated_ledger(updated_ledger("", [Entry.assistant("Hello.")]), [read(1)])
    assert text == "Done so far:\n- read lib/1.py\nLast said: Hello."


def test_long_lines_end_in_three_dots() -> None:
    """Eighty characters an action, two hundred of what was said."""
    text = updated_ledger("", [call("think" * 20), Entry.assistant("word " * 100)])
    _, action, said = text.split("\n")
    assert action == "- " + ("think" * 20)[: ACTION_CHARACTERS - 3] + "..."
    assert len(said.removeprefix("Last said: ")) <= NARRATION_CHARACTERS
    assert said.endswith(" wo...")


def test_the_fullest_ledger_has_1200_characters() -> None:
    """The largest count, actions that fill their share to the last character, the longest narration."""
    count = 10**9 - 1
    full = [call(f"{number:080}") for number in range(ACTIONS_CHARACTERS // 83)]
    last = call("x" * (ACTIONS_CHARACTERS % 83 - len("\n- ")))
    text = updated_ledger(
        f"Done so far ({count} older ones left out):", [*full, last, Entry.assistant("w" * NARRATION_CHARACTERS)]
    )
    assert len(text) == 1_200
    assert text.count("\n- ") == len(full) + 1
    more = updated_ledger(text, [call("y")])
    assert more.startswith(f"Done so far ({count} older ones left out):\n- {1:080}\n")


def test_a_text_that_is_no_ledger_is_passed_over() -> None:
    """Only a ledger's own lines are read back."""
    assert updated_ledger("Once upon a time\nthere was", [read(1)]) == "Done so far:\n- read lib/1.py"


names = st.sampled_from(["Read", "Bash", "Edit", "Grep", "Task", "notes.write_file", "deploy", "history.read_item"])
words = st.sampled_from(["a.py", "lib/b.py", DEEP, "password=hunter22!", "- read x", "Last said: x", "é" * 70, ""])
calls = st.builds(
    lambda name, word, text: call(name, file_path=word + text, command=word, pattern=text, name=word, prompt=text),
    names,
    words,
    hostile_texts,
)
entries = st.lists(st.one_of(calls, calls, st.builds(Entry.assistant, hostile_texts)), max_size=60)
ledgers = st.one_of(st.just(""), hostile_texts, st.builds(lambda made: updated_ledger("", made), entries))


@given(previous=ledgers, first=entries, then=entries)
def test_updating_in_two_steps_is_updating_at_once(previous: str, first: list[Entry], then: list[Entry]) -> None:
    """Exactly, omitted count included: it does not matter how many entries a rotation takes out of the window."""
    assert updated_ledger(updated_ledger(previous, first), then) == updated_ledger(previous, [*first, *then])


@given(previous=ledgers, leaving=entries)
def test_a_ledger_is_bounded(previous: str, leaving: list[Entry]) -> None:
    """The whole text, each line of it, and how many there are."""
    text = updated_ledger(previous, leaving)
    actions = [line for line in text.split("\n") if line.startswith("- ")]
    assert len(text) <= LEDGER_CHARACTERS
    assert len(actions) == len(set(actions)) <= ACTIONS_LIMIT
    assert all(len(action) <= ACTION_CHARACTERS + len("- ") for action in actions)


@given(hostile_entries)
def test_no_entry_makes_a_line_of_its_own(leaving: list[Entry]) -> None:
    """Whatever names and arguments hold: a line is one that the ledger wrote."""
    text = updated_ledger("", leaving)
    for line in filter(None, text.split("\n")):
        assert line.startswith(("Done so far:", "- ", "Last said: "))
    assert not set(text) & set(LINE_BREAKS) - {"\n"}


@pytest.mark.parametrize(
    "name", ["claude_code_258c7280.json", "claude_code_4d5611e5.json", "claude_code_8463c716.json"]
)
def test_a_real_session_is_told_by_known_verbs(data_dir: Path, name: str) -> None:
    """Of a coding agent's calls at most one in twenty is told by its name only."""
    recording = read_recording((data_dir / name).read_bytes(), name)
    actions = [
        action_of(call.name, call.arguments) for turn in recording.turns for r in turn.rounds for call in r.calls
    ]
    known = [
        action
        for action in actions
        if action.startswith(("read ", "wrote ", "edited ", "ran ", "searched ", "spawned "))
    ]
    assert len(known) >= 0.95 * len(actions)
