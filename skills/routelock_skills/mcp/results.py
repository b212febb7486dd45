"""Results of MCP tools, as text and media for a model."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from routelock.tools.outcome import to_text

__all__ = ["result_media", "result_text"]


_IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")

_SOUNDS = {"audio/mpeg": "mp3", "audio/mp3": "mp3"} | dict.fromkeys(
    ("audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave"), "wav"
)


def result_text(result: Mapping[str, Any]) -> str:
    """Return a result as the text for a model.

    Content that is not text becomes a line that describes it. Structured content is used only if there is no
    other content, because a server that sends both sends the same twice.

    Args:
        result: the JSON result of ``tools/call``.
    """
    text = "\n".join(filter(None, map(_text_of, result.get("content") or ())))
    structured = result.get("structuredContent")
    return text if text or structured is None else to_text(structured)


def result_media(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the images, sounds and PDFs of a result as parts of a chat message."""
    return [part for block in result.get("content") or () for part in _parts(block)]


def _text_of(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind == "resource_link":
        parts = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
        return f"[link: {' - '.join(str(part) for part in parts if part)}]"
    resource: Mapping[str, Any] = block.get("resource") or {}
    if "text" in resource:
        return f"[resource: {resource.get('uri')}]\n{resource['text']}"
    mime_type, data = _bytes_of(block)
    size = f"about {len(data) * 3 // 4} bytes" if data else "empty"
    hidden = "" if any(_parts(block)) else ", not shown"
    what = f"{kind} {resource['uri']}" if "uri" in resource else kind
    return f"[{what}: {mime_type or 'of unknown type'}, {size}{hidden}]"


def _parts(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    mime_type, data = _bytes_of(block)
    if not data or not _is_base64(data):  # a vendor would refuse the whole request
        return
    url = f"data:{mime_type};base64,{data}"
    if mime_type in _IMAGES:
        yield {"type": "image_url", "image_url": {"url": url}}
    elif mime_type in _SOUNDS:
        yield {"type": "input_audio", "input_audio": {"data": data, "format": _SOUNDS[mime_type]}}
    elif mime_type == "application/pdf":
        yield {"type": "file", "file": {"file_data": url, "filename": "resource.pdf"}}


def _bytes_of(block: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type and the base64 text of a block's bytes."""
    held: Mapping[str, Any] = block.get("resource") or block
    mime_type = str(held.get("mimeType") or "").partition(";")[0].strip().lower()
    # some servers break it into lines
    data = "".join(str(held.get("data") or held.get("blob") or "").split())
    return "image/jpeg" if mime_type == "image/jpg" else mime_type, data


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
