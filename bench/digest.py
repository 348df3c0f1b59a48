"""Grades digests of six small transcripts, mechanically, by the four failures that models were seen to make.

`python -m bench.digest` first shows that the grading works: a faultless digest of each transcript passes, and for each
kind of failure a summarizer that commits it is caught, by that kind and no other, on all six. Then it grades the
extractive generator. The kinds, and how each is found:

- state kept as instruction: a bullet names a state that is over, or an order from inside the evidence, and stands
  under Unfinished or reads as something to do: it opens with a verb in the imperative, or holds must, should, need to,
  next or to do;
- reference omitted: the digest lacks one of the transcript's references; or no bullet says the observed end of an
  outcome together with its subject; or no bullet under Unfinished names an open item;
- outcome invented: a bullet outside Unfinished names the subject of an outcome together with an end that was never
  observed, and no word such as not, before or whether takes it back; or the digest holds an identifier or a number
  that the transcript does not; or something stands under Unfinished where nothing is open;
- malformed empty section: the digest is not valid (spec/summaries C6), a section that says nothing included.

What a bullet says is found by the words of the frozen expected sets (`bench.digest_fixtures`), in capitals or not: a
paraphrase of a claim is missed, a reference that was renamed counts as omitted. Exit code 0: the grading works, and the
extractive generator invents nothing and is well-formed, as it promises; 1: one of these does not hold; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.digest_fixtures import FIXTURES, Fixture
from bench.figures import print_json
from sessionlib.summaries.contract import Fault, Generator, Settlement, SummaryRequest
from sessionlib.summaries.evidence import project
from sessionlib.summaries.extractive import ExtractiveGenerator
from sessionlib.summaries.grounding import unsupported_values
from sessionlib.summaries.purposes import EMPTY_BULLET, Purpose
from sessionlib.summaries.validation import complaint
from sessionlib.tokens import CharactersCounter


class Failure(StrEnum):
    """What is wrong with a digest (spec/results)."""

    STATE = "state kept as instruction"
    OMITTED = "reference omitted"
    INVENTED = "outcome invented"
    MALFORMED = "malformed empty section"


@dataclass(frozen=True, slots=True)
class Found:
    """A failure, and by what it was found."""

    failure: Failure
    by: str


_ORDER = re.compile(
    r"- (?:\[[^\]]*\] )?(?:please )?(?:add|ask|complete|continue|delete|deploy|do|drain|finish|fix|implement|keep|merge"
    r"|open|page|remove|resume|rewrite|run|send|start|use|wait|write)\b"
    r"|.*\b(?:must|should|needs? to|has to|have to|next|to ?do)\b",
    re.IGNORECASE | re.DOTALL,
)
_TAKEN_BACK = re.compile(r"\b(?:not|never|no|none|without|nothing|before|first|had been|whether|unclear|would)\b", re.I)
_EMPTY = EMPTY_BULLET[Purpose.DIGEST]


def grade(fixture: Fixture, settlement: Settlement) -> tuple[Found, ...]:
    """What is wrong with the digest of a fixture; nothing if it passes. One that is not valid is judged no further.

    Raises RuntimeError for a settlement without a digest, unless validation refused it.
    """
    if settlement.fault is Fault.VALIDATION:
        return (Found(Failure.MALFORMED, settlement.reason),)
    if settlement.fault is not None:
        raise RuntimeError(f"no digest of {fixture.name}: {settlement.fault}, {settlement.reason}")
    if reason := complaint(settlement.text, Purpose.DIGEST, source=_source(fixture)):
        return (Found(Failure.MALFORMED, reason),)
    sections = bullets_by_heading(settlement.text)
    return (
        *_states(fixture, sections),
        *_omissions(fixture, settlement.text, sections),
        *_inventions(fixture, settlement.text, sections),
    )


def bullets_by_heading(digest: str) -> Mapping[str, tuple[str, ...]]:
    """The bullets of a valid digest, continuation lines included; the empty bullet is none."""
    sections: dict[str, list[str]] = {}
    heading = ""
    for line in filter(str.strip, digest.splitlines()):
        if line.startswith("## "):
            heading = line[3:].strip()
            sections[heading] = []
        elif line.startswith("- "):
            sections[heading].append(line)
        else:
            sections[heading][-1] += f"\n{line}"
    return {heading: tuple(bullet for bullet in found if bullet != _EMPTY) for heading, found in sections.items()}


def _states(fixture: Fixture, sections: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    for heading, bullets in sections.items():
        for state in fixture.state:
            if any(_names(b, state) and (heading == "Unfinished" or _ORDER.match(b)) for b in bullets):
                yield Found(Failure.STATE, f"{state}, under {heading}")


def _omissions(fixture: Fixture, digest: str, sections: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    for reference in fixture.references:
        if not _names(digest, reference):
            yield Found(Failure.OMITTED, reference)
    bullets = [bullet for found in sections.values() for bullet in found]
    for outcome in fixture.outcomes:
        if not any(_names(bullet, outcome.subject) and _names(bullet, outcome.observed) for bullet in bullets):
            yield Found(Failure.OMITTED, f"{outcome.subject} {outcome.observed}".strip())
    for item in fixture.open_items:
        if not any(_names(bullet, item) for bullet in sections["Unfinished"]):
            yield Found(Failure.OMITTED, f"{item}, under Unfinished")


def _inventions(fixture: Fixture, digest: str, sections: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    bullets = [bullet for heading, found in sections.items() if heading != "Unfinished" for bullet in found]
    for outcome in fixture.outcomes:
        for claim in outcome.contrary:
            if any(_names(b, outcome.subject) and _names(b, claim) and not _TAKEN_BACK.search(b) for b in bullets):
                yield Found(Failure.INVENTED, f"{outcome.subject} {claim}")
    for value in unsupported_values(digest, _source(fixture)):
        yield Found(Failure.INVENTED, value)
    if sections["Unfinished"] and not fixture.open_items and not list(_states(fixture, sections)):
        yield Found(Failure.INVENTED, "something under Unfinished")


def _names(text: str, words: str) -> bool:
    return words.casefold() in text.casefold()


def _source(fixture: Fixture) -> str:
    return "\n".join(item.text for item in project(fixture.entries).items)


@dataclass(frozen=True, slots=True)
class ScriptedGenerator:
    """Answers with texts made beforehand, by the request's name."""

    texts: Mapping[str, str]

    def admits(self, request: SummaryRequest) -> bool:
        del request
        return True

    def generate(self, request: SummaryRequest, cancelled: Callable[[], bool]) -> Settlement:
        del cancelled
        return Settlement(text=self.texts[request.name])


