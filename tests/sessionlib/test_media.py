"""Media in text: named with kind, type and size, never embedded."""

from __future__ import annotations

import base64
import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.summaries.media import LEAST_RUN_CHARACTERS, name_media
from tests.sessionlib.hostile import hostile_texts

IMAGE = b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(2_992)
ENCODED = base64.b64encode(IMAGE).decode()
NAME = "[media: image; image/png; 3,000 bytes]"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (f"data:image/png;base64,{ENCODED}", NAME),
        (f"data:image/png;charset=utf-8;base64,{ENCODED}", NAME),
        (f"data:image/png;name=a.png;base64,{ENCODED.replace('/', '%2F').replace('+', '%2B')}", NAME),
        ("data:application/pdf;base64,JVBERi0=", "[media: file; application/pdf; 5 bytes]"),
        ("data:audio/wav;base64,UklGRg", "[media: audio; audio/wav; 4 bytes]"),
        ("data:video/mp4;base64,AAAA_-8=", "[media: video; video/mp4; 5 bytes]"),
        ("data:image/svg+xml,%3Csvg%3E", "[media: image; image/svg+xml; 5 bytes]"),
        ("data:image/svg+xml;utf8,abc", "[media: image; image/svg+xml; 3 bytes]"),
    ],
)
def test_data_urls_are_named(url: str, name: str) -> None:
    """With their type and the number of bytes that they decode to; what surrounds them stays."""
    assert name_media(f'<img src="{url}"> and ({url})') == f'<img src="{name}"> and ({name})'


def test_a_data_url_with_escaped_slashes_is_named() -> None:
    """As some encoders of JSON write it."""
    assert name_media(f'"{f"data:image/png;base64,{ENCODED}".replace("/", chr(92) + "/")}"') == f'"{NAME}"'


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
        {"type": "image", "data": ENCODED, "mimeType": "image/png"},
        {"inline_data": {"mime_type": "image/png", "data": ENCODED}},
        {"type": "resource", "resource": {"uri": "file:///a.png", "mimeType": "image/png", "blob": ENCODED}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}"},
        {"type": "file", "file": {"filename": "a.png", "file_data": f"data:image/png;base64,{ENCODED}"}},
    ],
)
def test_content_parts_name_their_bytes(part: dict[str, object]) -> None:
    """The shapes of Anthropic, MCP, Gemini and OpenAI; around the bytes they stay as they are."""
    text = json.dumps([{"type": "text", "text": "the plot:"}, part])
    assert name_media(text) == text.replace(f"data:image/png;base64,{ENCODED}", NAME).replace(ENCODED, NAME)
    assert ENCODED[:40] not in name_media(text)


def test_small_parts_are_named_too() -> None:
    """A part that states a media type holds bytes, however few; a bare format counts as its type."""
    assert (
        name_media('{"data": "AAAA", "format": "wav"}')
        == '{"data": "[media: audio; audio/wav; 3 bytes]", "format": "wav"}'
    )
    assert name_media('{"media_type":"image/jpeg","data":"\\/9j\\/"}') == (
        '{"media_type":"image/jpeg","data":"[media: image; image/jpeg; 3 bytes]"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"data": "AAAA", "format": "table"}',
        '{"data": "AAAA", "mimeType": "text/plain"}',
        '{"data": "AAAA"}',
        '{"mimeType": "image/png", "data": "not base64!"}',
        "metadata: image/png, data:yes/no,maybe and data: text/plain",
        "a" * 5_000,
        "0123456789abcdef" * 100,
        "=" * 5_000 + "-" * 5_000,
        "/usr/lib/python3/dist-packages/" * 50,
        ENCODED[: LEAST_RUN_CHARACTERS - 1],
        f"header.{ENCODED}.signature",
    ],
)
def test_what_is_no_media_stays(text: str) -> None:
    """Tables, prose, drawn lines, hashes, paths, keys and the segments of tokens."""
    assert name_media(text) == text


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (IMAGE, "image; image/png"),
        (b"\xff\xd8\xff\xe0" + IMAGE, "image; image/jpeg"),
        (b"GIF89a" + IMAGE, "image; image/gif"),
        (b"%PDF-1.7" + IMAGE, "file; application/pdf"),
        (b"PK\x03\x04\x14" + IMAGE, "file; application/zip"),
        (IMAGE[8:], "file; application/octet-stream"),
    ],
)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.encodebytes, base64.urlsafe_b64encode])
def test_long_runs_of_base64_are_named(data: bytes, mime_type: str, encode: object) -> None:
    """In one line or wrapped, by what the first bytes say that they are."""
    encoded = encode(data).decode().rstrip("\n")  # type: ignore[operator]
    name = f"[media: {mime_type}; {len(data):,} bytes]"
    assert name_media(f"begin {encoded}\nend of it") == f"begin {name}\nend of it"
    assert json.loads(name_media(json.dumps({"blob": encoded}))) == {"blob": name}


def test_the_words_after_wrapped_base64_stay() -> None:
    """Only a last line that is a line by itself belongs to it."""
    encoded = base64.encodebytes(IMAGE[: 57 * 20]).decode()
    assert name_media(f"{encoded}Received it all.") == "[media: image; image/png; 1,140 bytes]Received it all."


@given(hostile_texts)
def test_other_texts_are_left_alone(text: str) -> None:
    """What holds no media is word for word the same."""
    assert name_media(text) == text


@given(st.binary(min_size=600), hostile_texts)
def test_naming_is_done_once(data: bytes, text: str) -> None:
    """Names are no media."""
    named = name_media(f"{text} data:image/png;base64,{base64.b64encode(data).decode()} {text}")
    assert name_media(named) == named
    assert f"[media: image; image/png; {len(data):,} bytes]" in named


SIZE = 1_000_000


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "data:",
        "data:image/",
        "data:image/png",
        ";a=b",
        "{",
        '{"data":"',
        '"data" :',
        "\\n",
        "A1b" * 23 + "\n",
        "%2",
    ],
)
def test_hostile_repetitions_take_linear_time(unit: str) -> None:
    """A megabyte of anything takes well under the minutes that a quadratic search would."""
    text = "data:image/png" + unit * (SIZE // len(unit))
    begun = time.process_time()
    name_media(text)
    assert time.process_time() - begun < 5
