"""An unmodified `openai` client asks for responses; each line it prints is what it saw in one scene.

usage: openai_responses.py URL BUSY_URL KEY

It imports nothing but the client and what that needs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from pydantic import BaseModel

PATIENCE = 60.0
"""Seconds after which a scene has failed: far more than any takes."""
URL, BUSY_URL, KEY = sys.argv[1:]
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}

Facts = dict[str, Any]


class Order(BaseModel):
    number: int


def connected(url: str = URL, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE)


def summed_up(response: Any) -> Facts:
    calls = [item for item in response.output if item.type == "function_call"]
    thoughts = [item for item in response.output if item.type == "reasoning"]
    usage = response.usage
    return {
        "text": response.output_text,
        "status": response.status,
        "reasoning": [part.text for item in thoughts for part in item.content],
        "calls": [[call.call_id, call.name, call.arguments] for call in calls],
        "usage": [usage.input_tokens, usage.output_tokens, usage.total_tokens],
    }


async def plain(client: openai.AsyncOpenAI, request: Facts) -> Any:
    response = await client.responses.create(**request)
    assert response.object == "response"
    return response


async def raw(client: openai.AsyncOpenAI, request: Facts, events: list[Any] | None = None) -> Any:
    """Iterate the events, and check that they are in the order of the API reference."""
    events = [] if events is None else events
    async for event in await client.responses.create(**request, stream=True):
        events.append(event)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    assert [event.sequence_number for event in events] == list(range(len(events)))
    response = events[-1].response
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    done = [event.item.id for event in events if event.type == "response.output_item.done"]
    assert added == done == [item.id for item in response.output]
    return response


async def helped(client: openai.AsyncOpenAI, request: Facts) -> Any:
    """Let the client's own helper put the events together."""
    snapshots = [""]
    async with client.responses.stream(**request) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                snapshots.append(event.snapshot)
        response = await stream.get_final_response()
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    texts = [part.text for part in parts if part.type == "output_text"]
    assert snapshots[-1] == ["", *texts][-1]
    return response


WAYS: dict[str, Callable[[openai.AsyncOpenAI, Facts], Awaitable[Any]]] = {
    "plain": plain,
    "raw": raw,
    "helper": helped,
}


def asked(model: str, text: str = "Hello?", **more: Any) -> Facts:
    return {"model": model, "input": text, **more}


async def in_every_way(client: openai.AsyncOpenAI, request: Facts) -> Facts:
    return {name: summed_up(await way(client, request)) for name, way in WAYS.items()}


async def raised(work: Awaitable[Any]) -> Facts:
    try:
        await work
    except openai.APIError as error:
        return {"class": type(error).__name__, "param": error.param, "code": error.code}
    return {"class": None}


async def greeting(client: openai.AsyncOpenAI) -> Facts:
    return await in_every_way(client, asked("greeter", instructions="Be short.", store=False))


async def blocking(client: openai.AsyncOpenAI) -> Facts:
    """The client that needs no event loop, in a thread."""

    def ask() -> Facts:
        with openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=PATIENCE) as blocked:
            whole = blocked.responses.create(**asked("greeter"))
            with blocked.responses.stream(**asked("greeter")) as stream:
                return {"plain": whole.output_text, "streamed": stream.get_final_response().output_text}

    return await asyncio.to_thread(ask)


async def transfer(client: openai.AsyncOpenAI) -> Facts:
    return await in_every_way(client, asked("desk"))


async def reasoning(client: openai.AsyncOpenAI) -> Facts:
    return await in_every_way(client, asked("thinker"))


async def citations(client: openai.AsyncOpenAI) -> Facts:
    """The pages that each way shows, each with the passage that it stands behind."""
    found: Facts = {}
    for name, way in WAYS.items():
        response = await way(client, asked("reporter"))
        parts = [part for item in response.output if item.type == "message" for part in item.content]
        found[name] = [
            [note.type, note.url, part.text[note.start_index : note.end_index]]
            for part in parts
            for note in part.annotations
        ]
    told: list[Any] = []
    async for event in await client.responses.create(**asked("reporter"), stream=True):
        if event.type == "response.output_text.annotation.added":
            note: Any = event.annotation
            told.append(note["url"] if isinstance(note, dict) else note.url)
    return {**found, "events": told}


