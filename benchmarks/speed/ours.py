"""routelock with each of its handlers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from routelock import Agent, Runner, function_tool
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.usage import Usage
from routelock_providers import LiteLLM, OpenAICompatible, close_litellm
from routelock_providers.chat_completions.openai import OpenAI
from speed.scene import ANSWER, KEY, MODEL, SPECIALIST, TRIAGE, lookup
from speed.script import Script

__all__ = ["Direct", "Loop", "Scripted", "ThroughLiteLLM", "ThroughOpenAI"]

_NO_LIMIT = 10_000


class _Ours:
    """The agents. A subclass says which handler answers."""

    def __init__(self, url: str) -> None:
        self.handler: Any = self.make(url)
        tool = function_tool(lookup)
        self._plain = Agent("plain", SPECIALIST, model=self.handler)
        self._specialist = Agent("specialist", SPECIALIST, model=self.handler, tools=[tool])
        self._triage = Agent("triage", TRIAGE, model=self.handler, handoffs=[self._specialist])

    def make(self, url: str) -> Any:
        """Return the handler."""
        raise NotImplementedError

    async def s1(self, text: str) -> Any:
        return (await Runner.run(self._plain, text)).final_output

    async def s2(self, text: str) -> Any:
        return (await Runner.run(self._specialist, text, max_turns=_NO_LIMIT)).final_output

    async def s3(self, text: str) -> Any:
        return (await Runner.run(self._triage, text)).final_output

    async def stream(self, text: str) -> Any:
        count = 0
        async with Runner.run_streamed(self._plain, text) as events:
            async for event in events:
                if event.type == "text_delta":
                    count += 1
        return count

    async def aclose(self) -> None:
        await self.handler.aclose()


class Loop(_Ours):
    """The loop alone: a model that is a function."""

    def make(self, url: str) -> Any:
        return Scripted()

    async def aclose(self) -> None: ...


class Scripted:
    """A model that is a function."""

    name = "scripted"

    def __init__(self) -> None:
        self._script = Script()

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        if request.stream:
            for _ in range(self._script.chunks(str(request.messages[1].get("content")))):
                yield TextDelta("tok0 ")
        call = self._script.next_call(request.messages, request.tools)
        message: Any = {"role": "assistant", "content": None if call else ANSWER}
        if call:
            call_id, name, arguments = call
            function = {"name": name, "arguments": arguments}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        yield MessageDone(message=message, usage=Usage(requests=1, input_tokens=50, output_tokens=10))


class Direct(_Ours):
    """`OpenAICompatible`."""

    def make(self, url: str) -> Any:
        return OpenAICompatible(MODEL, base_url=url, api_key=KEY)


class ThroughOpenAI(_Ours):
    """`OpenAI`, on the openai library."""

    def make(self, url: str) -> Any:
        return OpenAI(MODEL, base_url=url, api_key=KEY)


class ThroughLiteLLM(_Ours):
    """`LiteLLM`."""

    def make(self, url: str) -> Any:
        return LiteLLM(f"openai/{MODEL}", api_base=url, api_key=KEY)

    async def aclose(self) -> None:
        await close_litellm()
