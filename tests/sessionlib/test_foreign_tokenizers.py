"""Providers that count by another tokenizer than ours: learned from what they report, refused requests sent again."""

from __future__ import annotations

import pytest

from bench.apis import APIS
from bench.tokenizers import MULTIPLES, RATIOS, measured
from sessionlib.entries import Entry
from sessionlib.errors import WindowOverflow
from sessionlib.providers.refusals import refusal
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.talks import agent, history, provider_of

ROUNDS = 60


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_a_tokenizer_is_learned_from_its_first_report(api: str, ratio: float) -> None:
    """Whatever it makes of a text: no request is refused any more, and each turn was answered."""
    outcome = measured(api, ratio, ROUNDS)
    assert outcome.refused_after == 0
    assert outcome.unanswered_count == 0
    assert outcome.round_count >= ROUNDS
    assert outcome.refused_before == (1 if ratio > 1 else 0)
    assert ratio <= 1 or outcome.calibration == pytest.approx(ratio, rel=0.1)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("multiple", MULTIPLES)
def test_a_window_that_was_declared_too_large_is_learned_from_refusals(api: str, multiple: int) -> None:
    """From the first, if it names the window; from a few, if none does: each step takes a quarter at most."""
    outcome = measured(api, 1.0, ROUNDS, multiple)
    assert outcome.unanswered_count == 0
    assert outcome.round_count >= ROUNDS
    assert outcome.refused_before + outcome.refused_after <= (3 if api == "responses" else 1)


@pytest.mark.parametrize("name", APIS)
def test_a_first_request_that_is_refused_is_cut_and_sent_again(name: str) -> None:
    """A window as large as thought, and four tokens for each of ours: one refusal, one answer, the whole history."""
    size_tokens = 8_000

    def look(path: str) -> str:
        """Read a file."""
        return f"{path} holds the build of module alpha. " * 60

    calls = [{"call_id": f"c{n}", "name": "look", "arguments": f'{{"path": "{n}"}}'} for n in range(8)]
    key = "dense/t/model"
    with FakeProviderServer(window_tokens=size_tokens, token_ratio=4.0) as server:
        server.record("dense", {"answers": {f"{key}:0": {"calls": calls}, f"{key}:1:1": {"text": "All eight."}}})
        provider = provider_of(server, name)
        made = agent(tools=(look,), window_tokens=size_tokens)
        with Session(made, {"default": provider}, session_id="dense") as session:
            assert session.send("Read all", turn_id="t").text == "All eight."
            assert len(history(session)) == 18
            assert history(session)[-1] == Entry.assistant("All eight.")
        assert server.report(["dense"])["sessions"]["dense"]["refused"] == 1
        provider.close()


@pytest.mark.parametrize(
    ("message", "limit_tokens", "sent_tokens"),
    [
        ("This model's maximum context length is 8,192 tokens. However, you requested 9,500 tokens", 8_192, 9_500),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000),
        ("the request exceeds the available context size (4096 tokens)", 4_096, None),
        ("maximum context length is 4096 tokens (request 20261130)", 4_096, None),
        ("Your input exceeds the context window of this model. Please adjust your input.", None, None),
    ],
)
def test_what_was_sent_is_read_from_a_refusal(message: str, limit_tokens: int | None, sent_tokens: int | None) -> None:
    """Beside the window: in the provider's own tokens, if it says so."""
    error = refusal(400, {"error": {"message": message}}, {}, lambda _: False)
    assert isinstance(error, WindowOverflow)
    assert (error.limit_tokens, error.sent_tokens) == (limit_tokens, sent_tokens)
