"""Terms, passages and queries: what is found by which words, and where a text is cut."""

from __future__ import annotations

import base64
import json
import random
import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.media import Media, MediaKind
from sessionlib.recall.passages import PASSAGE_CHARACTERS, passages_of, spans_of, whole_character
from sessionlib.recall.queries import MOST_TERMS, MOST_VALUES, QUERY_CHARACTERS, Query
from sessionlib.recall.terms import NAME_CHARACTERS, TERM_CHARACTERS, first_character, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \n\t--- *** ===", []),
        ("The Tests fail.", ["the", "tests", "fail"]),
        ("Caroline's parcels' ", ["caroline", "parcels"]),
        ("don’t", ["don’t", "don", "t"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("__init__", ["init"]),
        ("getUserId", ["getuserid", "get", "user", "id"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("a.b.c", ["a.b.c", "a", "b", "c"]),
        ("src/getUser.py:12", ["src/getuser.py:12", "src", "getuser.py", "getuser", "get", "user", "py", "12"]),
        ("std::vector", ["std::vector", "std", "vector"]),
        ("well-kept", ["well-kept", "well", "kept"]),
        ("https://a.io/x?y=1", ["https://a.io/x", "https", "a.io", "a", "io", "x", "y", "1"]),
        ("v1.2.3", ["v1.2.3", "v1", "v", "1", "2", "3"]),
        ("10,240 rows", ["10,240", "10240", "10", "240", "rows"]),
        ("a,b", ["a", "b"]),
        ("3.14", ["3.14", "3", "14"]),
        ("30s error404", ["30s", "30", "s", "error404", "error", "404"]),
        ("3fa9c2e", ["3fa9c2e"]),
        ("2026-03-04", ["2026-03-04", "2026", "03", "04"]),
        ("x@y.org", ["x@y.org", "x", "y.org", "y", "org"]),
        ("ＡＢＣ １２", ["abc", "12"]),
        ("数据库连接", ["数据", "据库", "库连", "连接"]),
        ("库 a库b", ["库", "a", "库", "b"]),
        ("タスク", ["タス", "スク"]),
        ("작업의 목록", ["작업", "업의", "목록"]),
        ("done 🚀→", ["done", "🚀", "→"]),
        ("naïve Straße", ["naïve", "straße"]),
        ("人々", ["人々"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("น้ำ ๑๒๓", ["น้ํา", "๑๒๓"]),
        ("ພາສາ", ["ພາ", "າສ", "ສາ"]),
        ("ភាសា។ខ្មែរ", ["ភាសា", "ខ្មែ", "មែរ"]),
        ("မြန်မာ၊ ၁၂", ["မြန်", "န်မာ", "၁၂"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("தமிழ்-மொழி", ["தமிழ்-மொழி", "தமிழ்", "மொழி"]),
        ("ශ්\u200dරී ලංකා", ["ශ්\u200dරී", "ලංකා"]),
        ("كِتَاب", ["كِتَاب"]),
        ("x\u0304_bar", ["x\u0304_bar", "x\u0304", "bar"]),
        ("1\ufe0f\u20e3 ☎\ufe0f", ["1", "☎"]),
    ],
)
def test_terms_of_a_text(text: str, terms: list[str]) -> None:
    """Lower-cased words with their marks; identifiers, paths and numbers whole and in parts; pairs where words have no
    blanks, of characters with their marks."""
    assert terms_of(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("数据库", ["数据", "据库", "库"]),
        ("库 a库b", ["库", "a", "库", "b"]),
        ("ที่", ["ที่"]),
        ("ไทย", ["ไท", "ทย", "ย"]),
        ("the port", ["the", "port"]),
    ],
)
def test_each_character_of_an_unspaced_run_begins_a_term_of_a_text(text: str, terms: list[str]) -> None:
    """Of a pair, or for the last by itself."""
    assert terms_of(text, with_ends=True) == terms


@pytest.mark.parametrize(
    ("term", "character"),
    [("数据", "数"), ("数", "数"), ("น้ํา", "น้ํ"), ("port", ""), ("हिन्दी", ""), ("🚀", ""), ("", "")],
)
def test_the_first_character_of_a_term(term: str, character: str) -> None:
    """Of a script without blanks, and no other."""
    assert first_character(term) == character


ENDLESS = [
    "a",
    "A",
    "_",
    '"',
    "'",
    "`",
    "“",
    " ",
    "\n",
    "=",
    "/",
    ".",
    "-",
    "1",
    "漢",
    "ก",
    "ि",
    "é",
    "a_",
    "a-",
    "aB",
    "1,",
]


@pytest.mark.parametrize("unit", ENDLESS)
def test_a_query_without_end_is_read_at_once(unit: str) -> None:
    """While one is read, no other thread of its process runs: leases must be renewed meanwhile."""
    begun = time.process_time()
    assert Query.of(unit * (1_000_000 // len(unit))).is_cut
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("unit", ENDLESS)
def test_terms_take_time_as_their_text_is_long(unit: str) -> None:
    """Nothing in a text is tried again and again."""
    text = unit * (100_000 // len(unit))
    begun = time.process_time()
    terms_of(text)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (r'{"a":"one\ntwo"}', ["a", "one", "two"]),
        (r'{"p":"C:\\new\\table"}', ["p", "c", "new", "table"]),
        (r'{"t":"\u6570\u636e"}', ["t", "数据"]),
        (r'{"t":"\ud83d\ude80 go"}', ["t", "go"]),
        ("ends in \\", ["ends", "in"]),
    ],
)
def test_escapes_in_json_are_no_words(text: str, terms: list[str]) -> None:
    """`\\ntwo` is the word two."""
    assert terms_of(text, is_json=True) == terms


def test_a_word_without_end_is_known_by_its_beginning() -> None:
    """In texts and in queries alike; a path is known longer than a word."""
    assert terms_of("a" * 10_000) == ["a" * TERM_CHARACTERS]
    assert terms_of("ab1" * 10_000) == ["ab1" * 53 + "a", ("ab1" * 22)[:TERM_CHARACTERS]]
    assert len(terms_of("/".join(["word"] * 1_000))[0]) == NAME_CHARACTERS


def test_encoded_data_has_few_terms() -> None:
    """Its changes of case are not those of identifiers: a megabyte gives no more terms than prose of that size."""
    data = base64.b64encode(random.Random(1).randbytes(75_000)).decode()
    assert len(terms_of(data)) < len(data) / 6


@given(st.text())
def test_terms_are_found_in_their_own_text(text: str) -> None:
    """Terms are lower-cased, never blank, and reading a text twice gives the same."""
    terms = terms_of(text)
    assert terms == terms_of(text)
    assert all(term and term == term.lower() and not term.isspace() for term in terms)


# --- Passages


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", []),
        (" \n ", []),
        ("one", [(0, 3)]),
        ("  one \n", [(2, 5)]),
        ("a" * 601, [(0, 600), (600, 601)]),
        ("a" * 400 + "\n" + "b" * 400, [(0, 400), (401, 801)]),
        ("a" * 400 + "\n\n" + "b" * 100 + "\n" + "c" * 200, [(0, 400), (402, 703)]),
        ("a" * 400 + ". " + "b" * 300, [(0, 401), (402, 702)]),
        ("a" * 400 + " " + "b" * 300, [(0, 400), (401, 701)]),
        ("a" * 100 + "\n" + "b" * 700, [(0, 600), (600, 801)]),
        ("字" * 400 + "。" + "字" * 300, [(0, 401), (401, 701)]),
        (" " * 1_000_000 + "x", [(1_000_000, 1_000_001)]),
    ],
)
def test_where_a_text_is_cut(text: str, spans: list[tuple[int, int]]) -> None:
    """At paragraphs, lines, sentences, words, in the second half of a passage; else where it is full."""
    assert list(spans_of(text)) == spans


@given(
    st.lists(st.sampled_from(["word ", "\n", "\n\n", ". ", "数据。", "👩‍🚀", "x" * 350, " " * 700, "é́"])).map("".join)
)
def test_passages_hold_everything_but_blanks(text: str) -> None:
    """In order, without overlap, each within its size and beginning and ending with ink."""
    spans = list(spans_of(text))
    assert all(start < end <= start + PASSAGE_CHARACTERS for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)


@pytest.mark.parametrize(
    ("text", "end", "place"),
    [
        ("ab", 1, 1),
        ("e\u0301x", 1, 1),
        ("xe\u0301", 2, 1),
        ("x👩\u200d🚀", 2, 1),
        ("x👩\u200d🚀", 3, 1),
        ("x👍🏽", 2, 1),
        ("x☎\ufe0f", 2, 1),
        ("xकि", 2, 1),
        ("xกี่", 3, 1),
        ("👩\u200d🚀", 1, 1),
    ],
)
def test_no_character_is_split(text: str, end: int, place: int) -> None:
    """As it is seen: marks, skin tones, joined emoji. One that does not fit by itself is cut all the same."""
    assert whole_character(text, 0, end) == place


@given(st.text(st.sampled_from("a\u0301\u200d👩🏽🚀\ufe0f "), min_size=1), st.data())
def test_a_cut_goes_forward(text: str, data: st.DataObject) -> None:
    """So that who reads on always comes to the end."""
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert start < whole_character(text, start, end) <= end


def test_opaque_items_and_history_tools_have_no_passages() -> None:
    """Nobody can read the first; the second copy what is there already."""
    assert not list(passages_of(Entry.opaque('{"summary": "thought"}', "openai/gpt")))
    assert not list(passages_of(Entry.tool_call("c", '{"query": "port"}', "history.search")))
    assert not list(passages_of(Entry.tool_result("c", "the port is 80", "history.search")))
    assert list(passages_of(Entry.tool_result("c", "the port is 80", "notes.read_file")))


def test_media_are_found_by_their_name() -> None:
    """The data itself is no text."""
    image = Media(
        kind=MediaKind.IMAGE, media_type="image/png", data=base64.b64encode(b"x" * 9_000).decode(), name="crane.png"
    )
    entry = Entry.user("", media=(image,))
    ((start, end),) = passages_of(entry)
    assert "crane.png" in terms_of(entry.readable[start:end])


# --- Queries


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("what did we decide about the port?", ()),
        ("where is src/app.py?", ("src/app.py",)),
        ("error 4042, please", ("4042",)),
        ('is it `retry ceiling` or "trace header"', ("retry ceiling", "trace header")),
        ("who calls get_user and getUserId()", ("get_user", "getUserId")),
        ("It's Bob's 'exact words' here", ("exact words",)),
        ('"..."', ()),
    ],
)
def test_values_of_a_query(text: str, values: tuple[str, ...]) -> None:
    """What is quoted, and what reads as an identifier, a number or a path, is meant word for word."""
    assert tuple(value.text for value in Query.of(text).values) == values


def test_the_rest_of_a_long_query_is_not_looked_for() -> None:
    """And it says so."""
    beginning = "port " * (QUERY_CHARACTERS // 5)
    assert not Query.of(beginning).is_cut
    query = Query.of(f"{beginning}harbour 4042")
    assert (query.is_cut, query.terms, query.values) == (True, ("port",), ())


def test_a_query_is_bounded() -> None:
    """A text in the place of a question."""
    query = Query.of(" ".join(f"word{number}" for number in range(1_000)))
    assert len(query.terms) == MOST_TERMS
    assert len(query.values) == MOST_VALUES


@given(st.text())
def test_any_text_is_a_query(text: str) -> None:
    """However it is quoted; its values have terms that are looked for."""
    query = Query.of(text)
    assert set(query.terms) <= set(query.all_terms)
    assert all(value.terms for value in query.values)


@given(st.text(min_size=1))
def test_arguments_are_indexed_as_they_read(text: str) -> None:
    """Whether JSON escapes what is not ASCII or not."""
    plain = terms_of(json.dumps([text], ensure_ascii=False), is_json=True)
    escaped = terms_of(json.dumps([text]), is_json=True)
    if all(ord(character) < 0x10000 for character in text) and unicodedata.is_normalized("NFKC", text):
        assert plain == escaped
