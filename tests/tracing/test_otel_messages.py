"""Messages on spans: in the form of the conventions' JSON schemas, each converted once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.vendor_calls import Citation, VendorCall
from routelock.testing import call, reply
from routelock.tracing.otel_messages import RequestTexts, messages_text, output_text, reply_text

LARGEST = 100_000

SCHEMAS = os.environ.get("ROUTELOCK_GENAI_SCHEMAS")
"""A folder with the JSON schemas of the conventions, which are in `model/gen-ai` of their repository."""

PNG = "iVBORw0KGgo="

PARTS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "image in a data URL": (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG},
    ),
    "image at an address": (
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
    ),
    "image of the Responses API": (
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
    ),
    "image in a data URL without base64": (
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}},
        {"type": "blob", "modality": "image", "mime_type": "image/svg+xml", "content": "PHN2Zy8+"},
    ),
    "PDF": (
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
        {"type": "blob", "modality": "document", "mime_type": "application/pdf", "content": "JVBERi0="},
    ),
    "bare base64": (
        {"type": "file", "file": {"file_data": "JVBERi0="}},
        {"type": "blob", "modality": "document", "content": "JVBERi0="},
    ),
    "sound in a file": (
        {"type": "file", "file": {"file_data": "data:audio/mpeg;base64,SUQz"}},
        {"type": "blob", "modality": "audio", "mime_type": "audio/mpeg", "content": "SUQz"},
    ),
    "file that the vendor has": (
        {"type": "file", "file": {"file_id": "file-7"}},
        {"type": "file", "modality": "document", "file_id": "file-7"},
    ),
    "sound": (
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "UklGRg=="},
    ),
    "video": (
        {"type": "video_url", "video_url": {"url": "gs://films/a.mp4"}},
        {"type": "uri", "modality": "video", "uri": "gs://films/a.mp4"},
    ),
    "document of Mistral": (
        {"type": "document_url", "document_url": "https://example.com/a.pdf"},
        {"type": "uri", "modality": "document", "uri": "https://example.com/a.pdf"},
    ),
    "media without data": ({"type": "image_url", "image_url": {}}, {"type": "image_url"}),
    "media of no known form": ({"type": "image_url", "image_url": 7}, {"type": "image_url"}),
    "anything else": ({"type": "odd", "secret": "x"}, {"type": "odd"}),
}


SEARCH = VendorCall(
    tool="web_search", id="s1", input={"query": "capital"}, sources=[Citation(url="https://example.com")]
)


class ReadCounted(dict[str, Any]):
    """A message that knows how often it was looked into."""

    reads = 0

    def get(self, *name: Any) -> Any:
        self.reads += 1
        return super().get(*name)

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return super().__getitem__(name)


def shown(*messages: Mapping[str, Any], largest: int = LARGEST) -> Any:
    return json.loads(messages_text(messages, largest))


@pytest.mark.parametrize(("part", "expected"), PARTS.values(), ids=PARTS)
def test_media_are_blobs_or_addresses(part: dict[str, Any], expected: dict[str, Any]) -> None:
    [message] = shown({"role": "user", "content": [{"type": "text", "text": "Look."}, part]})
    assert message["parts"] == [{"type": "text", "content": "Look."}, expected]


def test_media_of_a_tool_are_in_its_response() -> None:
    part, expected = PARTS["image in a data URL"]
    [message] = shown({"role": "tool", "tool_call_id": "c1", "content": [part]})
    assert message["parts"] == [{"type": "tool_call_response", "id": "c1", "response": [expected]}]


def test_large_media_are_left_out() -> None:
    [message] = shown({"role": "user", "content": [PARTS["image in a data URL"][0]]}, largest=4)
    assert message["parts"] == [
        {
            "type": "blob",
            "modality": "image",
            "mime_type": "image/png",
            "content": "",
            "omitted_characters": len(PNG),
        }
    ]


def test_reasoning_is_a_part() -> None:
    [message] = shown({"role": "assistant", "content": "7.", "reasoning_content": "3 and 4."})
    assert message["parts"][0] == {"type": "reasoning", "content": "3 and 4."}


def test_tool_that_the_vendor_ran_is_a_call_and_a_response() -> None:
    [message] = shown(reply("Oslo.", vendor_calls=[SEARCH]).message)
    assert message["parts"][1:] == [
        {
            "type": "server_tool_call",
            "id": "s1",
            "name": "web_search",
            "server_tool_call": {"type": "web_search", "input": {"query": "capital"}},
        },
        {
            "type": "server_tool_call_response",
            "id": "s1",
            "server_tool_call_response": {"type": "web_search", "sources": ["https://example.com"]},
        },
    ]


def test_message_is_converted_once() -> None:
    """It is on the span of each later call; to make it into text for each took ever longer."""
    texts = RequestTexts(LARGEST)
    given = [ReadCounted(role="user", content="Hi"), ReadCounted(role="assistant", content="Yes?")]
    once = texts.of(Request(messages=cast(Any, given)))
    reads = given[1].reads
    more = Request(messages=[*cast(Any, given), {"role": "user", "content": "No."}])
    again = texts.of(more)
    assert given[1].reads == reads > 0
    assert json.loads(again["gen_ai.input.messages"])[:2] == json.loads(once["gen_ai.input.messages"])
    assert again == RequestTexts(LARGEST).of(more)


def test_vendors_tool_without_a_name_is_named_by_its_type() -> None:
    request = Request(messages=[{"role": "user", "content": "Hi"}], tools=cast(Any, [{"type": "web_search"}]))
    [defined] = json.loads(RequestTexts(LARGEST).of(request)["gen_ai.tool.definitions"])
    assert defined == {"type": "web_search", "name": "web_search"}


def test_output_that_is_no_text_is_json() -> None:
    [message] = json.loads(output_text({"order": 7}))
    assert message["parts"] == [{"type": "text", "content": '{"order": 7}'}]


@pytest.mark.skipif(SCHEMAS is None, reason="ROUTELOCK_GENAI_SCHEMAS names no folder with the schemas")
@pytest.mark.parametrize(
    "name", ["input_messages", "output_messages", "system_instructions", "tool_definitions"]
)
def test_texts_fit_the_schemas_of_the_conventions(name: str) -> None:
    """Run it with a folder of the conventions' repository: no copy of their schemas is kept here."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(SCHEMAS or "") / f"gen-ai-{name.replace('_', '-')}.json").read_text("utf-8"))
    value = json.loads(_texts()[name])
    jsonschema.Draft202012Validator(schema).validate(value)
    for part in _parts_in(value):
        jsonschema.Draft202012Validator(_schema_of(schema, part["type"])).validate(part)


