"""What `from sessionlib import …` offers, and what it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sessionlib


@pytest.mark.parametrize("name", sessionlib.__all__)
def test_every_listed_name_is_there(name: str) -> None:
    """Each comes from the module that defines it."""
    assert getattr(sessionlib, name).__module__.startswith("sessionlib.")


def test_every_listed_name_is_shown() -> None:
    """`dir` lists what is not loaded yet."""
    assert set(sessionlib.__all__) <= set(dir(sessionlib))


def test_unknown_name_is_refused() -> None:
    """As by any module."""
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        sessionlib.Sesion  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import sessionlib", ("sessionlib.agent", "pydantic", "httpx", "tiktoken", "redis", "celery")),
        ("from sessionlib import Agent, Session", ("httpx", "tiktoken", "redis", "celery")),
    ],
)
def test_import_stays_light(statement: str, absent: tuple[str, ...]) -> None:
    """The engine loads no HTTP client, no tokenizer and nothing of the workers before they are used."""
    program = f"{statement}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"
