"""What the demo session is written from: an invented repository, its words, and the decisions that are planted."""

from __future__ import annotations

INSTRUCTIONS = """\
You are a coding agent in the repository tidewater, a service that carries files between harbours.
Read before you edit, keep changes small, run the tests of what you changed, and say what you decided and why.
What the team settled on stays settled until somebody says otherwise."""

MODULES = (
    "uploader", "indexer", "scheduler", "gateway", "ledger", "notifier", "planner", "chunker", "auditor", "mirror",
    "throttle", "resolver", "packer", "courier", "registrar", "watcher", "reconciler", "archiver",
)  # fmt: skip
NOUNS = (
    "manifest", "parcel", "berth", "cargo", "voyage", "receipt", "pilot", "anchor", "beacon", "channel", "dock",
    "fender", "crane", "keel", "lantern", "mooring", "pallet", "quay", "rudder", "signal", "tide", "barge",
)  # fmt: skip
"""Their plurals end in s."""
VERBS = (
    "route", "merge", "expire", "release", "announce", "settle", "measure", "compare", "restore", "archive", "balance",
    "schedule", "queue", "isolate", "promote", "rotate", "reserve", "validate",
)  # fmt: skip
"""Their past ends in d."""
FIELDS = ("arrived_at", "checksum", "weight_kg", "owner", "attempt", "priority", "origin", "sealed_until", "revision")
FILE_NAMES = (
    "報告書-三月.pdf", "合同（最终版）.docx", "사진_여름휴가.jpg", "🎉-launch-day.mov", "отчёт_2030.xlsx",
    "meeting notes (copy).md", "naïve-façade.svg", "請求書＿控え.csv", "设计草图🖌️.png", "回議録-第4回.txt",
    "backup.tar.zst", "年度予算・改訂版.xlsx", "한국어 안내문.hwp", "🚢 route plan.json",
)  # fmt: skip

MODULE_HEAD = '''\
"""The {module}: decides what happens to a {noun} between {other} and {third}."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidewater.{friend} import {Friend}, {Noun}Refused
from tidewater.values import {Other}, {Third}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class {Module}:
    """Holds no state between calls; the {noun}s it is given are never changed in place."""

    {noun}s: tuple[{Other}, ...]
    {field}_limit: int = {number}
'''

FUNCTIONS = (
    '''
    def {verb}_{noun}(self, {other}: {Other}, *, limit: int = {number}) -> list[{Other}]:
        """{Verb} every {noun} that belongs to *{other}*, oldest first; at most *limit* of them."""
        found = [each for each in self.{noun}s if each.{field} == {other}.{field}]
        if len(found) > limit:
            log.warning("more {noun}s than the limit", extra={{"count": len(found), "limit": limit}})
        return sorted(found, key=lambda each: each.{field2})[:limit]
''',
    '''
    def {verb}_{noun}_once(self, {noun}: {Third}) -> {Third}:
        """{Verb} the {noun} unless it was done before; raises {Noun}Refused if its {field} is unknown."""
        known = self._by_{field}.get({noun}.{field})
        if known is None:
            raise {Noun}Refused(f"{noun} {{{noun}.{field}}} is in no {other}")
        if known.{field2} >= {noun}.{field2}:
            return known
        return replace(known, {field2}={noun}.{field2}, attempt=known.attempt + {digit})
''',
    '''
    def {verb}_all(self, {noun}s: Iterable[{Other}], budget: int = {number}) -> Sequence[{Other}]:
        """What of the {noun}s fits the budget. The rest waits for the next {other}."""
        taken: list[{Other}] = []
        spent = 0
        for {noun} in {noun}s:
            cost = max({digit}, {noun}.weight_kg * {digit2})
            if spent + cost > budget:
                break
            taken.append({noun})
            spent += cost
        return taken
''',
    '''
    @property
    def is_{verb}d(self) -> bool:
        """True once every {noun} at the {other} was {verb}d and its {field} is known."""
        return all(each.{field} is not None and each.is_{verb}d for each in self.{noun}s)
''',
    """
    def _{verb}_between(self, first: {Third}, second: {Third}) -> int:
        # A {noun} without {field} sorts last: the {other} sends it only after the tide table is known.
        left, right = first.{field} or "~", second.{field} or "~"
        if left == right:
            return first.{field2} - second.{field2}
        return -{digit} if left < right else {digit}
""",
)

