"""What the models of a random case say: good replies, bad ones, and none at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
from stress.world import Asked, World

from routelock import function_handler
from routelock.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ContextTooLong,
    HandlerError,
    IncompleteResponse,
    ModelBehaviorError,
    ProviderDefect,
    RateLimited,
    ServerFailed,
)
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Handler, Request
from routelock.usage import Usage

__all__ = ["Voice", "make_voice"]

FOR_EVER = 50_000.0
"""Seconds; longer than any limit of a case."""


class Alien:
    """Nothing that a handler may give."""

    def __repr__(self) -> str:
        return "<alien>"


@dataclass(frozen=True, slots=True)
class Said:
    """One reply, or the lack of one."""

    message: Any
    usage: Usage | None
    finish: str | None = None
    failure: BaseException | None = None
    when: str = "before"
    odd: str = ""
    hangs: bool = False
    broken: bool = False
    """Whether the message is no reply, so that what was shown of it before is all there is."""


class Voice:
    """A handler of a random case. It writes down what it is asked."""

    def __init__(self, world: World, name: str, inner: Handler, *, priority: int, expose: bool) -> None:
        self.name = name
        self.priority = priority
        self.expose = expose
        self.family = name[:3]
        self.world = world
        self.inner = inner

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        asked = Asked(self.name, replace(request, messages=tuple(request.messages)))
        self.world.asked.append(asked)
        self.world.open[self.name] += 1
        try:
            async with aclosing(self.inner.stream(request)) as events:
                async for event in events:
                    if isinstance(event, MessageDone) and not asked.done:
                        asked.done, asked.usage = True, event.usage
                    yield event
        finally:
            self.world.open[self.name] -= 1


def make_voice(world: World, dice: Random, name: str, *, priority: int = 50, expose: bool = False) -> Voice:
    """Return a handler of a random kind."""
    kind = dice.choice(["whole", "pieces", "always", "function", "generator", "chunks"])
    told = _Told(world, name, kind)
    inner: Any = told
    if kind in ("function", "generator", "chunks"):
        inner = function_handler(told.function if kind == "function" else told.generator, name=name)
    return Voice(world, name, inner, priority=priority, expose=expose)


class _Told:
    """A handler that says what the dice tell it."""

    def __init__(self, world: World, name: str, kind: str) -> None:
        self.world = world
        self.name = name
        self.kind = kind

    def _said(self, request: Request) -> Said:
        assert request.context is not None
        about = (request.context.run_id, request.turn, self.name)
        attempt = self.world.attempt(*about)
        return _say(self.world, request, (*about, attempt))

    async def function(self, request: Request) -> Any:
        said = self._said(request)
        await _begin(said)
        if said.failure is not None:
            raise said.failure
        if said.odd:
            return {"alien": Alien(), "two": 7, "none": None}[said.odd]
        usage = None if said.usage is None else _as_chat_usage(said.usage)
        message = said.message
        if isinstance(message, dict) and set(message) == {"role", "content"} and usage is None:
            return message["content"] or ""
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
            "usage": usage,
        }

    async def generator(self, request: Request) -> AsyncGenerator[Any]:
        said = self._said(request)
        await _begin(said)
        if said.failure is not None and said.when == "before":
            raise said.failure
        for piece in _pieces(said, chunks=self.kind == "chunks"):
            yield piece
            await anyio.lowlevel.checkpoint()
        if said.failure is not None:
            raise said.failure

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        said = self._said(request)
        await _begin(said)
        as_usual = said.failure is None and not said.odd and not said.broken
        for event in self._events(said, always=not as_usual, watched=request.stream):
            if isinstance(event, BaseException):
                raise event
            yield event
            await anyio.lowlevel.checkpoint()

    def _events(self, said: Said, *, always: bool, watched: bool) -> Iterator[Any]:
        """Yield events, and where it fails what it fails with."""
        fails = {said.when: said.failure} if said.failure is not None else {}
        if "before" in fails:
            yield fails["before"]
        if always or self.kind == "always" or (self.kind == "pieces" and watched):
            yield from _deltas(said.message)
        if "text" in fails:
            yield fails["text"]
        done = MessageDone(message=said.message, usage=said.usage, finish_reason=said.finish, model=self.name)
        yield from {"alien": ["not an event", done], "two": [done, done], "none": []}.get(said.odd, [done])
        if "done" in fails:
            yield fails["done"]


async def _begin(said: Said) -> None:
    await anyio.lowlevel.checkpoint()
    if said.hangs:
        await anyio.sleep(FOR_EVER)
        raise ConnectionFailed("it hung", retryable=False)


def _as_chat_usage(usage: Usage) -> dict[str, Any]:
    return {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}


def _deltas(message: Any) -> list[HandlerEvent]:
    if not isinstance(message, dict):
        return []
    found: list[HandlerEvent] = []
    if isinstance(thought := message.get("reasoning_content"), str) and thought:
        found.append(ReasoningDelta(thought))
    if isinstance(text := message.get("content"), str) and text:
        found += [TextDelta(text[:3]), TextDelta(text[3:])] if len(text) > 3 else [TextDelta(text)]
    calls = message.get("tool_calls")
    for index, made in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(made, dict) and isinstance(function := made.get("function"), dict):
            name, arguments = function.get("name"), function.get("arguments")
            if isinstance(name, str) and isinstance(arguments, str):
                found.append(ToolCallDelta(index, made.get("id") or "", name, arguments))
    return found


def _pieces(said: Said, *, chunks: bool) -> list[Any]:
    """Cut a reply into what an async generator may yield."""
    message = said.message
    if said.odd:
        return {"alien": [Alien()], "none": [], "two": [message, message]}[said.odd]
    if not chunks or not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        return [message]
    text = message.get("content") or ""
    deltas: list[Any] = [{"content": part} for part in (text[:2], text[2:9], text[9:]) if part]
    calls = message.get("tool_calls") or []
    for index, made in enumerate(calls if isinstance(calls, list) else ()):
        deltas.append({"tool_calls": [{"index": index, **made} if isinstance(made, dict) else made]})
    pieces: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": said.finish or "stop"}]})
    if said.usage is not None:
        pieces.append({"choices": [], "usage": _as_chat_usage(said.usage)})
    return pieces


# -- what is said --


def _say(world: World, request: Request, about: tuple[Any, ...]) -> Said:
    dice = world.dice("say", *about)
    mark = world.mark("say", *about)
    usage = dice.choice([None, *[Usage(1, dice.randint(0, 50), dice.randint(0, 50))] * 4])
    said = Said({"role": "assistant", "content": f"{mark} fine."}, usage, dice.choice(["stop", None]))
    if dice.random() < (0.75 if request.turn < 5 else 0.5 if request.turn < 9 else 0.3):
        return replace(
            said, message=_calling(dice, request, mark), finish=dice.choice(["tool_calls", "stop"])
        )
    way = dice.random()
    if way < 0.50:
        return said if request.output_schema is None else replace(said, message=_structured(dice, mark))
    if way < 0.70:
        return replace(said, message=_oddity(dice, request, mark), finish=dice.choice(["length", "weird"]))
    if way < 0.76:
        return replace(said, message=_garbage(dice, mark), broken=True)
    if way < 0.80:
        return replace(said, odd=dice.choice(["alien", "two", "none"]))
    if way < 0.84 and not world.threads:
        return replace(said, hangs=True)
    return replace(
        said, failure=_failure(dice, world), when=dice.choice(["before", "before", "text", "done"])
    )


def _structured(dice: Random, mark: str) -> dict[str, Any]:
    good = json.dumps({"word": mark, "count": dice.randint(0, 9)})
    return {"role": "assistant", "content": dice.choice([good, good, good[:-4], "[]", mark])}


def _calling(dice: Random, request: Request, mark: str) -> dict[str, Any]:
    count = dice.choice([1, 1, 1, 2, 2, 3, 5])
    transfers = dice.random() < 0.15
    calls = [_call(dice, request, f"{mark}{index}", transfers or not index) for index in range(count)]
    if dice.random() < 0.1:
        calls += calls[:1]  # the same id twice
    message: dict[str, Any] = {"role": "assistant", "content": dice.choice([None, "", f"{mark} let me see"])}
    if dice.random() < 0.1:
        message["reasoning_content"] = "hm"
        message["thinking_blocks"] = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    return {**message, "tool_calls": calls}


def _call(dice: Random, request: Request, mark: str, may_transfer: bool) -> dict[str, Any]:
    tools = {str(tool["function"]["name"]): tool["function"] for tool in request.tools}
    names = list(tools)
    transfers = [name for name in names if name.startswith("transfer_to_")]
    others = [name for name in names if name not in transfers]
    wanted = (names if dice.random() < 0.7 else transfers or names) if may_transfer else others or names
    if not wanted or dice.random() < 0.07:
        name = dice.choice(
            ["no_such_tool", "transfer_to_nobody", "", "weird name!", f"{(names or ['x'])[0]}7yu"]
        )
    else:
        name = dice.choice(wanted)
    return {
        "id": _id(dice, mark),
        "type": "function",
        "function": {"name": name, "arguments": _arguments(dice, mark, tools.get(name, {}))},
    }


def _id(dice: Random, mark: str) -> Any:
    way = dice.random()
    if way < 0.75:
        return mark.replace("~", "")
    return dice.choice(["", "", None, "same", "call_1_0", "call_2_0", "x" * 1500, "ü id", "unknown", 7])


def _arguments(dice: Random, mark: str, function: Any) -> str:
    mark = mark.replace("~", "")  # an answer may quote it
    if dice.random() < 0.85:
        values = {"x": dice.randint(0, 3), "count": 1, "reason": mark, "input": mark, "word": "w"}
        asked = function.get("parameters", {}).get("properties", {"x": 1})
        return json.dumps({name: values.get(name, 1) for name in asked})
    return dice.choice(
        [
            "",
            " ",
            "null",
            "[]",
            '"x"',
            '{"x": 1,',
            '{"x": 1e999}',
            '{"x": NaN}',
            '{"x": 1}{"x": 2}',
            '{"x": "\\ud800"}',
            '{"input": "\\ud800 half"}',
            '{"reason": "\\ud800"}',
            '{"x": "' + "y" * 20_000 + '"}',
            "[" * 3_000,
            '{"x": ' * 300 + "1" + "}" * 300,
            '{"input": ""}',
            '{"word": "w", "count": 1}',
            '{"unknown": true}',
        ]
    )


def _oddity(dice: Random, request: Request, mark: str) -> dict[str, Any]:
    """Return a reply that is allowed, and unusual."""
    message: dict[str, Any] = {"role": "assistant"}
    ways: Sequence[Callable[[], dict[str, Any]]] = (
        lambda: {"content": ""},
        lambda: {"content": None},
        lambda: {},
        lambda: {"content": " \n "},
        lambda: {"content": []},
        lambda: {"content": [{"type": "text", "text": f"{mark} part"}]},
        lambda: {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        lambda: {"content": "", "tool_calls": []},
        lambda: {"content": None, "refusal": f"{mark} no"},
        lambda: {"content": None, "reasoning_content": "hm"},
        lambda: {"content": mark + "z" * 50_000},
        lambda: {"content": f"{mark} \u2028 \x00 \x85 <CONVERSATION HISTORY> </CONVERSATION HISTORY>"},
        lambda: {"content": f"{mark} half \ud83d"},
        lambda: {"content": f"{mark} ok", "_private": 1, "unknown_key": {"a": [1]}},
        lambda: {"content": f"{mark}", "name": "somebody"},
        lambda: {"content": None, "audio": {"id": "a"}},
        lambda: {"content": f"{mark} transfer_to_b(reason)"},
        lambda: {**_calling(dice, request, mark), "content": [{"type": "text", "text": f"{mark} parts"}]},
    )
    return {**message, **dice.choice(ways)()}


def _garbage(dice: Random, mark: str) -> Any:
    """Return what is no reply at all."""
    call: dict[str, Any] = {"id": "g", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    return dice.choice(
        [
            "just text",
            None,
            7,
            {},
            {"role": "user", "content": mark},
            {"role": "assistant", "content": 7},
            {"role": "assistant", "content": [7, None]},
            {"role": "assistant", "content": ["text"]},
            {"role": "assistant", "content": mark, "tool_calls": {"a": 1}},
            {"role": "assistant", "content": mark, "tool_calls": [None]},
            {"role": "assistant", "content": mark, "tool_calls": [{}]},
            {"role": "assistant", "content": mark, "tool_calls": [{**call, "function": None}]},
            {"role": "assistant", "content": mark, "tool_calls": [{**call, "function": {}}]},
            {"role": "assistant", "content": mark, "tool_calls": [{**call, "function": {"name": 7}}]},
            {
                "role": "assistant",
                "content": mark,
                "tool_calls": [{**call, "function": {"name": "x", "arguments": {"x": 1}}}],
            },
            {"role": "assistant", "content": mark, "tool_calls": [{**call, "id": [], "type": None}]},
            {"role": "assistant", "content": mark, "thinking_blocks": 7, "reasoning_content": 7},
            {"role": "assistant", "content": {"text": mark}},
            {"role": "assistant", "content": mark, "refusal": 7},
        ]
    )


class BrokenWords(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _failure(dice: Random, world: World) -> BaseException:
    ways: list[Callable[[], BaseException]] = [
        lambda: ConnectionFailed("reset"),
        lambda: ServerFailed("overloaded", status=503),
        lambda: RateLimited("slow down", retry_after=dice.choice([0.0, 2.0, 900.0])),
        lambda: AuthenticationFailed("no key"),
        lambda: ContextTooLong("too long"),
        lambda: IncompleteResponse("cut"),
        lambda: ProviderDefect("a bug"),
        lambda: HandlerError("not today"),
        lambda: ModelBehaviorError("what is this"),
        lambda: ValueError("half \ud83d"),
        lambda: KeyError("x"),
        lambda: TimeoutError(),
        lambda: BrokenWords(),
        lambda: ExceptionGroup("several", [ValueError("one"), OSError("two")]),
        lambda: RecursionError("deep"),
    ]
    if world.asyncio:
        ways.append(lambda: asyncio.CancelledError("of its own"))
    return dice.choice(ways)()
