"""Sections: which sentences of the evidence go under which heading, chosen mechanically.

Word stems decide, so what stands under a heading is a guess; that it stands in the evidence word for word is none. A
sentence goes under the first heading whose rule it meets, in the order of the rules, which differs from that of the
headings: what is open must not be taken for done.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sessionlib.summaries.evidence import Evidence, Item, Provenance
from sessionlib.summaries.grounding import Source
from sessionlib.summaries.purposes import EMPTY_BULLET, HEADINGS, Purpose
from sessionlib.summaries.sentences import Piece, pieces_of, points_by_word, ranked

FOCUS = 2.0
"""What a word of the receiver's task, or of the guidance, adds to the worth of a sentence: as much as a number."""

UNANSWERED_SENTENCES = 6
"""How much of a last request is taken whatever it is worth, from its beginning."""

_LABELS: Mapping[Provenance, str | None] = MappingProxyType(
    {
        Provenance.USER: "USER",
        Provenance.ASSISTANT: "ASSISTANT",
        Provenance.TOOL_CALL: "TOOL CALL",
        Provenance.TOOL_RESULT: "TOOL RESULT",
        Provenance.SKILL_INVOCATION: "SKILL",
        Provenance.RECORD: "RECORD",
        Provenance.TRANSCRIPT: None,  # names its speakers itself
    }
)

_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "USER": "user",
        "ASSISTANT": "model",
        "TOOL CALL": "call",
        "TOOL RESULT": "observed",
        "SKILL": "skill",
        "RECORD": "earlier summary",
        "": "evidence",
    }
)
"""How a bullet says whose statement it is."""

_PROSE = frozenset({"USER", "ASSISTANT", "RECORD", ""})
_OBSERVED = frozenset({"ASSISTANT", "TOOL RESULT", "RECORD", ""})
_ANYBODY = frozenset(_SOURCES) - {"SKILL"}

_OPEN = (
    r"\b(todo|pending|unresolved|outstanding|not yet|remains? (open|to be|unclear)|still (need|open|to|fail)|next step"
    r"|blocked|waiting|follow.?up)"
)
_WRONG = (
    r"(?<!\b0 )(?<!\bno )(error|fail)|exception|traceback|unexpected|surpris|turned out|instead of|wrong|broke\b|denied"
    r"|refused|cannot|not found"
)
_DONE = (
    r"^(?!.*[?？]$).*("
    r"\b(fix|add|creat|remov|updat|chang|deploy|book|cancel|refund|merg|releas|pass|complet|finish|resolv|replac|renam"
    r"|implement|install|migrat|approv|confirm|process|schedul|publish|revert|clos)\w*ed\b"
    r"|\b(done|wrote|built|sent|made|set up)\b)"
)
_RULE = r"\b(must|never|always|only\b|requir|prefer|avoid|forb[ia]d|do not|don't|limit|rule\b|policy|deadline|need to)"
_DECIDED = r"\b(decid|decision|cho[os]s?e|agree|switch|because|reason|reject|keep\b|kept\b|settled on)"
_QUESTION = r"[?？]$"
_FILE_TYPES = (
    "c|cc|cfg|cpp|cs|css|csv|ex|exs|go|h|heex|hpp|html|ini|java|js|json|jsx|kt|lock|lua|md|php|py|rb|rs|rst|sh|sql|swift"
    "|toml|ts|tsx|txt|xml|ya?ml"
)
_PATH = re.compile(
    rf"(?<![\w/.:-])(?:(?:~|\.{{1,2}})?/(?:[\w.-]+/)*[\w.-]*\w|(?:[\w.-]+/)*[\w-][\w.-]*\.(?:{_FILE_TYPES}))(?![\w/])"
)
_EVERYTHING = r""
_LIST_SIGN = re.compile(r"^[-*•] ")


@dataclass(frozen=True, slots=True)
class _Rule:
    """Sentences of these speakers that hold the pattern go under the heading, the best *count* of them."""

    heading: str
    pattern: re.Pattern[str]
    speakers: frozenset[str]
    count: int


def _rule(heading: str, pattern: str, speakers: frozenset[str], count: int = 8) -> _Rule:
    return _Rule(heading, re.compile(pattern, re.IGNORECASE), speakers, count)


