"""Windows that are counted by another tokenizer than ours: how often a provider refuses a request as too long.

`python -m bench.tokenizers` talks with a fake provider whose tokens are 0.5, 1, 2 and 4 times as many as ours, in a
session that rotates again and again, with messages and tool results of 10 to 600 tokens, over each API: two name
figures when they refuse a request as too long, the Responses API does not; then with agents that declare 4 and 16 times
the window that the provider has. Told are the requests that the provider
refused, before the first report that the session learned from and after it, and the turns that were not answered: a
refused request is cut and sent again within its round. What it must come to: at most 1 refusal per 1,000 rounds after
the first recalibration, and every turn answered.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.apis import APIS
from bench.figures import print_json
from bench.samples import fresh_samples
from sessionlib.agent import Agent
from sessionlib.errors import TurnFailed, WindowOverflow
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from sessionlib.window_facts import LearnedWindow

RATIOS = (0.5, 1.0, 2.0, 4.0)
MULTIPLES = (4, 16)
"""Of the provider's window: what agents declare who are wrong."""
WINDOW_TOKENS = 8_000
ROUNDS = 1_000
TARGET_PER_THOUSAND = 1.0

SESSION = "foreign"
OPENING_CALLS = 8
"""Calls in the first turn: their results go beyond the window of a dense tokenizer before anything is known of it."""
WORK_EVERY = 4
"""Every so many turns have a tool round."""
SENTENCES = (1, 12)
"""Fewest and most sentences of a message or a result."""

_TEXTS = [
    sentence for kind in ("english", "code", "json rows", "chinese") for sentence in fresh_samples()[kind].split(". ")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a session came to with one tokenizer."""

    api: str
    ratio: float
    """The provider's tokens for one of ours."""
    multiple: int
    """What the agent declares, as a multiple of the provider's window."""
    round_count: int
    rotation_count: int
    refused_before: int
    """Requests that were refused before the first recalibration."""
    refused_after: int
    unanswered_count: int
    calibration: float

    @property
    def refused_per_thousand(self) -> float:
        """After the first recalibration."""
        return 1_000 * self.refused_after / self.round_count

    @property
    def holds(self) -> bool:
        return self.refused_per_thousand <= TARGET_PER_THOUSAND and self.unanswered_count == 0


class _Watched:
    """A provider that knows how often it answered, and how often it refused a request as too long."""

    def __init__(self, provider: ApiProvider) -> None:
        self._provider, self.shape = provider, provider.shape
        self.answered = self.refused = 0

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        try:
            reply = self._provider.complete(request, on_delta)
        except WindowOverflow:
            self.refused += 1
            raise
        self.answered += 1
        return reply

    def dispose(self, handle: str, until: str = "") -> None:
        self._provider.dispose(handle, until)


def text_of(*seed: object) -> str:
    """A text of any length between the bounds, always the same for the same seed."""
    chosen = random.Random("/".join(map(str, seed)))
    return ". ".join(chosen.choices(_TEXTS, k=chosen.randint(*SENTENCES)))[:2_000]


def work(number: int) -> str:
    """Do the work of that number."""
    return text_of("result", number) if number >= 0 else " ".join(random.Random(number).choices(_TEXTS, k=16))


def measured(api: str, ratio: float, rounds: int, multiple: int = 1) -> Outcome:
    """Talk until so many rounds were answered, or turns were not."""
    declared_tokens = multiple * WINDOW_TOKENS
    agent = Agent(name="foreign", model="m", window_tokens=declared_tokens, tools=(work,), history_tool=False)
    with FakeProviderServer(window_tokens=WINDOW_TOKENS, token_ratio=ratio) as server:
        provider = APIS[api](server)
        watched = _Watched(provider)
        with Session(agent, {"default": watched}, session_id=SESSION) as session:
            before, unanswered, learned = 0, 0, _learned(session)
            for turn, answers in enumerate(_turns()):
                if watched.answered + unanswered >= rounds:
                    break
                server.record(SESSION, {"answers": answers})
                is_learned = _learned(session) != learned
                try:
                    session.send(text_of("message", turn), turn_id=f"t{turn}")
                except TurnFailed:
                    unanswered += 1
                if not is_learned:
                    before = watched.refused
            view = session.view()
        provider.close()
    return Outcome(
        api=api,
        ratio=ratio,
        multiple=multiple,
        round_count=watched.answered,
        rotation_count=view.epoch,
        refused_before=before,
        refused_after=watched.refused - before,
        unanswered_count=unanswered,
        calibration=view.calibration,
    )


def _learned(session: Session) -> tuple[float, LearnedWindow | None]:
    view = session.view()
    return view.calibration, view.window


def _turns() -> Iterator[Mapping[str, Any]]:
    """What the model says, turn by turn, by step; the same at a second attempt."""
    turn = 0
    while True:
        numbers = range(-OPENING_CALLS, 0) if turn == 0 else [turn] if turn % WORK_EVERY == 0 else []
        calls = [
            {"call_id": f"c{number}", "name": "work", "arguments": f'{{"number": {number}}}'} for number in numbers
        ]
        said: list[dict[str, Any]] = [{"calls": calls}] if calls else []
        said.append({"text": text_of("answer", turn)})
        keys = [f"{SESSION}/t{turn}/model:{number}" for number in range(len(said))]
        yield {key + attempt: reply for key, reply in zip(keys, said, strict=True) for attempt in ("", ":1")}
        turn += 1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tokenizers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each session")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    outcomes = [measured(api, ratio, options.rounds) for api in APIS for ratio in RATIOS]
    outcomes += [measured(api, 1.0, options.rounds, multiple) for api in APIS for multiple in MULTIPLES]
    if options.json:
        print_json(outcomes)
        return
    print(
        f"{'API':<16} {'ratio':>5} {'declared':>8} {'rounds':>7} {'rotations':>9} {'refused':>8} {'then':>5}"
        f" {'per 1,000':>9} {'calibration':>11}"
    )
    for one in outcomes:
        print(
            f"{one.api:<16} {one.ratio:>5} {one.multiple:>7}× {one.round_count:>7,} {one.rotation_count:>9}"
            f" {one.refused_before:>8} {one.refused_after:>5} {one.refused_per_thousand:>9.2f} {one.calibration:>11.3f}"
            f"{'' if one.holds else '  MISSED'}"
        )


if __name__ == "__main__":
    main()
