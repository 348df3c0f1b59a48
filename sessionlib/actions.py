"""A tool call in a few words: what it did to what, as the ledger lists it.

Tools are known by their names in the coding agents that people use: Claude Code, Codex, Gemini CLI, Cline, the text
editors of Anthropic's and OpenAI's APIs. Of any other tool the name and its first argument are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from sessionlib.entries import encodable
from sessionlib.summaries.redaction import redact

ACTION_CHARACTERS = 80
"""One action, like the two that follow from spec/work-room B6."""
COMMAND_CHARACTERS = 60
ARGUMENT_CHARACTERS = 40
"""Of a tool that is not known; and what was searched for."""

ELLIPSIS = "..."

SECRET_CHARACTERS = 8_192
"""No secret that is known by its end alone is longer: a quoted value, the password of a URL, a token whose third part
makes it one, a key whose block has headers. What fits no header of HTTP is no token."""

LOOKED_AT_CHARACTERS = SECRET_CHARACTERS + 1_024
"""How much of an argument is read, its blanks collapsed. Of a longer one, as much as may be the beginning of a secret
is not told."""

NOTE_WRITERS = frozenset({"notes.append_to_file", "notes.write_file"})
PRIVATE = ("history.", "notes.")

_PATHS = ("file_path", "path", "absolute_path", "filepath", "filename", "file", "notebook_path", "target_file", "uri")
_PLACES = ("path", "dir_path", "directory", "dir", "target_directory", "relative_workspace_path")
_COMMANDS = ("command", "cmd", "script", "code", "commands")
_QUERIES = ("pattern", "query", "regex", "glob_pattern", "search_term", "q")
_TASKS = ("description", "prompt", "message", "task", "instructions")
_PATCHES = ("input", "patch", "diff")

_READ, _WROTE, _EDITED, _RAN, _SEARCHED, _MAPPED, _SPAWNED = (
    "read", "wrote", "edited", "ran", "searched", "mapped structure", "spawned sub-agent",
)  # fmt: skip

_TOOLS = {
    _READ: "read readfile view viewfile openfile open cat readtextfile notebookread fsread getfilecontents",
    _WROTE: "write writefile writetofile createfile create savefile fswrite newfile",
    _EDITED: "edit editfile multiedit notebookedit strreplace replace replaceinfile searchreplace updatefile"
    " insertedit fsreplace applydiff applypatch patch",
    _RAN: "bash shell sh exec execute run executecommand executebash runcommand runshellcommand runterminalcmd"
    " runinterminal shellcommand localshell execcommand terminal python executecode runcode",
    _SEARCHED: "grep glob rg search searchfiles searchfilecontent grepsearch codebasesearch filesearch findfiles find"
    " globsearch websearch searchweb",
    _MAPPED: "ls listdirectory listdir listfiles directorytree tree repomap listcodedefinitionnames mapstructure"
    " getsymbolsoverview codeoutline",
    _SPAWNED: "task agent subagent spawnagent spawnsubagent newtask delegate delegatetask dispatchagent",
}
_VERBS = {name: verb for verb, names in _TOOLS.items() for name in names.split()}
"""What tools do, by their plain names: see `_plain`."""

_EDITORS = frozenset({"strreplaceeditor", "strreplacebasededittool", "texteditor", "editor", "memory"})
"""Tools that do several things; which, their argument `command` says."""
_EDITOR_COMMANDS = {"view": _READ, "create": _WROTE, "str_replace": _EDITED, "insert": _EDITED, "undo_edit": _EDITED}

_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(.+)$", re.MULTILINE)


def action_of(tool_name: str, arguments: str) -> str:
    """What a call did, on one line of at most ACTION_CHARACTERS, secrets redacted.

    "" for what is not worth telling: looking into history and notes, a call without name, or whose arguments are no
    JSON object.
    """
    if tool_name.startswith(PRIVATE) and tool_name not in NOTE_WRITERS:
        return ""
    given = _given(arguments)
    if given is None or not tool_name.strip():
        return ""
    return cut(_action(tool_name, given))


def one_line(text: str) -> str:
    """The beginning of *text* on one line, without its secrets and without the half of one.

    A secret that goes on where *text* is read no further may not be known as one. Nothing in it is replaced then: it
    stands untouched at the end of what was read, in at most SECRET_CHARACTERS, and these are left out.
    """
    words = text.split(maxsplit=LOOKED_AT_CHARACTERS // 2)  # with a blank behind each, these are enough
    line = " ".join(words)
    read = encodable(line[:LOOKED_AT_CHARACTERS])
    told = redact(read).text
    if len(line) <= LOOKED_AT_CHARACTERS:
        return told
    return told[: len(told) - _untouched(read, told)].rstrip()


def _untouched(read: str, told: str) -> int:
    """How many characters at the end of *read*, of those that may be a part of a secret, are the same in *told*."""
    pairs = zip(reversed(read[-SECRET_CHARACTERS:]), reversed(told), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def collapsed(text: str) -> str:
    """*text* with a blank for each run of whitespace."""
    return " ".join(text.split())


def cut(text: str, limit: int = ACTION_CHARACTERS) -> str:
    """*text* in at most *limit* characters, its end cut off if need be."""
    return text if len(text) <= limit else text[: limit - len(ELLIPSIS)].rstrip() + ELLIPSIS


def _action(tool_name: str, given: Mapping[str, Any]) -> str:
    if tool_name in NOTE_WRITERS:
        return f"note written: {_first(given, ('name',))}" if _first(given, ("name",)) else ""
    plain = _plain(tool_name)
    verb = _EDITOR_COMMANDS.get(str(given.get("command"))) if plain in _EDITORS else _VERBS.get(plain)
    return (_known(verb, given) if verb else "") or _unknown(tool_name, given)


def _known(verb: str, given: Mapping[str, Any]) -> str:
    """What a known tool did; "" if the argument is missing that says to what."""
    if verb == _RAN:
        return _with(verb, cut(_command(given), COMMAND_CHARACTERS))
    if verb == _SPAWNED:
        return _with(f"{verb}:", _first(given, _TASKS))
    if verb == _MAPPED:
        place = _first(given, _PLACES)
        return f"{verb} of {_end(place, len(verb) + 4)}" if place else verb
    if verb == _SEARCHED:
        query, place = cut(_first(given, _QUERIES), ARGUMENT_CHARACTERS), _first(given, _PLACES)
        found = _with(verb, query)
        return f"{found} in {_end(place, len(found) + 4)}" if found and place else found
    lines = _lines(given) if verb == _READ else ""
    path = _first(given, _PATHS) or (_patched(given) if verb == _EDITED else "")
    return _with(verb, _end(path, len(verb) + 1 + len(lines))) + lines if path else ""


def _unknown(tool_name: str, given: Mapping[str, Any]) -> str:
    texts = ((name, value) for name, value in given.items() if isinstance(value, str) and value.strip())
    first = next((_shown(name, value) for name, value in texts), "")
    return f"{collapsed(tool_name)} {cut(first, ARGUMENT_CHARACTERS)}".rstrip()


def _shown(name: str, value: str) -> str:
    """An argument on one line; nothing of one whose name says that it is a secret."""
    line = one_line(value)
    named = f"{name[-ARGUMENT_CHARACTERS:]}={json.dumps(cut(line), ensure_ascii=False)}"
    return "[redacted]" if redact(named).count else line


def _given(arguments: str) -> dict[str, Any] | None:
    """The arguments of a call, as far as they can be read."""
    try:
        given = json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _plain(tool_name: str) -> str:
    """`Read`, `read_file`, `mcp__files__read-file`, `functions.read_file`: the name itself, letters and digits."""
    last = re.split(r"__|[./:]", tool_name)[-1]
    return re.sub(r"[^a-z0-9]", "", last.lower())


def _first(given: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of the arguments *names* that is a text, on one line."""
    return next((line for name in names if isinstance(value := given.get(name), str) and (line := one_line(value))), "")


