"""One run with everything in it, for tests that stop it at any place.

Tools that are async and sync, at the same time and failing; an agent as a tool; a handoff that returns and
one that does not, with consent, callbacks, filters, a payload and places that are limited; guardrails, hooks
and instructions that wait; a call that is retried.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio.lowlevel
from scenes import AgentRecorder, Recorder

from routelock import Agent, HandoffRequest, Retry, RunConfig, Runner, RunResult, RunStream, handoff
from routelock import function_tool as tool
from routelock.errors import ConnectionFailed
from routelock.guardrails import GuardrailResult
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.handoffs.capabilities import Capacity
from routelock.history.filters import HandoffInputData, remove_all_tools
from routelock.history.messages import Message
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, call, reply

USER: Message = {"role": "user", "content": "Go on."}


async def _checkpoint() -> None:
    await anyio.lowlevel.checkpoint()


class Voice(ScriptedHandler):
    """A scripted handler that waits around each event, and knows what of it is open."""

    def __init__(self, office: Office, name: str, *replies: Any) -> None:
        super().__init__(replies, name=name)
        self.office = office

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        self.office.open.append(self.name)
        try:
            await self.office.wait()
            async with aclosing(super().stream(request)) as events:
                async for event in events:
                    await self.office.wait()
                    yield event
        finally:
            self.office.open.remove(self.name)

    def say(self, text: str) -> None:
        """Say this from now on, whatever the script has left."""
        self.replies = [*self.replies[: len(self.requests)], text]


@dataclass(eq=False)
class Office:
    """The team, and what its runs leave behind."""

    wait: Callable[[], Any] = _checkpoint
    """Awaited by all the code of the app."""
    threads: bool = True
    """Whether there is a sync tool."""
    voices: dict[str, Voice] = field(default_factory=dict[str, Voice])
    open: list[str] = field(default_factory=list[str])
    """Names of the handlers that are answering."""
    done: list[str] = field(default_factory=list[str])
    """What async tools did."""
    capacity: Capacity = field(default_factory=lambda: Capacity({"clerk": 1, "expert": 1}))

    def __post_init__(self) -> None:
        self.hooks = Recorder(self.wait)
        self.desk = self._desk()

    def config(self, **more: Any) -> RunConfig:
        quick = Retry(sleep=self._sleep, jitter=lambda: 0.0)
        guardrails = {"input_guardrails": [self._fine], "output_guardrails": [self._fine]}
        return RunConfig(**{"run_id": "r", "retry": quick, "capacity": self.capacity, **guardrails, **more})

    def settings(self, **more: Any) -> Any:
        return {"hooks": self.hooks, "max_turns": 30, "run_config": self.config(**more)}

    def stream(self, **more: Any) -> RunStream:
        return Runner.run_streamed(self.desk, "Hi", **self.settings(**more))

    async def run(self, **more: Any) -> RunResult[Any]:
        return await Runner.run(self.desk, "Hi", **self.settings(**more))

    # -- the team --

    def _desk(self) -> Agent[Any]:
        add, fail, block = self._tools()
        helper = self._agent("helper", call("add", {"number": 7}), "Seven.", tools=[add])
        expert = self._agent("expert", call("add", {"number": 8}), "I know.", tools=[add])
        calls = [call("add", {"number": 5}), call("add", {"number": 6})]
        clerk = self._agent("clerk", calls, "Done.", tools=[add], on_handoff_request=self._accept)
        handoffs = [
            handoff(expert, return_to_caller=True, nest_handoff_history=True, on_handoff=self._noted),
            handoff(clerk, input_filter=self._words_only, on_handoff=self._noted, payload=self._payload),
        ]
        first = [call("add", {"number": 1}), call("fail"), call("add", {"number": 2})]
        if self.threads:
            first.append(call("block"))
        script = (
            ConnectionFailed("reset"),
            reply("Let me see.", calls=first),
            [call("helper", {"input": "Seven?"}), call("add", {"number": 3})],
            call("transfer_to_expert"),
            [call("transfer_to_clerk"), call("add", {"number": 4}), call("transfer_to_expert")],
        )
        tools = [add, fail, block, helper.as_tool("helper")]
        return self._agent("desk", *script, tools=tools, handoffs=handoffs)

    def _agent(self, name: str, *script: Any, **options: Any) -> Agent[Any]:
        async def instructions(*given: Any) -> str:
            await self.wait()
            return f"You are {name}."

        self.voices[name] = Voice(self, name, *script)
        guardrails = {"input_guardrails": [self._fine], "output_guardrails": [self._fine]}
        hooks = AgentRecorder()
        return Agent(name, instructions, model=self.voices[name], hooks=hooks, **guardrails, **options)

    def _tools(self) -> tuple[Any, Any, Any]:
        @tool
        async def add(number: int) -> str:
            """Add a number."""
            await self.wait()
            self.done.append(f"add {number}")
            return f"added {number}"

        @tool
        async def fail() -> str:
            """Fail."""
            await self.wait()
            raise ValueError("broken")

        @tool
        def block() -> str:
            """Work in a thread."""
            return "blocked"

        return add, fail, block

    async def _fine(self, *given: Any) -> GuardrailResult:
        await self.wait()
        return GuardrailResult(tripwire_triggered=False)

    async def _accept(self, request: HandoffRequest) -> None:
        await self.wait()

    async def _noted(self, *given: Any) -> None:
        await self.wait()

    async def _payload(self, *given: Any) -> dict[str, Any]:
        await self.wait()
        return {"handoff_type": "quick_lookup", "context_data": {"order": 7}}

    async def _words_only(self, data: HandoffInputData) -> HandoffInputData:
        await self.wait()
        return remove_all_tools(data)

    async def _sleep(self, seconds: float) -> None:
        await self.wait()

    # -- afterwards --

    async def check(self, result: RunResult[Any] | None) -> None:
        """Whatever happened: valid, counted, answered, closed, and ready for the next run."""
        assert self.open == []
        assert (self.capacity.free("clerk"), self.capacity.free("expert")) == (1, 1)
        if result is not None:
            self._check_books(result)
        for voice in self.voices.values():
            voice.say("Here I am.")
        asked = len(self.voices["desk"].requests)
        before: list[Message] = [] if result is None else result.to_input_list()
        after = await Runner.run(self.desk, [*before, USER], **self.settings())
        assert (after.final_output, after.last_agent.name) == ("Here I am.", "desk")
        assert after.context.shared_memory == {}
        (request,) = self.voices["desk"].requests[asked:]
        assert problems(request.messages) == []

    def _check_books(self, result: RunResult[Any]) -> None:
        assert problems([*result.to_input_list(), USER]) == []
        begun = sum(len(voice.requests) for voice in self.voices.values())
        # a call that was cancelled before its handler was reached may count, and one that waits to be retried
        assert begun <= result.usage.requests <= begun + 2
        items = [*result.items, *(item for inner in result.nested.values() for item in inner.items)]
        said = [str(item.message.get("content")) for item in items if item.kind == "tool"]
        assert len(self.done) == len(set(self.done))
        for effect in self.done:
            assert effect.replace("add", "added") in said, effect


@contextmanager
def generators_closed() -> Generator[None]:
    """Check that every async generator that is begun in the block comes to its end in it.

    They are kept alive, so none is closed by the collector.
    """
    begun: list[Any] = []
    before = sys.get_asyncgen_hooks()

    def note(generator: Any) -> None:
        begun.append(generator)
        if before.firstiter is not None:
            before.firstiter(generator)

    sys.set_asyncgen_hooks(firstiter=note)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*before)
    left = [generator.__qualname__ for generator in begun if generator.ag_frame is not None]
    assert left == []


class Strikes:
    """Awaits a coroutine, and strikes as it waits for the k-th time, whoever's `await` that is."""

    def __init__(self, coroutine: Any, k: int, strike: Callable[[], Any]) -> None:
        self.coroutine = coroutine
        self.k = k
        self.strike = strike
        self.waited = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step, given = self.coroutine.send, None
        while True:
            try:
                out = step(given)
            except StopIteration as ended:
                return ended.value
            self.waited += 1
            if self.waited == self.k:
                self.strike()
            try:
                step, given = self.coroutine.send, (yield out)
            except BaseException as error:
                step, given = self.coroutine.throw, error
