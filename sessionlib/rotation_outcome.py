"""What a rotation came to: the new layout, and figures without content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sessionlib.layout import Layout, Method, RecordKind
from sessionlib.policies.contract import Saturation

REASONS_KEPT = 5
"""How many different reasons for escalation an outcome's figures name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationOutcome:
    """What a rotation leads to: the layout in the place of the plan's, and its figures."""

    layout: Layout
    tokens_before: int
    """Conversation tokens of the plan's layout."""
    dropped_count: int
    """How many live entries leave, from the oldest on."""
    dropped_tokens: int
    saturations: tuple[Saturation, ...] = ()
    consolidation_count: int = 0
    """Calls of the summarizer, refused answers included."""
    prompt_tokens: int = 0
    """What the calls cost, in the summarizer's own tokens."""
    completion_tokens: int = 0
    methods: tuple[Method, ...] = ()
    """How each of the policy's requests was settled, in order."""
    faults: tuple[str, ...] = ()
    """Why answers were refused, in order: `CLASS: reason`, without content."""
    redaction_count: int = 0
    """Secrets that were replaced, in what was shown and in what came back."""
    is_noop: bool = False
    """Nothing leaves and no record changed: there is nothing to adopt."""
    layout_fault: str = ""
    """What is wrong with the layout that the policy made; nothing of it is here then."""

    @property
    def tokens_after(self) -> int:
        return self.layout.conversation_tokens

    @property
    def unsupported_count(self) -> int:
        """Identifiers and numbers in the layout's records that occur nowhere in what these were made from."""
        return sum(len(record.unsupported_values) for record in self.layout.records)

    @property
    def level(self) -> str | None:
        """How hard the window presses; None where the policy has no levels."""
        records = [record for record in self.layout.records if record.kind is not RecordKind.LEDGER]
        return records[-1].level.value if records and records[-1].level else None

    def figures(self) -> dict[str, Any]:
        """The outcome without content, as plain values."""
        classes = [fault.partition(":")[0] for fault in self.faults]
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "dropped_count": self.dropped_count,
            "dropped_tokens": self.dropped_tokens,
            "record_count": len(self.layout.records),
            "level": self.level,
            "rewrite_count": max((record.rewrite_count for record in self.layout.records), default=0),
            "consolidation_count": self.consolidation_count,
            "summarizer_prompt_tokens": self.prompt_tokens,
            "summarizer_completion_tokens": self.completion_tokens,
            "methods": {method.value: self.methods.count(method) for method in Method if method in self.methods},
            "faults": {fault: classes.count(fault) for fault in sorted(set(classes))},
            "fault_reasons": list(dict.fromkeys(self.faults))[:REASONS_KEPT],
            "redaction_count": self.redaction_count,
            "unsupported_count": self.unsupported_count,
            "saturations": [
                {
                    "reason": saturation.reason.value,
                    "tier": saturation.tier,
                    "input_tokens": saturation.input_tokens,
                    "output_tokens": saturation.output_tokens,
                }
                for saturation in self.saturations
            ],
        }
