"""A turn as `sessionctl show --turn` prints it."""

from __future__ import annotations

from sessionlib.stores.contract import Answer, TurnState, TurnView
from workers.cli.show import turn_text


def shown(answer: Answer) -> str:
    view = TurnView(turn_id="t1", state=TurnState.ANSWERED, answer=answer, submitted_at=0.0, finished_at=2.5)
    return turn_text(view)


def test_a_turn_says_what_its_prompts_cost() -> None:
    """Tokens of all its rounds, what the provider's cache gave and took, and the largest single request."""
    answer = Answer(
        text="done",
        prompt_tokens=12_000,
        cached_tokens=9_000,
        written_tokens=1_500,
        completion_tokens=80,
        max_request_tokens=7_000,
    )
    expected = (
        "12,000 prompt tokens (9,000 from the provider's cache, 1,500 into it), 80 answered; largest request 7,000"
    )
    assert expected in shown(answer).splitlines()


def test_a_recovered_turn_says_so() -> None:
    """The provider had lost what it held; history was not."""
    assert "recovered: the provider had forgotten" in shown(Answer(text="done", is_recovered=True))
    assert "recovered" not in shown(Answer(text="done"))
