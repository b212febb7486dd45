"""A result of an MCP server becomes text for the model, and nothing is dropped silently."""

from __future__ import annotations

from typing import Any

import pytest

from routelock_skills.mcp.results import result_media, result_text


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (text("hello"), "hello"),
        (
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            "[image: image/png, about 6 bytes]",
        ),
        ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "[audio: audio/wav, empty, not shown]"),
        (
            {"type": "resource_link", "name": "log", "uri": "file:///log", "description": "what happened"},
            "[link: log - file:///log - what happened]",
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a.md", "text": "# A"}},
            "[resource: file:///a.md]\n# A",
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///a", "mimeType": "application/zip", "blob": "AAAA"},
            },
            "[resource file:///a: application/zip, about 3 bytes, not shown]",
        ),
        ({"type": "hologram"}, "[hologram: of unknown type, empty, not shown]"),
    ],
)
def test_each_kind_of_content_has_a_text(block: dict[str, Any], shown: str) -> None:
    assert result_text({"content": [block]}) == shown


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        ),
        (
            {"type": "image", "data": "aGVs\nbG8=\n", "mimeType": "image/JPG; name=x"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGVsbG8="}},
        ),
        (
            {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/vnd.wave"},
            {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
        ),
        (
            {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/mpeg"},
            {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "mp3"}},
        ),
        (
            {"type": "resource", "resource": {"uri": "x", "mimeType": "application/pdf", "blob": "aGVsbG8="}},
            {
                "type": "file",
                "file": {"file_data": "data:application/pdf;base64,aGVsbG8=", "filename": "resource.pdf"},
            },
        ),
    ],
)
def test_media_become_parts(block: dict[str, Any], part: dict[str, Any]) -> None:
    assert result_media({"content": [text("Look:"), block]}) == [part]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/svg+xml"},
        {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/flac"},
    ],
)
def test_media_that_vendors_refuse_are_described(block: dict[str, Any]) -> None:
    assert result_media({"content": [block]}) == []
    assert result_text({"content": [block]}).endswith(", not shown]")


def test_several_blocks_are_lines() -> None:
    assert result_text({"content": [text("one"), text(""), text("two")]}) == "one\ntwo"


def test_structured_content_is_not_repeated() -> None:
    assert result_text({"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}) == '{"a": 1}'


def test_structured_content_alone_is_json() -> None:
    assert result_text({"content": [], "structuredContent": {"result": []}}) == '{"result":[]}'


def test_an_empty_result_is_empty_text() -> None:
    assert result_text({}) == ""