TRACE = """\
=================================== FAILURES ===================================
_______________________ test_{verb}_{noun}_{other} _______________________

    def test_{verb}_{noun}_{other}() -> None:
        \"\"\"A {noun} at the {other} is {verb}d once.\"\"\"
        {module} = {Module}(({noun}_at({number}), {noun}_at({number2})))
>       assert {module}.{verb}_{noun}({other}) == [{noun}_at({number2})]

tests/test_{module}.py:{line}:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
tidewater/{module}.py:{line2}: in {verb}_{noun}
    return sorted(found, key=lambda each: each.{field})[:limit]
tidewater/{friend}.py:{line3}: in {field}
    return self._table[self.{field2}].{field}
E   {error}
"""
ERRORS = (
    "KeyError: '{field}'",
    "AttributeError: 'NoneType' object has no attribute '{field}'",
    "AssertionError: assert [] == [{Noun}({field}={number})]",
    "TypeError: '<' not supported between instances of 'NoneType' and 'int'",
    "tidewater.errors.{Noun}Refused: {noun} {number} is in no {other}",
)

REQUESTS = {
    "repair": (
        "test_{verb}_{noun} in the {module} fails since yesterday. Please find out why and mend it.",
        "CI is red: the {module} cannot {verb} a {noun} any more once the {other} is full. Fix it with a test.",
        "A customer reports that the {module} loses the {field} of a {noun} on the way to the {other}. Reproduce, fix.",
    ),
    "change": (
        "The {module} should {verb} a {noun} only after its {other} was settled. Please build that.",
        "Add a limit to the {module}: no more than a handful of {noun}s for each {other}, and a log line beyond it.",
        "Rename {verb}_{noun} in the {module} so that it says what it does, and follow its callers.",
    ),
    "investigate": (
        "Why was the {module} slow last night? Look at the logs and the status page before you guess.",
        "Somebody saw {noun}s arrive twice at the {other}. Is it the {module} or the {friend}?",
        "Compare what the {module} reports with what the {friend} has. I suspect the {field} of every {noun}.",
    ),
    "refactor": (
        "Go through all modules and make {field} a value of its own, not a bare string. One at a time, tests each.",
        "Every module logs in its own manner. Give them all the {noun} helper, one by one, and keep the tests green.",
    ),
    "inventory": ("Print the whole inventory of the {module}; I want to see every {noun} with its {field}.",),
}

THOUGHTS = {
    "reproduce": ("I reproduce it first.", "First the failing test, alone.", "Let me see it fail before I touch it."),
    "read": (
        "The trace points at the {module}; I read it and look who else uses {verb}_{noun}.",
        "Reading the {module} beside its callers.",
        "I want to see how the {module} gets its {field} before I change anything.",
    ),
    "edit": (
        "The {field} is read before the {other} is known. I move the check to the front.",
        "Small change: {verb} only what has a {field}, and say so in the log.",
        "The order was wrong: the {noun} must be settled before the {other} sees it.",
    ),
    "again": ("Still red, one line further on.", "That was half of it; the {friend} has the same assumption."),
    "test": ("Running the tests of the {module}.", "Now the tests.", ""),
    "look": ("Logs and status at the same time.", "I look at what the {module} wrote around that time.", ""),
}

ANSWERS = (
    "Done. The {module} now checks the {field} of a {noun} before it reaches the {other}.\n\n"
    "- `tidewater/{module}.py`: the check, {digit} lines\n- `tests/test_{module}.py`: a test that fails without it\n\n"
    "All tests of the {module} pass. I left the {friend} alone; it has the same pattern, but nothing calls it yet.",
    "Found and mended. Two callers handed a {noun} without {field} to the {module}, which sorted it first instead of "
    "last. The {other} then saw it before the {friend} had settled it.\n\nThe fix is in one place, and the test covers "
    "both callers.",
    "It is the {module}, not the {friend}: each {noun} is announced when the {other} opens and again when its {field} "
    "is renewed. The log shows both lines {digit} ms apart. I changed the second to an update and ran the tests.",
)