_ACCOUNT_RULES = (
    _rule("Skills Invoked", _EVERYTHING, frozenset({"SKILL"})),
    _rule("Constraints & Preferences", _RULE, frozenset({"USER"})),
    _rule("Key Decisions", _DECIDED, _PROSE),
    _rule("Open Questions & Risks", rf"{_OPEN}|{_WRONG}|{_QUESTION}", _PROSE),
    _rule("Work & Evidence", _DONE, _OBSERVED, 12),
    _rule("Scope", _EVERYTHING, frozenset({"USER"}), 6),
    _rule("Critical Context", _EVERYTHING, _ANYBODY, 12),
)
_RULES: Mapping[Purpose, tuple[_Rule, ...]] = MappingProxyType(
    {
        Purpose.CONTINUATION: (_rule("Next Steps", _OPEN, _PROSE), *_ACCOUNT_RULES),
        Purpose.HANDOFF: _ACCOUNT_RULES,
        Purpose.DIGEST: (
            _rule("Unfinished", _OPEN, _PROSE, 4),
            _rule("Surprised", _WRONG, _OBSERVED, 4),
            _rule("Done", _DONE, _OBSERVED),
            _rule("Learned", _EVERYTHING, _ANYBODY),
        ),
    }
)
_UNANSWERED: Mapping[Purpose, str] = MappingProxyType(
    {Purpose.CONTINUATION: "Next Steps", Purpose.HANDOFF: "Open Questions & Risks", Purpose.DIGEST: "Unfinished"}
)
"""Where a last request that nobody answered goes."""


@dataclass(frozen=True, slots=True)
class Bullet:
    """A line for a section. `position` is its place in the evidence."""

    heading: str
    position: int
    text: str


def bullets_for(purpose: Purpose, evidence: Evidence, relevant: str = "") -> Iterator[Bullet]:
    """Bullets for *purpose*: files, skills, the last request, then the most valuable sentences.

    Words of *relevant* count more. None holds a value that the evidence does not: a long line that was cut inside a
    number is left out.
    """
    if "Relevant Files" in HEADINGS[purpose]:
        yield from _files(evidence.items)
    pieces = [piece for item in evidence.items for piece in pieces_of(item.text, _LABELS[item.provenance])]
    source = Source("\n".join(item.text for item in evidence.items))
    counts: Tally[str] = Tally()
    unanswered = _unanswered(pieces)
    skills = [position for position, piece in enumerate(pieces) if piece.label == "SKILL"]
    for position in dict.fromkeys([*skills, *unanswered, *_ranked(pieces, relevant)]):
        heading = _heading(purpose, pieces[position], counts, is_unanswered=position in unanswered)
        bullet = Bullet(heading, position, _line(pieces[position]))
        if heading and not source.unsupported_in(bullet.text):
            counts[heading] += 1
            yield bullet


def written(purpose: Purpose, bullets: Iterable[Bullet]) -> str:
    """*bullets* under the headings of *purpose*, those of a section in the order of the evidence."""
    lines: list[str] = []
    chosen = sorted(bullets, key=lambda bullet: bullet.position)
    for heading in HEADINGS[purpose]:
        under = [bullet.text for bullet in chosen if bullet.heading == heading]
        lines += [f"## {heading}", *(under or [EMPTY_BULLET[purpose]]), ""]
    return "\n".join(lines).strip()


def _ranked(pieces: Sequence[Piece], relevant: str) -> Iterator[int]:
    points = points_by_word(pieces)
    for piece in pieces_of(relevant):
        points.update({word: points[word] + FOCUS for word in piece.words if word in points})
    return ranked(range(len(pieces)), pieces, points)


def _heading(purpose: Purpose, piece: Piece, counts: Tally[str], *, is_unanswered: bool) -> str:
    """Where a sentence goes; "" if its section is full."""
    if is_unanswered:
        return _UNANSWERED[purpose]
    for rule in _RULES[purpose]:
        if piece.label in rule.speakers and rule.pattern.search(piece.text):
            return rule.heading if counts[rule.heading] < rule.count else ""
    return ""


def _unanswered(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """Positions of the first sentences of a last user message that no answer follows."""
    positions: list[int] = []
    for position in range(len(pieces) - 1, -1, -1):
        if pieces[position].label != "USER":
            break
        positions.append(position)
    return tuple(reversed(positions))[:UNANSWERED_SENTENCES]


def _line(piece: Piece) -> str:
    return f"- [{_SOURCES[piece.label]}] {_LIST_SIGN.sub('', ' '.join(piece.text.split()))}"


def _files(items: Iterable[Item]) -> Iterator[Bullet]:
    """The paths that are named most often."""
    named = Tally(match[0] for item in items for match in _PATH.finditer(item.text))
    for path, _ in named.most_common(12):
        yield Bullet("Relevant Files", 0, f"- {path}")
