"""Where APIs are and the keys to them: what cannot work is refused when it is read, and no key is ever shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from sessionlib.catalog import load_catalog
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, ProviderError, ProviderUnavailable
from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import Provider
from sessionlib.providers.responses import Responses
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.asking import KEY, answering, request_of

SECRET = "SECRET-4711-KEY"
EACH = pytest.mark.parametrize("kind", [ChatCompletions, Responses, Anthropic])
KINDS = ("chat_completions", "responses", "anthropic")

UNSENDABLE = [f"sk-{SECRET}\nsecond", f"sk-{SECRET}\x00", f"sk-\t{SECRET}", f"sk-{SECRET}Ä", f"sk-{SECRET}\u201d"]
BAD_URLS = [
    f"https://h.test/v1?key={SECRET}",
    f"https://h.test/v1#{SECRET}",
    "https://h.test/v1?",
    f"https://{SECRET}@h.test/v1",
    f"https://user:{SECRET}@h.test/v1",
    f"https://user:{SECRET}?@h.test/v1",
    f"https://h.test/ {SECRET}",
    f"https://h.test/\n{SECRET}",
    f"http://[{SECRET}",
    f"http://h.test:{SECRET}",
    f"ftp://h.test/{SECRET}",
    SECRET,
    "",
]


def load(directory: Path, provider: str, key: str = KEY) -> Provider:
    """The provider that an agents file describes by these lines."""
    path = directory / "agents.toml"
    path.write_text(f"[providers.p]\n{provider}\n", encoding="utf-8")
    return load_catalog(str(path), {"MY_KEY": key}).provider("p")


def refused(call: Callable[[], Any]) -> str:
    """What is said of what is refused, with all that led to it."""
    with pytest.raises(InvalidInput) as caught:
        call()
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True))
    return str(caught.value)


@pytest.mark.parametrize("key", UNSENDABLE)
@pytest.mark.parametrize("name", KINDS)
def test_a_key_that_no_header_can_hold_is_refused_by_the_name_of_its_source(
    tmp_path: Path, name: str, key: str
) -> None:
    """From a variable, from a file, and handed over: when it is read, and without it."""
    table = f'kind = "{name}"\nbase_url = "http://m.test"\n'
    said = refused(lambda: load(tmp_path, f'{table}api_key_env = "MY_KEY"', key))
    assert "providers.p.api_key_env" in said
    assert "MY_KEY" in said
    (tmp_path / "key.txt").write_text(key, encoding="utf-8")
    said = refused(lambda: load(tmp_path, f'{table}api_key_file = "key.txt"'))
    assert "providers.p.api_key_file" in said
    assert "key.txt" in said


@EACH
@pytest.mark.parametrize("key", [*UNSENDABLE, f" {SECRET}", f"{SECRET}\n"])
def test_a_key_that_is_handed_over_is_looked_at(kind: type[ApiProvider], key: str) -> None:
    """Before the first request has it."""
    assert "api_key" in refused(lambda: kind("http://m.test", SecretStr(key)))


@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_an_empty_key_file_is_refused(tmp_path: Path, content: str) -> None:
    """As a blank variable is: a provider without its key would only say that nobody is there."""
    (tmp_path / "key.txt").write_text(content)
    table = 'kind = "anthropic"\nbase_url = "http://m.test"\napi_key_file = "key.txt"'
    assert "key.txt" in refused(lambda: load(tmp_path, table))


def test_a_key_from_two_places_is_refused(tmp_path: Path) -> None:
    """Whichever were taken, it might be the wrong one."""
    table = 'kind = "responses"\nbase_url = "http://m.test"\napi_key_file = "key.txt"\napi_key_env = "MY_KEY"'
    said = refused(lambda: load(tmp_path, table))
    assert "api_key_env" in said
    assert "api_key_file" in said


def test_a_key_in_place_of_its_variables_name_is_not_shown(tmp_path: Path) -> None:
    """People do that."""
    table = f'kind = "responses"\nbase_url = "http://m.test"\napi_key_env = "sk-{SECRET}"'
    assert "api_key_env" in refused(lambda: load(tmp_path, table))


@pytest.mark.parametrize("url", BAD_URLS)
@pytest.mark.parametrize("name", KINDS)
def test_a_bad_address_is_refused_when_the_file_is_read(tmp_path: Path, name: str, url: str) -> None:
    """Named by its field; a query or a user's name in it may be a key."""
    path = tmp_path / "agents.toml"
    written = url.replace("\n", "\\n")
    path.write_text(f'[providers.p]\nkind = "{name}"\nbase_url = "{written}"\n')
    assert f"providers.p.{name}.base_url" in refused(lambda: load_catalog(str(path)))


