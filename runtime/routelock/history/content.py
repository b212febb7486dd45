"""The parts of a message's content that are not text: images, sound and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["chat_part", "media_of", "with_media", "without_media"]


_MEDIA = frozenset("image_url input_audio audio_url file video_url document_url document".split())
"""The types of media parts that at least one vendor accepts; other types may be a vendor's reasoning."""


def chat_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of OpenAI's Responses API in chat-completions form; any other part stays as it is."""
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file"} if "file_data" in part or "file_id" in part:
            keys = ("file_data", "file_id", "filename")
            return {"type": "file", "file": {key: part[key] for key in keys if part.get(key)}}
        case _:
            return part


def media_of(content: object) -> Sequence[dict[str, Any]]:
    """Return the images, sound and files in a message's content."""
    if not isinstance(content, list):
        return ()
    return [part for part in cast("list[dict[str, Any]]", content) if part.get("type") in _MEDIA]


def with_media(text: str, media: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a message's content from its text and its media parts."""
    return [{"type": "text", "text": text}, *map(dict, media)] if media else text


def without_media(content: object) -> object:
    """Return a message's content with a placeholder for each media part."""
    if not media_of(content):
        return content
    parts = cast("list[dict[str, Any]]", content)
    return [
        {"type": part.get("type"), "shown": "below"} if part.get("type") in _MEDIA else part for part in parts
    ]