DECISIONS = (
    ("retry ceiling", "{number} ms", "the harbour gateway closes idle connections soon after"),
    ("staging queue", "{name}", "the old name collides with the billing team's"),
    ("parcel quota", "{number}", "the smallest harbour has no more berths"),
    ("checksum seed", "{number}", "the archive was written with it and cannot be rewritten"),
    ("canary branch", "{name}", "the release robot only follows that one"),
    ("upload port", "{number}", "the firewall of the partner lets nothing else through"),
    ("manifest bucket", "{name}", "legal wants it outside of the default region"),
    ("lease length", "{number} ms", "two missed heartbeats must fit into it"),
    ("trace header", "{name}", "the proxy strips every header that it does not know"),
    ("batch weight", "{number} kg", "the crane reports an overload beyond it"),
    ("rollback tag", "{name}", "it is the last build that the customer accepted"),
    ("index shards", "{number}", "a prime keeps the hot keys apart"),
    ("alert channel", "{name}", "nobody reads the general one at night"),
    ("cache lifetime", "{number} s", "the tide table is published that often"),
    ("feature flag", "{name}", "the experiment was announced under it"),
    ("journal depth", "{number} rows", "the auditors asked for one quarter"),
    ("service account", "{name}", "the shared one loses its rights next month"),
    ("throttle rate", "{number} per hour", "the partner bills everything above"),
    ("schema codename", "{name}", "the migration scripts are named after it"),
    ("socket backlog", "{number}", "the load test dropped connections below"),
    ("replica host", "{name}", "it stands in the other building"),
    ("compression window", "{number} bytes", "the old readers cannot allocate more"),
    ("signing key", "{name}", "the hardware module knows no other"),
    ("eviction age", "{number} s", "a voyage is never longer"),
    ("metrics prefix", "{name}", "the dashboards were built on it"),
    ("snapshot interval", "{number} s", "the disk needs that long to drain"),
    ("quarantine folder", "{name}", "the virus scanner watches only there"),
    ("page size", "{number} rows", "the slowest client times out on more"),
    ("pilot tenant", "{name}", "they agreed to the risk in writing"),
    ("heartbeat jitter", "{number} µs", "all ships reported in the same moment otherwise"),
    ("mirror region", "{name}", "the cable to the other one is being repaired"),
    ("grace period", "{number} ms", "the slowest plugin needs that long to stop"),
    ("webhook path", "{name}", "the customer has it in their firmware"),
    ("audit sample", "{number} per day", "the regulator names that figure"),
    ("export codec", "{name}", "the spreadsheet of the finance team opens nothing else"),
    ("ballast constant", "{number}", "it was measured on the quay and holds for all vessels"),
)
"""(subject, shape of the value, reason). The subjects share no word with each other."""

NAME_WORDS = (
    ("amber", "brisk", "cobalt", "dusky", "ember", "frosty", "gilded", "hollow", "ivory", "jaunty"),
    ("heron", "puffin", "osprey", "curlew", "gannet", "plover", "sandpiper", "kestrel", "bittern", "petrel"),
)
"""Planted names are made of these, which occur nowhere else."""

USER_PHRASINGS = (
    "By the way, we settled on {value} for the {subject}, because {reason}.",
    "For the record: the {subject} is {value} from now on; {reason}.",
    "I talked to the others: {value} it is for the {subject}, since {reason}. Keep to that.",
)
AGENT_PHRASINGS = (
    "I compared the options and chose {value} as the {subject}, because {reason}.",
    "Decision: the {subject} stays at {value}; {reason}.",
    "Noted for later work: {value} is our {subject}, since {reason}.",
)