def _command(given: Mapping[str, Any]) -> str:
    """A command: a text, or a list of words; of `bash -lc "…"` what the shell is to do."""
    for name in _COMMANDS:
        words = given.get(name)
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            is_shell = len(words) == 3 and words[1] in ("-c", "-lc")
            return one_line(words[2] if is_shell else " ".join(words))
    return _first(given, _COMMANDS)


def _patched(given: Mapping[str, Any]) -> str:
    """Names of the files that a patch is for."""
    patch = next((value for name in _PATCHES if isinstance(value := given.get(name), str)), "")
    paths = list(dict.fromkeys(_PATCHED.findall(patch)))[-ACTION_CHARACTERS:]  # the end is what is told of them
    return ", ".join(dict.fromkeys(map(one_line, paths)))


def _lines(given: Mapping[str, Any]) -> str:
    """Which lines were read; "" for all of them."""
    first = _number(given, ("start_line", "first_line", "line_start", "offset"))
    count = _number(given, ("limit",))
    last = (first or 1) + count - 1 if count else _number(given, ("end_line", "last_line", "line_end"))
    view = given.get("view_range")
    if isinstance(view, list) and len(view) == 2:
        first, last = (_number({"line": line}, ("line",)) for line in view)
    if first is None and last is None:
        return ""
    return f" (lines {first or 1}-{'' if last is None else last})"


def _number(given: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """The first of the arguments *names* that is the number of a line."""
    return next((value for name in names if type(value := given.get(name)) is int and 0 <= value < 10**9), None)


def _end(path: str, beside: int) -> str:
    """The end of a path, which says most about it, with room for *beside* characters in its line."""
    limit = ACTION_CHARACTERS - beside
    if len(path) <= limit:
        return path
    end = path[len(path) - limit + len(ELLIPSIS) :]
    return ELLIPSIS + end[max(0, end.find("/")) :].lstrip()


def _with(verb: str, what: str) -> str:
    return f"{verb} {what}" if what else ""
