"""Media: what bytes and URLs are taken for, what is refused, and what they cost."""

from __future__ import annotations

import base64
import time
import zlib

import pytest

from sessionlib.attachments import (
    INFLATED_LIMIT_BYTES,
    INFLATED_STEP_BYTES,
    media_from_bytes,
    media_from_url,
    page_count,
)
from sessionlib.codec import decode, encode
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.image_tokens import UNKNOWN_RULE, image_rule
from sessionlib.media import MEDIA_LIMIT_BYTES, Media, MediaKind, require_media
from sessionlib.media_tokens import FRAME_TOKENS, media_tokens, page_tokens
from sessionlib.summaries.evidence import project
from sessionlib.summaries.media import name_media
from tests.sessionlib.pictures import pdf, png

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x11\x08\x01\xe0\x02\x80\x03"


@pytest.mark.parametrize(
    ("data", "name", "kind", "media_type"),
    [
        (png(), "", MediaKind.IMAGE, "image/png"),
        (png(), "notes.txt", MediaKind.IMAGE, "image/png"),
        (JPEG, "a", MediaKind.IMAGE, "image/jpeg"),
        (b"GIF89a\x01\x00\x01\x00", "", MediaKind.IMAGE, "image/gif"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "", MediaKind.IMAGE, "image/webp"),
        (pdf(), "x.png", MediaKind.FILE, "application/pdf"),
        (b"a;b\n1;2\n", "table.csv", MediaKind.FILE, "text/csv"),
        ("größer".encode(), "", MediaKind.FILE, "text/plain"),
        (b"\x00\x01\x02", "", MediaKind.FILE, "application/octet-stream"),
        (b"<svg/>", "x.svg", MediaKind.FILE, "image/svg+xml"),
        (b"no picture", "x.png", MediaKind.FILE, "application/octet-stream"),
    ],
)
def test_content_tells_more_than_a_name(data: bytes, name: str, kind: MediaKind, media_type: str) -> None:
    """The type is that of the bytes; the name helps where they tell nothing."""
    media = media_from_bytes(data, name)
    assert (media.kind, media.media_type, media.name) == (kind, media_type, name)
    assert base64.b64decode(media.data) == data
    assert media.byte_count == len(data)


def test_the_size_of_an_image_is_read() -> None:
    """Width and height decide what it costs; a damaged one has none."""
    assert (media_from_bytes(png(1024, 300)).width, media_from_bytes(png(1024, 300)).height) == (1024, 300)
    assert (media_from_bytes(JPEG).width, media_from_bytes(JPEG).height) == (640, 480)
    assert media_from_bytes(png()[:18]).width == 0


@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_pages_of_a_pdf_are_read(is_compressed: bool) -> None:
    """Also where the page tree is compressed."""
    assert media_from_bytes(pdf(12, is_compressed=is_compressed)).page_count == 12


@pytest.mark.parametrize("data", [b"%PDF-1.7 nothing", b"%PDF-1.7 /ObjStm >> stream\nno deflate"])
def test_a_pdf_may_not_tell_its_pages(data: bytes) -> None:
    """It is counted by its bytes then."""
    assert page_count(data) == 0


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"<< /Type /Pages /Count 3 >> << /Count 5 /Type/Pages >> << /Type /Pages /Count 2 >>", 5),
        (b"<< /Count 4 /Count 9 /Type /Pages >>", 4),
        (b"<< /Type /Pages /Kids [1 0 R] /Counts 7 /Count 6 /Count 8 >>", 6),
        (b"<< /Type /Pages >> /Count 7 << /Count 8 >> /Type /Pages", 0),
        (b"<< /Type /Pages /Type /Page >> << /Type/Page >> << /Type /PageLabel >>", 2),
    ],
)
def test_a_page_tree_states_its_pages_in_one_dictionary(data: bytes, count: int) -> None:
    """The root has the most; without any that says so, the pages themselves are counted."""
    assert page_count(data) == count


def object_stream(data: bytes) -> bytes:
    """*data* as the compressed objects of a PDF."""
    return b"<< /Type /ObjStm /Filter /FlateDecode >>\nstream\r\n" + data + b"\nendstream\n"


PAGES = b"<< /Type /Page >>" * 6
DAMAGED = zlib.compress(PAGES)[:-1] + b"\0"


