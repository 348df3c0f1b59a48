"""`sessionctl handoff`, `journal`, `open` and `summarize`: what they print, and how they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionlib.agent import Agent, Journal
from sessionlib.summaries.purposes import HEADINGS, Purpose
from sessionlib.workloads import SummaryWorkload
from tests.waiting import wait_for
from tests.workers.commands import Desk

EXTRACTIVE = SummaryWorkload(summarizer="extractive")
WRITER = Agent(name="writer", window_tokens=8_000, handoff=EXTRACTIVE, journal=Journal(digest=EXTRACTIVE))
BY_ECHO = Agent(name="echo", window_tokens=8_000)
CHAT = [
    {"role": "user", "content": "Deploy build 4711 to eu-west-1."},
    {"role": "assistant", "content": "Build 4711 was deployed to eu-west-1 in 12.5 s."},
]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(agents=(WRITER, BY_ECHO))
    made.run("send", "s", "The pump P-17 is blue.", "--agent", "writer")
    yield made
    made.store.close_connections()


@pytest.fixture
def chat(tmp_path: Path) -> str:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(CHAT))
    return str(file)


def test_handoff_prints_the_account(desk: Desk) -> None:
    """The text on stdout under its headings, its id on stderr."""
    result = desk.run("handoff", "s", "paint it red", "--id", "h1")
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("## ")] == [
        f"## {heading}" for heading in HEADINGS[Purpose.HANDOFF]
    ]
    assert "P-17" in result.stdout
    assert result.stderr == "handoff h1 requested\n"


def test_handoff_prints_one_document(desk: Desk) -> None:
    """With what it covers and what it cost."""
    document = desk.json("handoff", "s", "paint it red", "--id", "h1")
    assert (document["handoff_id"], document["first_seq"], document["last_seq"]) == ("h1", 1, 2)
    assert document["unsupported_values"] == []


def test_handoff_that_was_made_is_printed_again(desk: Desk) -> None:
    """By its id alone; nothing is made again."""
    first = desk.json("handoff", "s", "paint it red", "--id", "h1")
    assert desk.json("handoff", "s", "--id", "h1") == first


def test_handoff_opens_the_receiving_session(desk: Desk) -> None:
    """`--to` with `--agent`: the new session begins with it."""
    assert desk.json("handoff", "s", "paint it red", "--to", "painter", "--agent", "echo")["opened"] == "painter"
    assert "P-17" in desk.run("show", "painter", "--text").stdout


def test_handoff_opens_no_session_that_began_otherwise(desk: Desk) -> None:
    """Asked again, the same handoff finds its session; another one is refused instead of being ignored."""
    receiver = ("--to", "painter", "--agent", "echo")
    for _ in range(2):
        assert desk.json("handoff", "s", "paint it red", "--id", "h1", *receiver)["opened"] == "painter"
    refused = desk.run("handoff", "s", "paint it green", "--id", "h2", *receiver)
    assert refused.exit_code == 2
    assert "began with something else" in refused.stderr


def test_handoff_of_a_model_that_answers_nonsense_fails(desk: Desk) -> None:
    """The provider is named as who has to act; the exit code is 1."""
    desk.run("send", "e", "hello", "--agent", "echo")
    result = desk.run("handoff", "e", "paint it red", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["fault"]) == ("summary_validation", "provider")


def test_handoff_that_is_not_waited_for_names_its_id(desk: Desk) -> None:
    """It goes on without its caller."""
    desk.dispatch.is_working = False
    assert desk.json("handoff", "s", "paint it red", "--id", "h1", "--no-wait") == {
        "handoff_id": "h1",
        "state": "requested",
    }
    result = desk.run("handoff", "s", "--id", "h1", "--timeout", "0.05")
    assert result.exit_code == 4
    assert "handoff h1 was not done" in result.stderr
    assert "sessionctl handoff SESSION --id ID" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("handoff", "s"),
        ("handoff", "s", " "),
        ("handoff", "s", "--id", "h1", "--guidance", "be kind"),
        ("handoff", "s", "paint", "--to", "painter"),
        ("handoff", "s", "paint", "--to", "painter", "--agent", "nobody"),
        ("handoff", "s", "paint", "--to", "painter", "--agent", "echo", "--no-wait"),
        ("handoff", "s", "paint", "--to", "s", "--agent", "echo"),
        ("handoff", "s", "paint", "--timeout", "-1"),
        ("handoff", "nowhere", "paint"),
        ("handoff", "s", "--id", "unknown"),
        ("journal", "nowhere"),
        ("journal", "s", "--limit", "0"),
        ("open", "t", "--agent", "nobody"),
        ("open", "t", "--agent", "writer", "--from", "nowhere"),
        ("open", "t", "--agent", "writer", "--last-turns", "2"),
        ("open", "t", "--agent", "writer", "--handoff", "h1"),
    ],
)
def test_bad_input_ends_with_2(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Before anything was changed."""
    before = sorted(desk.sessions), desk.store.audit("s")
    assert desk.run(*arguments).exit_code == 2
    assert (sorted(desk.sessions), desk.store.audit("s")) == before


def test_journal_is_empty_at_first_and_says_how_it_fills(desk: Desk) -> None:
    """No digest is no error."""
    assert "--digest makes one" in desk.run("journal", "s").stdout
    assert desk.json("journal", "s") == {"session_id": "s", "digests": []}


def test_journal_makes_a_digest_and_prints_it(desk: Desk) -> None:
    """Once: then nothing is left to digest."""
    result = desk.run("journal", "s", "--digest")
    assert result.exit_code == 0, result.stderr
    assert "## Done" in result.stdout
    assert "digest d1 requested" in result.stderr
    assert "nothing is finished" in desk.run("journal", "s", "--digest").stderr
    (entry,) = desk.json("journal", "s")["digests"]
    assert (entry["digest_id"], entry["is_published"]) == ("d1", True)


