"""An unmodified `openai` client asks the served agents; each line it prints is what it saw in one scene.

usage: openai_client.py URL BUSY_URL KEY

It imports nothing but the client, so that it runs with nothing else installed. openai_client.mjs plays
the same scenes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import openai

PATIENCE = 60.0
"""Seconds after which a scene has failed: far more than any takes."""
URL, BUSY_URL, KEY = sys.argv[1:]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "strict": True,  # the helper of openai 2 takes no other tools
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}

Facts = dict[str, Any]


def connected(url: str = URL, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE)


def asked(model: str, text: str = "Hello?", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def calls_in(message: Any) -> list[list[str]]:
    return [[call.id, call.function.name, call.function.arguments] for call in message.tool_calls or ()]


def consumed(usage: Any) -> list[int] | None:
    return usage and [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def summed_up(completion: Any) -> Facts:
    (choice,) = completion.choices
    return {
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "calls": calls_in(choice.message),
        "usage": consumed(completion.usage),
    }


async def plain(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Facts:
    completion = await client.chat.completions.create(**request)
    assert completion.object == "chat.completion"
    assert completion.choices[0].message.role == "assistant"
    return summed_up(completion)


async def raw(client: openai.AsyncOpenAI, request: dict[str, Any], chunks: list[Any] | None = None) -> Facts:
    """Iterate the chunks and put them together as the API reference says."""
    chunks = [] if chunks is None else chunks
    async for chunk in await client.chat.completions.create(**request, stream=True):
        chunks.append(chunk)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    calls: dict[int, list[str]] = {}
    for choice in choices:
        for piece in choice.delta.tool_calls or ():
            call = calls.setdefault(piece.index, ["", "", ""])
            call[0] += piece.id or ""
            call[1] += piece.function.name or ""
            call[2] += piece.function.arguments or ""
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1, "one answer has one id"
    assert {choice.index for choice in choices} == {0}
    assert choices[0].delta.role == "assistant"
    return {
        "text": "".join(choice.delta.content or "" for choice in choices) or None,
        "finish": "+".join(choice.finish_reason for choice in choices if choice.finish_reason),
        "calls": [calls[index] for index in range(len(calls))],
        "usage": next((consumed(chunk.usage) for chunk in chunks if chunk.usage), None),
        "chunks without choices": sum(not chunk.choices for chunk in chunks),
    }


async def helped(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Facts:
    """Let the client's own helper put the chunks together."""
    deltas: list[str] = []
    kinds: set[str] = set()
    async with client.chat.completions.stream(**request) as stream:
        async for event in stream:
            kinds.add(event.type)
            if event.type == "content.delta":
                deltas.append(event.delta)
        completion = await stream.get_final_completion()
    facts = summed_up(completion)
    assert "".join(deltas) == (facts["text"] or "")
    assert not any("tool_calls" in kind for kind in kinds) or facts["calls"]
    return facts


async def raised(work: Awaitable[Any]) -> Facts:
    try:
        answer = await work
    except openai.APIError as error:
        return {
            "class": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "message": error.message,
            "has body": isinstance(error.body, dict),
        }
    return {"class": None, "answer": answer}


async def three_ways(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Facts:
    counted = {**request, "stream_options": {"include_usage": True}}
    return {
        "plain": await plain(client, request),
        "raw": await raw(client, request),
        "raw with usage": await raw(client, counted),
        "helper": await helped(client, request),
        "helper with usage": await helped(client, counted),
    }


async def models(client: openai.AsyncOpenAI) -> Facts:
    listed = [model async for model in client.models.list()]
    assert {model.object for model in listed} == {"model"}
    one = await client.models.retrieve("greeter")
    return {"ids": sorted(model.id for model in listed), "one": one.id}


async def greeting(client: openai.AsyncOpenAI) -> Facts:
    return await three_ways(client, asked("greeter"))


async def blocking(client: openai.AsyncOpenAI) -> Facts:
    """The client that needs no event loop, in a thread."""

    def ask() -> Facts:
        with openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=PATIENCE) as blocked:
            whole = blocked.chat.completions.create(**asked("greeter"))
            with blocked.chat.completions.create(**asked("greeter"), stream=True) as stream:
                pieces = [choice.delta.content or "" for chunk in stream for choice in chunk.choices]
        return {"plain": whole.choices[0].message.content, "streamed": "".join(pieces)}

    return await asyncio.to_thread(ask)