async def unicode(client: openai.AsyncOpenAI) -> Facts:
    return await in_every_way(client, asked("polyglot"))


async def parsed(client: openai.AsyncOpenAI) -> Facts:
    whole = await client.responses.parse(**asked("bookkeeper"), text_format=Order)
    async with client.responses.stream(**asked("bookkeeper"), text_format=Order) as stream:
        streamed = await stream.get_final_response()
    values = {"plain": whole.output_parsed, "helper": streamed.output_parsed}
    return {name: value and value.number for name, value in values.items()}


async def own_tool(client: openai.AsyncOpenAI) -> Facts:
    """The client's tool is called; its results go back with the whole input, or after the response."""
    found: Facts = {}
    for name, way in WAYS.items():
        for place in ("stateless", "by id"):
            first = await way(client, asked("forecaster", f"Weather, {name}, {place}?", tools=[WEATHER]))
            calls = [item for item in first.output if item.type == "function_call"]
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": "21"} for call in calls
            ]
            request: Facts = {"model": "forecaster", "tools": [WEATHER]}
            if place == "by id":
                request |= {"previous_response_id": first.id, "input": results}
            else:
                said = [item.model_dump(exclude_none=True) for item in first.output]
                words = {"role": "user", "content": f"Weather, {name}, {place}?"}
                request["input"] = [words, *said, *results]
            then = await way(client, request)
            found[f"{name}, {place}"] = {"first": summed_up(first), "then": summed_up(then)}
    return found


async def kept(client: openai.AsyncOpenAI) -> Facts:
    first = await client.responses.create(**asked("greeter"))
    shown = await client.responses.retrieve(first.id)
    again = await client.responses.create(**asked("greeter", previous_response_id=first.id))
    await client.responses.delete(first.id)
    unstored = await client.responses.create(**asked("greeter", store=False))
    return {
        "same": shown == first,
        "again": [again.previous_response_id == first.id, again.output_text],
        "deleted": await raised(client.responses.retrieve(first.id)),
        "continued": await raised(
            client.responses.create(**asked("greeter", previous_response_id=unstored.id))
        ),
    }


async def errors(client: openai.AsyncOpenAI) -> Facts:
    refused: Facts = {
        "background": {"background": True},
        "truncation": {"truncation": "auto"},
        "tools[0].type": {"tools": [{"type": "web_search"}]},
        "conversation": {"conversation": "c"},
        "include": {"include": ["message.output_text.logprobs"]},
        "input[0].type": {"input": [{"type": "item_reference", "id": "x"}]},
        "temperature": {"temperature": 7},
    }
    found = {
        name: await raised(client.responses.create(**{**asked("greeter"), **more}))
        for name, more in refused.items()
    }
    found["no key"] = await raised(connected(key="not-a-key").responses.create(**asked("greeter")))
    found["unknown model"] = await raised(raw(client, asked("stranger")))
    return found


async def broken(client: openai.AsyncOpenAI) -> Facts:
    events: list[Any] = []
    streamed = await raised(raw(client, asked("broken"), events))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    return {
        "raw": streamed,
        "text before": "".join(deltas),
        "helper": await raised(helped(client, asked("broken"))),
        "plain": await raised(plain(client, asked("broken"))),
    }


SCENES: list[Callable[[openai.AsyncOpenAI], Awaitable[Facts]]] = [
    greeting, blocking, transfer, reasoning, citations, unicode, parsed, own_tool, kept, errors, broken,
]  # fmt: skip


async def main() -> None:
    async with connected() as client:
        for scene in SCENES:
            try:
                facts = await asyncio.wait_for(scene(client), PATIENCE)
            except Exception as error:  # the test shows it; the other scenes are still played
                facts = {"failed": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps([scene.__name__, facts]) + "\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps(["version", openai.__version__]) + "\n")


asyncio.run(main())