def test_journal_says_why_a_digest_failed(desk: Desk) -> None:
    """The exit code is 1; what is there is printed all the same."""
    desk.run("send", "e", "hello", "--agent", "echo")
    result = desk.run("journal", "e", "--digest")
    assert result.exit_code == 1
    assert "summary_validation" in result.stderr


def test_journal_notices_that_its_session_was_purged(desk: Desk) -> None:
    """Nobody will ever tell how its digest ended: an error, though no timeout was given."""
    desk.dispatch.is_working = False

    def purge() -> None:
        wait_for(lambda: desk.store.audit("s")[-1].kind == "digest_requested", what="the request")
        desk.sessions.get("s").purge()

    purging = threading.Thread(target=purge)
    purging.start()
    result = desk.run("journal", "s", "--digest")
    purging.join()
    assert result.exit_code == 2
    assert "there is no session s" in result.stderr


def test_open_waits_for_a_handoff_no_longer_than_it_is_told(desk: Desk) -> None:
    """The session is not opened; the handoff goes on."""
    desk.dispatch.is_working = False
    desk.run("handoff", "s", "paint", "--id", "h1", "--no-wait")
    opening = desk.run("open", "t", "--agent", "writer", "--from", "s", "--handoff", "h1", "--timeout", "0.05")
    assert opening.exit_code == 4
    assert "t" not in desk.sessions


def test_open_begins_with_what_others_left(desk: Desk) -> None:
    """Nothing, a conversation, its last turns, a handoff, digests."""
    desk.run("send", "s", "Second.")
    desk.run("handoff", "s", "paint", "--id", "h1")
    desk.run("journal", "s", "--digest")

    def entry_count(session_id: str, *arguments: str) -> int:
        return int(desk.json("open", session_id, "--agent", "writer", *arguments)["next_seq"]) - 1

    assert entry_count("a") == 0
    assert entry_count("b", "--from", "s") == 4
    assert entry_count("c", "--from", "s", "--last-turns", "1") == 2
    assert entry_count("d", "--from", "s", "--handoff", "h1") == 1
    assert entry_count("e2", "--recent-digests") == 1
    assert entry_count("b", "--from", "s") == 4


def test_summarize_offline_needs_nobody(desk: Desk, chat: str) -> None:
    """A valid digest on stdout; what it was made from on stderr."""
    result = desk.run("summarize", chat, "--purpose", "digest", "--offline")
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("## ")] == [
        f"## {heading}" for heading in HEADINGS[Purpose.DIGEST]
    ]
    assert "0 values that are not in the evidence" in result.stderr


def test_summarize_shows_the_exact_request(desk: Desk, chat: str) -> None:
    """Instructions, and one message of labelled evidence; nothing is sent."""
    document = desk.json("summarize", chat, "--purpose", "handoff", "--task", "roll back", "--show-request")
    (message,) = document["messages"]
    assert "roll back" in message
    assert "provenance: user" in message
    assert "## Scope" in document["instructions"]
    assert len(desk.provider.requests) == 1


def test_summarize_shows_what_a_provider_would_send(desk: Desk, chat: str, tmp_path: Path) -> None:
    """With an agent of a catalog: its provider's own body, effort included."""
    agents = tmp_path / "agents.toml"
    agents.write_text(
        """
        [providers.openai]
        kind = "chat_completions"
        base_url = "http://localhost:9/v1"
        [agents.coder]
        provider = "openai"
        model = "gpt-5"
        [agents.coder.journal.digest]
        model = "gpt-5-mini"
        effort = "low"
        """
    )
    document = desk.json(
        "summarize", chat, "--purpose", "digest", "--agents", str(agents), "--agent", "coder", "--show-request"
    )
    assert (document["model"], document["reasoning_effort"]) == ("gpt-5-mini", "low")
    assert [message["role"] for message in document["messages"]] == ["system", "user"]


def test_summarize_says_what_is_wrong_with_an_answer(desk: Desk, chat: str, tmp_path: Path) -> None:
    """By its class; the exit code is 1."""
    agents = tmp_path / "agents.toml"
    agents.write_text('[providers.default]\nkind = "scripted"\nreply = "no digest"\n')
    result = desk.run("summarize", chat, "--purpose", "digest", "--agents", str(agents), "--provider", "default")
    assert result.exit_code == 1
    assert "no summary (validation)" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--purpose", "digest"),
        ("--purpose", "handoff", "--offline"),
        ("--purpose", "digest", "--offline", "--task", "x"),
        ("--purpose", "digest", "--provider", "nobody"),
        ("--purpose", "digest", "--agent", "nobody"),
        ("--purpose", "poem", "--offline"),
        ("--purpose", "digest", "--offline", "--effort", "low"),
        ("--purpose", "digest", "--offline", "--window", "4000"),
        ("--purpose", "digest", "--agent", "a", "--provider", "default"),
    ],
)
def test_summarize_refuses_bad_input(desk: Desk, chat: str, options: tuple[str, ...]) -> None:
    """With exit code 2, before anybody is asked."""
    assert desk.run("summarize", chat, *options).exit_code == 2


def test_summarize_refuses_a_file_that_is_no_recording(desk: Desk, tmp_path: Path) -> None:
    """The file is named."""
    file = tmp_path / "x.json"
    file.write_text("{}")
    assert desk.run("summarize", str(file), "--purpose", "digest", "--offline").exit_code == 2
    assert desk.run("summarize", str(tmp_path / "y.json"), "--purpose", "digest", "--offline").exit_code == 2