def _texts() -> dict[str, str]:
    """The texts of a request and a reply, with each part that a message may have."""
    replied = reply("See.", calls=[call("refund", {"order": 7})], reasoning="7.", vendor_calls=[SEARCH])
    tools = [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}]
    request = Request(
        messages=cast(
            Any,
            [
                {"role": "system", "content": "You refund."},
                {"role": "user", "content": [part for part, _ in PARTS.values()]},
                replied.message,
                {"role": "tool", "tool_call_id": "c1", "content": "refunded"},
            ],
        ),
        tools=cast(Any, [*tools, {"type": "web_search"}]),
    )
    texts = RequestTexts(LARGEST).of(request)
    return {
        "input_messages": texts["gen_ai.input.messages"],
        "output_messages": reply_text(MessageDone(message=replied.message, finish_reason="stop"), LARGEST),
        "system_instructions": texts["gen_ai.system_instructions"],
        "tool_definitions": texts["gen_ai.tool.definitions"],
    }


def _parts_in(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for one in value for part in one.get("parts", [one])]


def _schema_of(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The schema of one type of part: as a whole they allow anything that has a type."""
    named = [
        each
        for each in schema["$defs"].values()
        if each.get("properties", {}).get("type", {}).get("const") == kind
    ]
    return {**named[0], "$defs": schema["$defs"]} if named else {}
