"""What operators see: codes, ids and figures."""

from __future__ import annotations

import logging

import pytest

from sessionlib.errors import LeaseLost
from workers.app import make_app
from workers.logs import FieldsFormatter
from workers.settings import Settings
from workers.tracing import TaskFailed, send_phase, shown

SECRET = "the user's own words"


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"session_id": "customer-42", "epoch": 3}, "session_id=customer-42 epoch=3"),
        ({"fill": 0.123456789, "is_late": True, "reason": None}, "fill=0.123457 is_late=True reason=None"),
        ({"reason": SECRET}, "reason=(20 characters)"),
        ({"reason": ""}, "reason=(0 characters)"),
    ],
)
def test_only_ids_and_figures_are_shown(figures: dict[str, object], text: str) -> None:
    """A text that is no id is shown by its length."""
    assert shown(figures) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError(SECRET), "ValueError"), (LeaseLost(SECRET, "turn"), "lease_lost")]
)
def test_error_of_a_task_is_a_code_and_a_place(error: Exception, code: str) -> None:
    """The text of an error may quote content."""
    app = make_app(Settings(store_url="unix:///nowhere"))

    @app.task(name="failing")
    def failing() -> None:
        raise error

    with pytest.raises(TaskFailed, match=rf"^{code} at test_tracing\.py:\d+$") as failure:
        failing()
    assert failure.value.__suppress_context__


def test_phase_is_harmless_while_the_broker_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """What a task does matters more than that it is seen."""
    app = make_app(Settings(store_url="unix:///nowhere"))

    @app.task(name="phased", bind=True)
    def phased(self: object) -> str:
        send_phase(self, "adopting", epoch=1)
        return "done"

    assert phased() == "done"
    assert "phase not sent" in caplog.text


def test_log_line_shows_its_fields_and_no_task_data() -> None:
    """`extra` is printed; what Celery attaches of arguments and results is not."""
    record = logging.makeLogRecord(
        {"msg": "session rotated", "epoch": 3, "session_id": "a", "data": {"args": SECRET}, "levelname": "INFO"}
    )
    line = FieldsFormatter().format(record)
    assert line.endswith("session rotated epoch=3 session_id=a")
