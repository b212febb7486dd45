"""The scenarios of the Open Responses compliance tests, answers checked by the types of its specification.

usage: open_responses.py URL BUSY_URL KEY

The types are those of the package openresponses-types, which are generated from the specification. Each line
that is printed has what is wrong with the answers of one scenario.
"""

from __future__ import annotations

import importlib
import json
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import pydantic

# it is where this program runs, and not where types are checked
spec: Any = importlib.import_module("openresponses_types.types")
PATIENCE = 60.0
URL, _, KEY = sys.argv[1:]
KINDS: Mapping[str, type[pydantic.BaseModel]] = {
    next(iter(kind.model_fields["type"].annotation)).value: kind
    for name, kind in vars(spec).items()
    if name.endswith("StreamingEvent")
}
"""The types of the events of a stream."""
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)

Errors = list[str]
Check = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], bool]


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def ask(model: str, items: Sequence[Any], **more: Any) -> str:
    """Return the body of an answer, or its stream of events."""
    body = json.dumps({"model": model, "input": items, **more}).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{URL}/responses", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def invalid(kind: type[pydantic.BaseModel], value: Any) -> Errors:
    try:
        kind.model_validate(value)
    except pydantic.ValidationError as error:
        return [str(error)]
    return []


def whole(model: str, items: Sequence[Any], check: Check, **more: Any) -> Errors:
    """Return what is wrong with an answer that is not streamed."""
    body = json.loads(ask(model, items, **more))
    errors = invalid(spec.ResponseResource, body)
    return errors if check(body, ()) else [*errors, f"not what was asked for: {body}"]


def streamed(model: str, items: Sequence[Any], check: Check, **more: Any) -> Errors:
    """Return what is wrong with the events of a stream, and with the response at its end."""
    sent = ask(model, items, stream=True, **more).strip().split("\n\n")
    *blocks, last = [block for block in sent if not block.startswith(":")]  # a slow server sends comments
    errors = [] if last == "data: [DONE]" else [f"the stream ends with {last}"]
    events = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    for block, event in zip(blocks, events, strict=True):
        errors += invalid(KINDS[event["type"]], event)
        if block.partition("\n")[0] != f"event: {event['type']}":
            errors.append(f"an event has another name than {event['type']}")
    return errors if check(events[-1]["response"], events) else [*errors, f"not what was asked for: {events}"]


def completed(response: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> bool:
    return bool(response["output"]) and response["status"] == "completed"


def has(*names: str) -> Check:
    """Check that there are items or events of these kinds."""

    def check(response: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> bool:
        found = {item["type"] for item in response["output"]} | {event["type"] for event in events}
        found |= {f"{event['item']['type']} {event['type']}" for event in events if "item" in event}
        return found >= set(names)

    return check


HELLO = [said("user", "Say hello.")]
PLACES = [said("user", "How is the weather?")]
SCENES: Mapping[str, Callable[[], Errors]] = {
    "basic-response": lambda: whole("greeter", HELLO, completed),
    "streaming-response": lambda: streamed("greeter", HELLO, completed),
    "system-prompt": lambda: whole("greeter", [said("system", "Be short."), *HELLO], completed),
    "tool-calling": lambda: whole("forecaster", PLACES, has("function_call"), tools=[WEATHER]),
    "tool-calling-streaming": lambda: streamed(
        "forecaster",
        PLACES,
        has(
            "function_call response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "function_call response.output_item.done",
        ),
        tools=[WEATHER],
    ),
    "image-input": lambda: whole(
        "greeter",
        [
            said(
                "user",
                [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": PICTURE},
                ],
            )
        ],
        completed,
    ),
    "multi-turn": lambda: whole(
        "greeter", [*HELLO, said("assistant", "Hello."), said("user", "What did I say?")], completed
    ),
    # what the compliance tests leave out
    "reasoning": lambda: whole("thinker", HELLO, has("reasoning")),
    "citations": lambda: streamed("reporter", HELLO, has("response.output_text.annotation.added")),
    "failure": lambda: streamed("broken", HELLO, has("response.failed")),
}


def main() -> None:
    for name, scene in SCENES.items():
        try:
            found: Any = scene()
        except Exception as error:  # the test shows it; the other scenes are still played
            found = {"failed": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps([name, found]) + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps(["version", version("openresponses-types")]) + "\n")


main()
