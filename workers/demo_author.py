"""The author of the demo session: writes turns of an invented agent, with what its tools would have given."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from itertools import count
from random import Random
from typing import Any, NamedTuple

from sessionlib.providers.contract import CallRequest
from sessionlib.recordings import RecordedRound, RecordedTurn
from workers import demo_texts as texts

INVENTORY_ROWS = 280
"""Makes one result of more than 15,000 tokens (o200k), beyond the share of a window of 32,000 that one may have."""


class _Act(NamedTuple):
    """One tool call and what it gave."""

    tool: str
    arguments: dict[str, Any]
    result: str


_Words = dict[str, str]
_Step = tuple[str, list[_Act]]
"""What the agent says, and what it calls at the same time."""


class Author:
    """Writes turns. All chance comes from one Random."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._call_numbers = count(1)
        self._plans = {
            "repair": self._repair,
            "change": self._change,
            "investigate": self._investigate,
            "refactor": self._refactor,
            "inventory": self._inventory,
        }

    def turn(self, kind: str, additions: Mapping[str, str]) -> RecordedTurn:
        """A turn of *kind*: repair, change, investigate, refactor or inventory.

        *additions* are sentences to work in, by their place: input, round (the text of one in the middle) or answer.
        """
        words = self._words()
        said = {"input": self._say(texts.REQUESTS[kind], words), "answer": self._say(texts.ANSWERS, words)}
        for place in said.keys() & additions.keys():
            said[place] += f"\n\n{additions[place]}"
        steps = list(self._plans[kind](words))
        middle = len(steps) // 2
        steps[middle] = (f"{steps[middle][0]} {additions.get('round', '')}".strip(), steps[middle][1])
        rounds = [self._round(text, acts) for text, acts in steps]
        return RecordedTurn(input=said["input"], rounds=(*rounds, RecordedRound(text=said["answer"])))

    def _round(self, text: str, acts: list[_Act]) -> RecordedRound:
        calls = tuple(
            CallRequest(
                call_id=f"call_{next(self._call_numbers):04d}",
                name=act.tool,
                arguments=json.dumps(act.arguments, ensure_ascii=False),
            )
            for act in acts
        )
        results = tuple((call.call_id, act.result) for call, act in zip(calls, acts, strict=True))
        return RecordedRound(text=text, calls=calls, results=results)

    # What is done in a turn of each kind.

    def _repair(self, words: _Words) -> Iterator[_Step]:
        yield self._thought("reproduce", words), [self._tests(words, failed=True)]
        yield self._thought("read", words), [self._read(words), self._grep(words)]
        yield self._thought("edit", words), [self._edit(words)]
        if self._random.random() < 0.5:
            yield self._thought("test", words), [self._tests(words, failed=True)]
            yield self._thought("again", words), [self._read(_friends(words))]
            yield self._thought("edit", words), [self._edit(_friends(words))]
        yield self._thought("test", words), [self._tests(words)]
        yield "", [self._diff(words)]

    def _change(self, words: _Words) -> Iterator[_Step]:
        yield self._thought("read", words), [self._read(words), self._grep(words)]
        yield "", [self._read(_friends(words))]
        for _ in range(self._random.randint(1, 2)):
            yield self._thought("edit", words), [self._edit(words)]
            yield self._thought("test", words), [self._tests(words)]
        yield "", [self._diff(words)]

    def _investigate(self, words: _Words) -> Iterator[_Step]:
        yield self._thought("look", words), [self._logs(words), self._status(words)]
        yield "", [self._logs(_friends(words))]
        yield self._thought("read", words), [self._read(words), self._grep(words)]
        yield "", [self._status(_friends(words))]
        yield self._thought("edit", words), [self._edit(words)]
        yield self._thought("test", words), [self._tests(words)]

    def _refactor(self, words: _Words) -> Iterator[_Step]:
        for module in texts.MODULES:
            local = {**self._words(), "field": words["field"], **_named("module", module)}
            yield f"Next: the {module}.", [self._grep(local)]
            yield self._thought("edit", local), [self._edit(local), self._tests(local)]

    def _inventory(self, words: _Words) -> Iterator[_Step]:
        yield "The status first, it is cheap.", [self._status(words)]
        yield "And now all of it.", [self._rows(words)]
        yield "", [self._grep(words)]

    # What tools give.

    def _read(self, words: _Words) -> _Act:
        numbered = "\n".join(f"{number:>4}  {line}" for number, line in enumerate(self._source(words), 1))
        return _Act("read_file", {"path": f"tidewater/{words['module']}.py"}, numbered)

    def _grep(self, words: _Words) -> _Act:
        pattern = f"{words['verb']}_{words['noun']}"
        hits = sorted(
            f"{self._random.choice(('tidewater', 'tests'))}/{self._random.choice(texts.MODULES)}.py"
            f":{self._line()}:    {self._random.choice(('', 'return ', 'found = '))}self.{pattern}({each['other']})"
            for each in (self._words() for _ in range(self._random.randint(6, 18)))
        )
        return _Act("search", {"pattern": pattern, "path": "."}, "\n".join(hits))

    def _edit(self, words: _Words) -> _Act:
        template = self._random.choice(texts.FUNCTIONS)
        old, new = (template.format(**{**words, "number": self._small()}).strip("\n") for _ in range(2))
        new += f"\n        # The {words['field']} is settled here, before the {words['other']} is asked for it."
        path = f"tidewater/{words['module']}.py"
        diff = difflib.unified_diff(old.split("\n"), new.split("\n"), f"a/{path}", f"b/{path}", lineterm="")
        return _Act("edit_file", {"path": path, "old": old, "new": new}, "\n".join(diff))

    def _tests(self, words: _Words, *, failed: bool = False) -> _Act:
        passed, seconds = self._random.randint(12, 160), self._random.uniform(0.4, 9)
        progress = "." * passed + ("F" if failed else "")
        body = [progress[start : start + 72] for start in range(0, len(progress), 72)]
        if failed:
            fill = {**words, "number": self._small(), "line": self._line(), "line3": self._line()}
            body.append(texts.TRACE.format(**fill, error=self._say(texts.ERRORS, fill)))
        body.append(f"{'1 failed, ' if failed else ''}{passed} passed in {seconds:.2f}s")
        return _Act("run_tests", {"target": f"tests/test_{words['module']}.py"}, "\n".join(body))

    def _diff(self, words: _Words) -> _Act:
        before, after = self._source(words), self._source(words)
        path = f"{words['module']}.py"
        diff = list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="", n=1))
        return _Act("run_command", {"command": f"git diff tidewater/{path}"}, "\n".join(diff[:60]))

    def _logs(self, words: _Words) -> _Act:
        hour = self._random.randint(10, 23)
        lines = (
            {
                "at": f"2031-04-17T{hour}:{minute:02d}:{self._random.randint(10, 59)}Z",
                "level": self._random.choice(("info", "info", "warning", "error")),
                "event": f"{words['noun']} {self._random.choice(texts.VERBS)}d",
                "file": self._random.choice(texts.FILE_NAMES),
                "took_ms": round(self._random.uniform(1, 900), 1),
            }
            for minute in range(self._random.randint(14, 26))
        )
        command = f"tail -n 40 logs/{words['module']}.jsonl"
        return _Act("run_command", {"command": command}, "\n".join(json.dumps(x, ensure_ascii=False) for x in lines))

    def _status(self, words: _Words) -> _Act:
        figures = {
            noun: {"waiting": self._random.randint(0, 999), "settled": self._random.randint(0, 9_999), "ok": ok}
            for noun, ok in ((noun, self._random.random() < 0.9) for noun in self._random.sample(texts.NOUNS, 8))
        }
        status = {"service": words["module"], "digest": self._digest(), "figures": figures}
        return _Act("fetch", {"url": f"http://localhost/{words['module']}/status"}, json.dumps(status, indent=2))

    def _rows(self, words: _Words) -> _Act:
        rows = [
            {"id": self._digest(), "kind": self._random.choice(texts.NOUNS), words["field"]: self._small(),
             "file": self._random.choice(texts.FILE_NAMES), "berth": self._random.randint(1, 99)}
            for _ in range(INVENTORY_ROWS)
        ]  # fmt: skip
        return _Act("fetch", {"url": f"http://localhost/{words['module']}/inventory"}, json.dumps(rows, indent=1))

    # Words.

    def _source(self, words: _Words) -> list[str]:
        """The lines of a module: its head, and functions about other words than the caller's."""
        functions = (
            self._random.choice(texts.FUNCTIONS).format(**self._words()) for _ in range(self._random.randint(4, 6))
        )
        return (texts.MODULE_HEAD.format(**words) + "".join(functions)).split("\n")

    def _words(self) -> _Words:
        """One choice of everything that a template may ask for."""
        noun, other, third = self._random.sample(texts.NOUNS, 3)
        module, friend = self._random.sample(texts.MODULES, 2)
        field, field2 = self._random.sample(texts.FIELDS, 2)
        words = {"field": field, "field2": field2}
        chosen = {"noun": noun, "other": other, "third": third, "module": module, "friend": friend}
        for key, value in {**chosen, "verb": self._random.choice(texts.VERBS)}.items():
            words |= _named(key, value)
        words |= {key: self._small() for key in ("number", "number2")}
        words |= {key: self._line() for key in ("line", "line2", "line3")}
        return words | {key: str(self._random.randint(1, 9)) for key in ("digit", "digit2")}

    def _thought(self, kind: str, words: _Words) -> str:
        return self._say(texts.THOUGHTS[kind], words)

    def _say(self, templates: tuple[str, ...], words: _Words) -> str:
        return self._random.choice(templates).format(**words)

    def _small(self) -> str:
        """A number of at most four digits: planted numbers have five."""
        return str(self._random.randint(10, 2_000))

    def _line(self) -> str:
        """The number of a line that a module of the session may have."""
        return str(self._random.randint(12, 80))

    def _digest(self) -> str:
        return f"{self._random.getrandbits(64):016x}"


def _named(key: str, value: str) -> _Words:
    """A word as it is, and with a capital under the key with a capital."""
    return {key: value, key.capitalize(): value.capitalize()}


def _friends(words: _Words) -> _Words:
    """The same matter, seen from the module's friend."""
    return {**words, **_named("module", words["friend"]), **_named("friend", words["module"])}
