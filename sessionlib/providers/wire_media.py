"""Images and files as each API takes them; what an API takes in no form is sent as its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessionlib.media import PDF, Media, MediaKind
from sessionlib.media_tokens import is_text, text_of

UNNAMED = "file"
"""The APIs of OpenAI want a name for every file."""


DETAIL = "high"
"""How OpenAI's models look at images. Left to them, some take an image of any size as it is: tokens without bound."""


def data_url(media: Media) -> str:
    """Its URL: the one it has, or one that carries its bytes (RFC 2397)."""
    return media.url or f"data:{media.media_type};base64,{media.data}"


def chat_parts(media: Iterable[Media]) -> list[dict[str, Any]]:
    """Content parts of a chat message. Of files the API takes PDFs by their bytes; text goes as text."""
    return [_chat_part(item) for item in media]


def _chat_part(media: Media) -> dict[str, Any]:
    if media.kind is MediaKind.IMAGE:
        return {"type": "image_url", "image_url": {"url": data_url(media), "detail": DETAIL}}
    if media.data and media.media_type == PDF:
        return {"type": "file", "file": {"filename": media.name or UNNAMED, "file_data": data_url(media)}}
    return {"type": "text", "text": _in_words(media)}


def responses_parts(media: Iterable[Media]) -> list[dict[str, Any]]:
    """Content of a message or a tool's output."""
    return [_responses_part(item) for item in media]


def _responses_part(media: Media) -> dict[str, Any]:
    if media.kind is MediaKind.IMAGE:
        return {"type": "input_image", "detail": DETAIL, "image_url": data_url(media)}
    if is_text(media):
        return {"type": "input_text", "text": _in_words(media)}
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.name or UNNAMED, "file_data": data_url(media)}


def message_blocks(media: Iterable[Media]) -> list[dict[str, Any]]:
    """Content blocks of the Anthropic Messages API: of files it takes PDFs and text."""
    return [_message_block(item) for item in media]


def _message_block(media: Media) -> dict[str, Any]:
    by_bytes = {"type": "base64", "media_type": media.media_type, "data": media.data}
    source = {"type": "url", "url": media.url} if media.url else by_bytes
    if media.kind is MediaKind.IMAGE:
        return {"type": "image", "source": source}
    named = {"title": media.name} if media.name.strip() else {}
    if media.media_type == PDF:
        return {"type": "document", "source": source, **named}
    if is_text(media) and (text := text_of(media)).strip():
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **named}
    return {"type": "text", "text": media.label}


def _in_words(media: Media) -> str:
    """Its name, and its text if it is text."""
    return f"{media.label}\n{text_of(media)}" if is_text(media) else media.label