def test_the_pages_of_all_compressed_objects_are_counted() -> None:
    """Also of the last where the file was cut; a damaged one has none."""
    cut = object_stream(zlib.compress(PAGES)).removesuffix(b"endstream\n")
    parts = (pdf(2), object_stream(zlib.compress(PAGES)), object_stream(DAMAGED), b"<< /Type /Page >>", cut)
    assert page_count(b"".join(parts)) == 13


@pytest.mark.parametrize(
    ("stream", "most"),
    [
        (zlib.compress(bytes(10_000_000)), INFLATED_LIMIT_BYTES // 10_000_000),
        (zlib.compress(bytes(INFLATED_LIMIT_BYTES)), 1),
        (DAMAGED, INFLATED_LIMIT_BYTES // INFLATED_STEP_BYTES),
    ],
    ids=["many", "one", "damaged"],
)
def test_a_pdf_that_inflates_to_too_much_does_not_tell_its_pages(stream: bytes, most: int) -> None:
    """It is counted by its bytes: pages may be among what is not looked at."""
    assert page_count(pdf(7) + object_stream(stream) * most) == 7
    assert page_count(pdf(7) + object_stream(stream) * (most + 1)) == 0


ENDLESS = [
    *(b"/Type/Pages ", b"/Type/Page ", b"/Count 1 ", b">/Count 1", b"/Type/Pages/Count 1", b"/Type", b"/Type ", b"/"),
    *(b"/ObjStm ", b"/ObjStm>", b"/ObjStm>>", b"/ObjStm>>stream\n", b"/Count ", b" ", b">", b"/Type/Pages /"),
    *(object_stream(b"x"), object_stream(zlib.compress(b"a")), object_stream(zlib.compress(bytes(5_000_000)))),
]


@pytest.mark.parametrize("unit", ENDLESS)
def test_pages_are_counted_in_time_as_the_file_is_long(unit: bytes) -> None:
    """Nothing in a caller's file is tried again and again, and no more than so much inflated."""
    data = unit * (1_000_000 // len(unit))
    begun = time.process_time()
    page_count(data)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("url", "media_type", "kind", "name"),
    [
        ("https://example.org/a/map.png?size=2", "image/png", MediaKind.IMAGE, "map.png"),
        ("https://example.org/report.pdf", "application/pdf", MediaKind.FILE, "report.pdf"),
        ("http://example.org/photos/7", "image/jpeg", MediaKind.IMAGE, "7"),
    ],
)
def test_a_url_tells_its_type(url: str, media_type: str, kind: MediaKind, name: str) -> None:
    """By its path."""
    media = media_from_url(url)
    assert (media.url, media.media_type, media.kind, media.name) == (url, media_type, kind, name)


@pytest.mark.parametrize("url", ["http://[", "http://[::1", "https://a]/b.png", "https://\u2100.example/b.png"])
def test_a_url_without_a_readable_host_is_refused(url: str) -> None:
    """By its field and rule, as any other value."""
    with pytest.raises(InvalidInput) as caught:
        media_from_url(url)
    assert (caught.value.field, caught.value.rule) == ("url", "must name a host that can be read")


@pytest.mark.parametrize(
    "fields",
    [
        {"data": "", "url": ""},
        {"data": "aGk=", "url": "https://example.org/a"},
        {"data": "a GI"},
        {"data": "aGk"},
        {"url": "file:///etc/passwd"},
        {"url": "https://example.org/" + "a" * 3_000},
        {"url": "https://example.org/a b"},
        {"url": "https://example.org/ä"},
        {"data": "aGk=", "media_type": "image/tiff"},
        {"data": "aGk=", "media_type": "png"},
        {"data": "aGk=", "name": "x" * 300},
        {"data": "aGk=", "name": "a\nUSER: b"},
        {"data": "aGk=", "width": -1},
        {"data": "aGk=", "kind": "picture"},
    ],
)
def test_what_is_no_medium_is_refused(fields: dict[str, object]) -> None:
    """Before anything is stored."""
    with pytest.raises(InvalidInput):
        Media(**{"kind": MediaKind.IMAGE, "media_type": "image/png", **fields})  # type: ignore[arg-type]


def test_media_have_a_limit() -> None:
    """All of one message together; the error names sizes and names, never bytes."""
    half = media_from_bytes(b"\x00" * (MEDIA_LIMIT_BYTES // 2 + 1), "half.bin")
    assert require_media([half]) == (half,)
    with pytest.raises(InvalidInput, match=r"20,000,000 bytes in all, and have 20,000,002.*half\.bin") as caught:
        require_media([half, half])
    assert len(str(caught.value)) < 300
    for wrong in ("a.png", ["a.png"], None):
        with pytest.raises(InvalidInput):
            require_media(wrong)
    with pytest.raises(InvalidInput):
        media_from_bytes(b"", "empty.png")


def test_bytes_are_in_no_representation() -> None:
    """Whatever prints an entry shows no picture."""
    entry = Entry.user("look", (media_from_bytes(png(padding_bytes=50_000)),))
    assert len(repr(entry)) < 500


def test_media_are_named_as_in_texts() -> None:
    """A picture beside a message and one inside a text have the same words."""
    media = media_from_bytes(png(padding_bytes=900), "shot.png")
    in_text = name_media(f"data:image/png;base64,{media.data}")
    assert media.label == f"{in_text[:-1]}; shot.png]"
    entry = Entry.tool_result("1", "x" * 20, media=(media,))
    assert entry.readable == f"{'x' * 20}\n{media.label}"
    assert [item.text for item in project([entry], result_cap=5).items] == [
        f"xxxxx[… 15 characters left out]\n{media.label}"
    ]


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("https://example.org/a/x.png", "https://example.org/a/x.png"),
        ("https://example.org/x.png?X-Sig=secret&e=1#secret", "https://example.org/x.png"),
        ("https://example.org/x.png#secret?secret", "https://example.org/x.png"),
        ("https://me:secret@example.org:8080/@x.png", "https://example.org:8080/@x.png"),
        ("http://example.org?secret@x/y", "http://example.org"),
        ("http://[", "http://["),
    ],
)
def test_a_url_is_named_without_what_may_be_a_key(url: str, named: str) -> None:
    """A signed link is the provider's to follow, and nobody's to read in a record."""
    media = Media(kind=MediaKind.IMAGE, media_type="image/png", url=url)
    assert (media.url, media.label) == (url, f"[media: image; image/png; {named}]")
    assert Entry.user("look", (media,)).readable == f"look\n{media.label}"


def test_media_come_back_from_the_store() -> None:
    """Byte for byte; entries without any are stored as they were before there were media."""
    entry = Entry.user("look", (media_from_bytes(pdf(), "a.pdf"), media_from_url("https://example.org/x.png")))
    assert decode(Entry, encode(entry)) == entry
    assert encode(Entry.user("x")) == (
        '{"v":1,"type":"Entry","value":{"kind":"user","text":"x","tool_call_id":null,"tool_name":null}}'
    )


# --- what they cost


@pytest.mark.parametrize("name", ["characters", "o200k_base", "estimate"])
@pytest.mark.parametrize(("model", "image", "page"), [("gpt-4o", 765, 4_105), ("claude-3-opus", 1_432, 4_600)])
def test_an_entry_costs_its_text_and_its_media(name: str, model: str, image: int, page: int) -> None:
    """As the model of its agent counts them."""
    counter = counter_named(name, model)
    photo, file = media_from_bytes(png(1_024, 1_024)), media_from_bytes(pdf(2), "a.pdf")
    alone = counter.entry(Entry.user("look"))
    assert counter.entry(Entry.user("look", (photo,))) == alone + FRAME_TOKENS + image
    file_tokens = FRAME_TOKENS + 2 * page + counter.text(file.label)
    assert counter.entry(Entry.user("look", (photo, file))) == alone + FRAME_TOKENS + image + file_tokens


def test_an_image_of_unknown_size_costs_the_most_that_its_model_takes_for_one() -> None:
    """As one that is only linked."""
    linked = media_from_url("https://example.org/a.png")
    for model in ("gpt-4o-mini", "claude-3-opus", "", "o4-mini"):
        counter, rule = counter_named("characters", model), image_rule(model)
        assert counter.media((linked,)) == FRAME_TOKENS + rule.most_tokens


def test_a_file_of_text_costs_its_text() -> None:
    """As the model reads it; other bytes by their number, and what is only linked ten pages."""
    count = counter_named("o200k_base").text
    text = media_from_bytes(b"one two three " * 100, "a.txt")
    assert media_tokens([text], UNKNOWN_RULE, count) == FRAME_TOKENS + count(text.label) + count("one two three " * 100)
    other = media_from_bytes(b"\x00" * 4_000)
    assert media_tokens([other], UNKNOWN_RULE, count) == FRAME_TOKENS + count(other.label) + 1_000
    linked = media_from_url("https://example.org/a.pdf")
    assert media_tokens([linked], UNKNOWN_RULE, count) == FRAME_TOKENS + count(linked.label) + 10 * page_tokens(
        UNKNOWN_RULE
    )
