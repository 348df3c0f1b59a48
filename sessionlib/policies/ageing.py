"""What ageing takes in every policy: asking with a tally, measuring redundancy, cutting to a budget."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace

from sessionlib.layout import Record, make_record
from sessionlib.policies.contract import Accepted, RotationPlan, Saturation, SaturationReason
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.summaries.grounding import LONGEST_CHARACTERS, NAMED_COUNT, still_in
from sessionlib.tokens import Counter

Asking = Generator[ConsolidationRequest, Accepted, Accepted]

_BOUNDARY = re.compile(r"""[\s"'`(){}\[\]<>|;=\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]""")
"""What no value holds: blanks, quotes, brackets, and the scripts that have no blanks between words."""


@dataclass(slots=True)
class Tally:
    """Asks for one rotation's consolidations, counts them, and notes which stopped shortening."""

    plan: RotationPlan
    saturation_ratio: float
    saturations: list[Saturation] = field(default_factory=list)
    consolidation_count: int = 0

    def ask(self, request: ConsolidationRequest) -> Asking:
        """The answer to *request*; a blank one becomes "" here, and only here."""
        self.consolidation_count += 1
        answer = yield request
        counter = self.plan.counter
        text = answer.text if answer.text.strip() else ""
        said_tokens = counter.text(text) if answer.first_tokens is None else answer.first_tokens
        source_tokens = counter.text(request.material)
        if not request.is_degradation:
            source_tokens += counter.text(request.previous_record)
        if said_tokens >= self.saturation_ratio * source_tokens > 0:
            self._note(SaturationReason.NO_REDUNDANCY, request.tier, source_tokens, said_tokens)
        return replace(answer, text=text)

    def over_budget(self, tier: int, input_tokens: int, output_tokens: int) -> None:
        """Note that material of a tier had to be cut to its budget."""
        self._note(SaturationReason.TIER_OVER_BUDGET, tier, input_tokens, output_tokens)

    def _note(self, reason: SaturationReason, tier: int, input_tokens: int, output_tokens: int) -> None:
        self.saturations.append(Saturation(reason, tier, input_tokens, output_tokens))


def newest_text(text: str, budget_tokens: int, counter: Counter) -> str:
    """The longest end of *text* of at most *budget_tokens* that begins with no half of a value.

    A value that alone is above the budget, or that is longer than a name can be, is cut; "" if not even the last
    character fits.
    """
    text = text.strip()
    fitting, start = len(text), 0
    while start < fitting:  # every end from `fitting` on that was counted fits
        middle = (start + fitting) // 2
        if counter.text(text[middle:]) <= budget_tokens:
            fitting = middle
        else:
            start = middle + 1
    return text[_between_values(text, fitting) :].lstrip() or text[fitting:]


def _between_values(text: str, start: int) -> int:
    """The first place from *start* on that breaks no value in two: half a path or hash would look made up.

    *start* itself where what it breaks is no name.
    """
    if start == 0:
        return 0
    boundary = _BOUNDARY.search(text, start - 1, start + LONGEST_CHARACTERS)
    return boundary.end() if boundary else start


def unsupported_in(text: str, *values: Iterable[str]) -> tuple[str, ...]:
    """Those of *values* that *text* says, each once: what was unsupported before a merge stays so after it."""
    distinct = dict.fromkeys(value for several in values for value in several)
    return still_in(distinct, text)[:NAMED_COUNT]


def cut_record(record: Record, text_tokens: int, seeded_tokens: int, plan: RotationPlan) -> Record | None:
    """The record with only its newest text, within *text_tokens* and, as it is seeded, *seeded_tokens*.

    None if nothing of it fits. Joined to its label a text may take a token more than alone.
    """
    while text := newest_text(record.text, text_tokens, plan.counter):
        span = record.first_seq, record.last_seq
        tokens = make_record(
            plan.counter, text, *span, show_span=plan.show_span, kind=record.kind, tier=record.tier
        ).tokens
        if tokens <= seeded_tokens:
            values = unsupported_in(text, record.unsupported_values)
            return replace(record, text=text, tokens=tokens, unsupported_values=values)
        text_tokens -= tokens - seeded_tokens
    return None