def _with_bullet(digest: str, heading: str, bullet: str) -> str:
    """*digest* with one more bullet under a heading."""
    before, after = f"## {heading}\n{_EMPTY}", f"## {heading}\n"
    return (
        digest.replace(before, f"{after}{bullet}") if before in digest else digest.replace(after, f"{after}{bullet}\n")
    )


def _with_state(fixture: Fixture) -> str:
    return _with_bullet(fixture.digest, "Unfinished", f"- [model] continue: {fixture.state[0]}")


def _with_omission(fixture: Fixture) -> str:
    return re.sub(re.escape(fixture.references[0]), "it", fixture.digest, flags=re.IGNORECASE)


def _with_invention(fixture: Fixture) -> str:
    outcome = fixture.outcomes[0]
    return _with_bullet(fixture.digest, "Done", f"- [observed] {outcome.subject} {outcome.contrary[0]}")


def _with_malformed_section(fixture: Fixture) -> str:
    return re.sub(r"(## Surprised\n)(?:- .*\n)+", r"\1- (none)\n", fixture.digest)


SPOILERS: Mapping[Failure, Callable[[Fixture], str]] = {
    Failure.STATE: _with_state,
    Failure.OMITTED: _with_omission,
    Failure.INVENTED: _with_invention,
    Failure.MALFORMED: _with_malformed_section,
}
"""For each failure, how a faultless digest comes to have it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found in one generator's digests, fixture by fixture."""

    generator: str
    expected: Failure | None
    found: Mapping[str, tuple[Found, ...]]

    @property
    def is_as_expected(self) -> bool:
        """Whether each digest has the expected kind of failure, or none, and no other kind."""
        expected = {self.expected} if self.expected else set()
        return all({found.failure for found in each} == expected for each in self.found.values())


def graded(name: str, generator: Generator, expected: Failure | None = None) -> Row:
    """*generator*'s digests of all fixtures, graded."""
    found = {}
    for fixture in FIXTURES:
        request = SummaryRequest(purpose=Purpose.DIGEST, evidence=project(fixture.entries), name=fixture.name)
        found[fixture.name] = grade(fixture, generator.generate(request, lambda: False))
    return Row(name, expected, found)


def scripted_rows(spoilers: Mapping[Failure, Callable[[Fixture], str]] = SPOILERS) -> list[Row]:
    """The grading judged: faultless digests, then those of one scripted bad summarizer for each failure."""
    faultless = ScriptedGenerator({fixture.name: fixture.digest for fixture in FIXTURES})
    return [graded("faultless", faultless)] + [
        graded(f"scripted: {failure}", ScriptedGenerator({f.name: spoil(f) for f in FIXTURES}), failure)
        for failure, spoil in spoilers.items()
    ]


def is_sound(row: Row) -> bool:
    """Whether digests keep what the extractive generator promises: valid, and nothing in them is invented."""
    kinds = {found.failure for each in row.found.values() for found in each}
    return not kinds & {Failure.INVENTED, Failure.MALFORMED}


def _print(row: Row, verdict: str) -> None:
    passed = sum(not each for each in row.found.values())
    print(f"{row.generator}: {passed} of {len(row.found)} without a failure; {verdict}")
    for name, each in row.found.items():
        for found in each if row.expected is None else ():
            print(f"    {name}: {found.failure}: {found.by}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.digest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    scripted = scripted_rows()
    extractive = graded("extractive", ExtractiveGenerator(CharactersCounter()))
    if options.json:
        print_json([*scripted, extractive])
    else:
        for row in scripted:
            _print(row, "as expected" if row.is_as_expected else "NOT AS EXPECTED")
        _print(extractive, "nothing invented, well-formed" if is_sound(extractive) else "INVENTED OR MALFORMED")
    return 0 if all(row.is_as_expected for row in scripted) and is_sound(extractive) else 1


if __name__ == "__main__":
    sys.exit(main())
