"""What the tests of ageing share: entries by size, summarizers with character, a conversation that rotates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sessionlib.entries import Entry
from sessionlib.layout import Layout
from sessionlib.policies.contract import Accepted, Consolidating, Origin, Policy, Rotated, RotationPlan
from sessionlib.rotation import Extract, plan_for, rotate
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.steps import Consolidation, Effect, EffectResult, drive
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from sessionlib.summaries.extractive import extract as extract_sentences
from sessionlib.tokens import CharactersCounter
from sessionlib.transcript import Transcript
from sessionlib.window import Budgets, Room

CHARACTERS = CharactersCounter()

Answer = Callable[[ConsolidationRequest], str]


def words(tokens: int, name: str = "w") -> str:
    """Text of exactly *tokens* by the characters counter, recognisable by its name."""
    return f"{name} {'lorem ' * tokens}"[: 4 * tokens - 1].strip().ljust(4 * tokens, ".")


def message(tokens: int, name: str = "w") -> Entry:
    """A user entry of exactly *tokens*, its overhead included."""
    return Entry.user(words(tokens - CHARACTERS.entry_overhead_tokens, name))


def transcript(entries: Iterable[Entry], first_seq: int = 1) -> Transcript:
    entries = tuple(entries)
    return Transcript(entries, tuple(CHARACTERS.entry(entry) for entry in entries), first_seq)


def appended(layout: Layout, entries: Sequence[Entry]) -> Layout:
    return layout.with_live(layout.live.append(entries, [CHARACTERS.entry(entry) for entry in entries]))


def room(window_tokens: int, fixed_tokens: int = 0) -> Room:
    return Room(window_tokens=window_tokens, fixed_tokens=fixed_tokens, output_reserve_tokens=0)


def budgets_of(policy: Policy, window_tokens: int, *, show_span: bool = False) -> Budgets:
    return policy.budgets(room(window_tokens), CHARACTERS, show_span=show_span)


def planned(
    layout: Layout,
    budgets: Budgets,
    *,
    show_span: bool = False,
    origin: Origin = Origin.ESTIMATED,
    carries_ledger: bool = False,
) -> RotationPlan:
    """A plan for the whole of a layout."""
    return plan_for(
        layout,
        layout.live.next_seq - 1,
        budgets=budgets,
        counter=CHARACTERS,
        show_span=show_span,
        origin=origin,
        carries_ledger=carries_ledger,
    )


@dataclass
class Asked:
    """Answers a policy's requests itself, without the engine around them, and remembers them."""

    answer: Answer
    requests: list[ConsolidationRequest] = field(default_factory=list)

    def decide(self, deciding: Consolidating) -> Rotated:
        try:
            request = next(deciding)
            while True:
                self.requests.append(request)
                request = deciding.send(Accepted(self.answer(request)))
        except StopIteration as stop:
            rotated: Rotated = stop.value
            return rotated

    @property
    def shape(self) -> list[tuple[int, str]]:
        """Tier and D (degradation) or M (merge) of each request."""
        return [(request.tier, "D" if request.is_degradation else "M") for request in self.requests]


def source_of(request: ConsolidationRequest) -> str:
    return request.previous_record + request.material


def keeping(ratio: float) -> Answer:
    """A summarizer whose answer is this share of what it is shown, its beginning word for word."""
    return lambda request: source_of(request)[: max(1, int(len(source_of(request)) * ratio))]


def filling(request: ConsolidationRequest) -> str:
    """Returns exactly the budget."""
    return words(request.budget_tokens, "filled")


def echoing(request: ConsolidationRequest) -> str:
    return request.material


def blank(request: ConsolidationRequest) -> str:
    return " \n\t" * request.budget_tokens


def wordy(request: ConsolidationRequest) -> str:
    """Three times as long as what it is shown."""
    return source_of(request) * 3


CHARACTERS_OF_SUMMARIZERS: Mapping[str, Answer] = {
    "terse": keeping(0.1),
    "stubborn": keeping(0.9),
    "filling": filling,
    "echo": echoing,
    "blank": blank,
    "wordy": wordy,
}


def never() -> bool:
    return False


@dataclass
class Driven:
    """Performs a rotation's effects with a summarizer; remembers effects and results by name."""

    answer: Answer
    effects: dict[str, Consolidation] = field(default_factory=dict)
    saved: dict[str, EffectResult] = field(default_factory=dict)

    def perform(self, effect: Effect) -> EffectResult:
        assert isinstance(effect, Consolidation)
        assert effect.name not in self.effects, "a step's name must be unique within a rotation"
        self.effects[effect.name] = effect
        return Consolidated(text=self.answer(effect.request), prompt_tokens=10, completion_tokens=1)

    def rotate(
        self,
        plan: RotationPlan,
        policy: Policy,
        *,
        summarizer_window_tokens: int = 1_000_000,
        cancelled: Callable[[], bool] = never,
        saved: Mapping[str, EffectResult] | None = None,
        extract: Extract = extract_sentences,
    ) -> RotationOutcome:
        steps = rotate(
            plan,
            policy,
            summarizer_window_tokens=summarizer_window_tokens,
            cancelled=cancelled,
            extract=extract,
        )
        return drive(steps, self.perform, saved or {}, self.save)

    def save(self, name: str, result: EffectResult) -> None:
        self.saved[name] = result


@dataclass
class Conversation:
    """A layout that grows and rotates whenever it is past its line, as a session's does."""

    policy: Policy
    budgets: Budgets
    answer: Answer
    show_span: bool = False
    carries_ledger: bool = False
    layout: Layout = field(default_factory=Layout)
    outcomes: list[RotationOutcome] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)

    def say(self, entries: Sequence[Entry]) -> bool:
        """Append *entries*; rotate if the line is passed, and say whether anything was adopted."""
        self.layout = appended(self.layout, entries)
        if self.layout.conversation_tokens < self.budgets.line_tokens:
            return False
        plan = planned(self.layout, self.budgets, show_span=self.show_span, carries_ledger=self.carries_ledger)
        outcome = Driven(self.answer).rotate(plan, self.policy)
        if outcome.is_noop:
            return False
        self.outcomes.append(outcome)
        self.removed += self.layout.live.entries[: outcome.dropped_count]
        self.layout = outcome.layout
        return True