async def transfer(client: openai.AsyncOpenAI) -> Facts:
    return await three_ways(client, asked("desk"))


async def own_tool(client: openai.AsyncOpenAI) -> Facts:
    """The client's tool is called; its answer goes back, and the rest of the answer comes."""
    found: Facts = {}
    ways = {"plain": plain, "raw": raw, "helper": helped}
    for name, way in ways.items():
        request = asked("forecaster", f"Weather, {name}?", tools=[WEATHER])
        first = await way(client, request)
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in first["calls"]
        ]
        said = {"role": "assistant", "content": first["text"], "tool_calls": calls}
        answers = [{"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"} for call in calls]
        request["messages"] += [said, *answers]
        found[name] = {"first": first, "then": await way(client, request)}
    return found


async def errors(client: openai.AsyncOpenAI) -> Facts:
    create = client.chat.completions.create
    stranger = connected(key="not-a-key")
    return {
        "no key": await raised(stranger.chat.completions.create(**asked("greeter"))),
        "no key, models": await raised(stranger.models.list()),
        "no key, streamed": await raised(raw(stranger, asked("greeter"))),
        "unknown model": await raised(create(**asked("nobody"))),
        "unknown model, streamed": await raised(raw(client, asked("nobody"))),
        "bad request": await raised(create(model="greeter", messages=[])),
        "too large": await raised(create(**asked("greeter", "x" * 2_000_000))),
    }


async def busy(client: openai.AsyncOpenAI) -> Facts:
    """One run holds the only place; the next is refused, and served once that place is free."""
    small = connected(BUSY_URL)
    stream = await small.chat.completions.create(**asked("endless", "busy"), stream=True)
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    refused = await raised(small.chat.completions.create(**asked("greeter")))
    await stream.close()
    for _ in range(1200):
        again = await raised(small.chat.completions.create(**asked("greeter")))
        if again["class"] is None:
            break
        await asyncio.sleep(0.05)
    return {"refused": refused, "again": again["class"]}


async def broken(client: openai.AsyncOpenAI) -> Facts:
    chunks: list[Any] = []
    request = asked("broken")
    streamed = await raised(raw(client, request, chunks))
    seen = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    return {
        "raw": {**streamed, "text before": seen, "finishes": finishes},
        "helper": await raised(helped(client, request)),
        "plain": await raised(plain(client, request)),
    }


async def leaving(client: openai.AsyncOpenAI) -> Facts:
    """Close a stream after its first text; what became of the run is for the server to say."""
    stream = await client.chat.completions.create(**asked("endless", "leaving"), stream=True)
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    await stream.close()
    return {"text": chunk.choices[0].delta.content}


async def slow(client: openai.AsyncOpenAI) -> Facts:
    return {
        "plain": await plain(client, asked("slow")),
        "raw": await raw(client, asked("slow")),
        "helper": await helped(client, asked("slow")),
    }


async def unicode(client: openai.AsyncOpenAI) -> Facts:
    return await three_ways(client, asked("polyglot"))


async def together(client: openai.AsyncOpenAI) -> Facts:
    """Two streams at once; the server makes them take turns, piece by piece."""
    left, right = await asyncio.gather(
        raw(client, asked("duet", "left")), raw(client, asked("duet", "right"))
    )
    return {"left": left["text"], "right": right["text"]}


SCENES: list[Callable[[openai.AsyncOpenAI], Awaitable[Facts]]] = [
    models, greeting, blocking, transfer, own_tool, errors, busy, broken, leaving, slow, unicode, together,
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
