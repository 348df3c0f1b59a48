"""Media in text, named instead of embedded: bytes written out as letters tell a reader nothing and cost like prose."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

LEAST_RUN_CHARACTERS = 512
"""Shorter runs of base64 stay: they may be a key, a signature or a hash that the text is about."""

UNKNOWN_TYPE = "application/octet-stream"

_BEGINNINGS = {
    "iVBORw0KGg": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "SUQz": "audio/mpeg",
    "JVBERi0": "application/pdf",
    "UEsDB": "application/zip",
    "H4sI": "application/gzip",
}
"""How the base64 of a format begins: its first bytes are fixed by the format's specification."""

_FORMATS = {"wav": "audio/wav", "mp3": "audio/mpeg", "png": "image/png", "jpeg": "image/jpeg", "pdf": "application/pdf"}
"""Types that OpenAI's `input_audio` and the like state by a bare word."""

_MAJOR = r"(?:application|audio|font|image|model|text|video)"
_LETTER = r"[A-Za-z0-9+/_-]"
_LINE_END = r"(?:\r?\n|(?:\\r)?\\n)"  # in JSON a line break is two letters

_DATA_URL = re.compile(
    rf"data:(?P<type>{_MAJOR}\\?/[\w.+-]+)(?:;(?!base64,)[\w.-]+(?:=[^\s;,\"']*+)?)*+"
    rf"(?:;base64,(?P<base64>(?:[A-Za-z0-9+/_=%-]|\\/)++)|,(?P<plain>[^\s\"'<>\\)]++))"
)
# What stands beside a full stop is a segment of a token. Lines of 60 to 76 letters are how encoders wrap (RFC 2045).
_RUN = re.compile(rf"(?<![\w+/.=-]){_LETTER}{{{LEAST_RUN_CHARACTERS},}}+=*+(?!\.)")
_WRAPPED_RUN = re.compile(
    rf"(?:(?<![\w+/.=-])|(?<=\\n))(?:{_LETTER}{{60,76}}+{_LINE_END})++(?:{_LETTER}{{1,76}}+=*+(?={_LINE_END}|[\"']|\Z))?"
)
# The content parts of OpenAI, Anthropic, Gemini and MCP hold the bytes beside their type, in an object without others.
_FLAT_OBJECT = re.compile(r"\{[^{}]*+\}")
_PART_TYPE = re.compile(r"\"(?:media_type|mime_type|mimeType|format)\"\s*+:\s*+\"([\w.+-]+(?:\\?/[\w.+-]+)?)\"")
_PART_DATA = re.compile(r"(\"(?:data|blob|file_data)\"\s*+:\s*+\")((?:[A-Za-z0-9+/_=-]|\\[/rn])++)(?=\")")


def name_media(text: str) -> str:
    """*text* with each data URL, content part's bytes and long run of base64 replaced by what it is and its size.

    A replacement reads `[media: image; image/png; 12,345 bytes]`. Time is linear in the length of *text*.
    """
    text = _DATA_URL.sub(_named_url, text)
    text = _FLAT_OBJECT.sub(_with_named_data, text)
    return _RUN.sub(_named_run, _WRAPPED_RUN.sub(_named_run, text))


def _named_url(url: re.Match[str]) -> str:
    if url["base64"]:
        return _name(url["type"], _decoded_bytes(url["base64"]))
    return _name(url["type"], len(unquote_to_bytes(url["plain"])))


def _with_named_data(part: re.Match[str]) -> str:
    """A JSON object, its bytes named if it is a content part of a media type."""
    stated = _PART_TYPE.search(part[0])
    mime_type = _FORMATS.get(stated[1], stated[1]) if stated else ""
    if "/" not in mime_type or mime_type.startswith("text"):
        return part[0]
    return _PART_DATA.sub(lambda data: data[1] + _name(mime_type, _decoded_bytes(data[2])), part[0])


def _named_run(run: re.Match[str]) -> str:
    """A run, named if it is long and has letters of every kind: encoded bytes do, a drawn line or a hash does not."""
    encoded = run[0]
    has_every_kind = all(re.search(kind, encoded) for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    if len(encoded) < LEAST_RUN_CHARACTERS or not has_every_kind:
        return encoded
    beginning = encoded[:16].replace("_", "/")  # RFC 4648, 5: base64url writes it so
    mime_type = next((kind for start, kind in _BEGINNINGS.items() if beginning.startswith(start)), UNKNOWN_TYPE)
    return _name(mime_type, _decoded_bytes(encoded))


def _decoded_bytes(encoded: str) -> int:
    """How many bytes base64 stands for: four letters are three; padding, line ends and escapes are none."""
    plain = unquote_to_bytes(encoded).decode("ascii", "replace") if "%" in encoded else encoded
    return len(re.sub(r"\\[rn]|[^A-Za-z0-9+/_-]", "", plain)) * 3 // 4


def _name(mime_type: str, size_bytes: int) -> str:
    mime_type = mime_type.replace("\\", "")
    major = mime_type.partition("/")[0]
    kind = major if major in ("image", "audio", "video") else "file"
    return f"[media: {kind}; {mime_type}; {size_bytes:,} bytes]"