@EACH
@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_address_is_refused_when_a_provider_is_made(kind: type[ApiProvider], url: str) -> None:
    """In the same words."""
    assert refused(lambda: kind(url)).startswith("base_url must")


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "https://h.test", "http://[::1]:9/v1/", "https://h.test/@x"]
)
def test_an_address_that_works_is_kept(url: str) -> None:
    """Without the slashes at its end."""
    assert repr(ChatCompletions(url)) == f"ChatCompletions({url.rstrip('/')!r})"


@EACH
@pytest.mark.parametrize("field", ["code", "type", "message", "status"])
@pytest.mark.parametrize("said", [KEY, f"bad_{KEY}", KEY[:14], f"{KEY[3:]}_bad", "PRIVATE-MARKER-4711"])
@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_key_or_content_that_a_provider_repeats_is_withheld(
    kind: type[ApiProvider], status: int, said: str, field: str
) -> None:
    """Wherever it repeats it: as code and type, too."""
    answer = {"output": [], field: said} if field == "status" else {"error": {"message": "no such thing", field: said}}
    provider, _ = answering(kind, status, json=answer)
    with pytest.raises(ProviderError) as caught:
        provider.complete(request_of(Entry.user("It holds PRIVATE-MARKER-4711.")))
    assert said not in str(caught.value)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["k-1", "short-key"])
def test_a_short_key_is_withheld(key: str) -> None:
    """Shorter than what counts as a repetition of anything else."""
    answer = {"error": {"message": f"the key {key} is wrong", "code": key, "type": f"no.{key}"}}
    provider = ChatCompletions(
        "http://m.test",
        SecretStr(key),
        build_client=lambda: httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(401, json=answer))),
    )
    with pytest.raises(ProviderError) as caught:
        provider.complete(request_of())
    assert str(caught.value) == "HTTP 401"


def test_a_known_code_is_shown_whatever_the_request_is_about() -> None:
    """It is the vendor's word, and what helps most."""
    answer = {"error": {"message": "later", "code": "rate_limit_exceeded", "type": "rate_limit_error"}}
    provider, _ = answering(ChatCompletions, 429, json=answer)
    with pytest.raises(ProviderUnavailable) as caught:
        provider.complete(request_of(Entry.user("What does rate_limit_exceeded mean? And rate_limit_error?")))
    assert str(caught.value) == "HTTP 429, rate_limit_exceeded, rate_limit_error: later"


@pytest.mark.parametrize(("name", "is_asked"), [("chat_completions", True), ("responses", False)])
def test_a_file_says_whether_requests_have_a_cache_key(tmp_path: Path, name: str, is_asked: bool) -> None:
    """Each the other way round than its adapter has it."""
    table = f'kind = "{name}"\nbase_url = "http://m.test"\n'
    provider = load(tmp_path, f"{table}prompt_cache_key = {str(is_asked).lower()}")
    assert isinstance(provider, ApiProvider)
    assert (b"prompt_cache_key" in provider.body(request_of())) is is_asked
    plain = load(tmp_path, table)
    assert isinstance(plain, ApiProvider)
    assert (b"prompt_cache_key" in plain.body(request_of())) is not is_asked


def test_a_cache_key_where_there_is_none_is_refused(tmp_path: Path) -> None:
    """Anthropic's requests have marks instead."""
    table = 'kind = "anthropic"\nbase_url = "http://m.test"\nprompt_cache_key = true'
    assert "prompt_cache_key" in refused(lambda: load(tmp_path, table))


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", '"long"'])
def test_a_silence_that_cannot_be_is_refused(tmp_path: Path, seconds: str) -> None:
    """By the name of its field."""
    table = f'kind = "anthropic"\nbase_url = "http://m.test"\nsilence_seconds = {seconds}'
    assert "silence_seconds" in refused(lambda: load(tmp_path, table))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_says_how_long_a_stream_may_be_silent(tmp_path: Path, name: str) -> None:
    """Long before the call's deadline the call is given up."""
    with FakeProviderServer() as server:
        server.fail("stall")
        base_url = server.url if name == "anthropic" else server.base_url
        provider = load(tmp_path, f'kind = "{name}"\nbase_url = "{base_url}"\nsilence_seconds = 0.3')
        try:
            with pytest.raises(ProviderUnavailable):
                provider.complete(request_of(Entry.user("Hello " * 20)), lambda _: None)
        finally:
            server.release()
