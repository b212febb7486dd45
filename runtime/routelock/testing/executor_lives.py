"""Lives of processes, as `routelock.testing.executor_contract` plays and compares them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import anyio
import anyio.lowlevel

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.context import RunContext, ToolContext
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request
from routelock.handlers.retry import Retry
from routelock.run.config import RunConfig
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.testing.executor_scenes import Killed, is_killed

__all__ = [
    "Dies",
    "Lives",
    "Use",
    "Watched",
    "check",
    "check_same",
    "facts",
    "model_call",
    "new_id",
    "outcome",
    "read",
    "tool_call",
]


T = TypeVar("T")

Use = Callable[[Executor], Awaitable[None]]
"""The code of one life of a process. It always raises, because the process is killed at its end."""


async def _no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


_QUICK = Retry(attempts=3, sleep=_no_sleep, jitter=lambda: 0.0)


def check(holds: bool, expected: str, found: object, why: str) -> None:
    """Raise an `AssertionError` with the expectation and its reason, unless it holds."""
    if not holds:
        raise AssertionError(f"Expected: {expected}.\nFound: {found}\nWhy it matters: {why}")


def check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], expected: str, why: str) -> None:
    """Check that two results have the same facts."""
    differ = [
        f"{key}: {found.get(key)!r}\n  instead of {each!r}"
        for key, each in wanted.items()
        if found.get(key) != each
    ]
    check(not differ, expected, "\n".join(["another one.", *differ]), why)


def facts(result: RunResult[Any]) -> dict[str, Any]:
    """Return the facts of a result that must be equal in two runs."""
    handoffs = [(each.source, each.target, each.turn, each.status) for each in result.handoffs]
    return {
        "final output": result.final_output,
        "messages": result.to_input_list(),
        "usage": result.usage,
        "handoffs": handoffs,
        "errors": [(each.kind, each.agent, each.turn, each.message) for each in result.errors],
        "stop reason": result.stop_reason,
        "nested": {call_id: facts(inner) for call_id, inner in result.nested.items()},
    }


class _Life(Generic[T]):
    """One life of a process, and its result or error."""

    def __init__(self, script: Callable[[Executor], Awaitable[T]]) -> None:
        self._script = script
        self.is_used = False
        self.results: list[T] = []
        """The result, if the process was not killed before."""
        self.error: Exception | None = None

    async def use(self, executor: Executor) -> None:
        """Play the life, and be killed."""
        if self.is_used:  # the engine tries again before the next life begins
            raise Killed
        self.is_used = True
        try:
            self.results.append(await self._script(executor))
        except Exception as error:
            self.error = error
        except BaseException as error:
            if not is_killed(error):
                raise
        raise Killed


class Watched:
    """An executor that notes its calls."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.calls: list[Call] = []

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Note a model call, and pass it on."""
        self.calls.append(call)
        return self._inner.stream(call, body)

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Note tool calls, and pass them on."""
        self.calls += calls
        return await self._inner.gather(calls, body)

    def keys(self) -> list[tuple[str, str]]:
        """Return the run id and the key of each call, by which an engine finds the step."""
        return [(call.run_id, call.key) for call in self.calls]


class Dies(RunHooks):
    """Kills a process after a number of moments of its run."""

    def __init__(self, after: int) -> None:
        self.left: int = after

    async def _happened(self) -> None:
        self.left -= 1
        if not self.left:
            raise Killed

    # on_tool_end is no such moment: a tool counts as done only after its hooks

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Request) -> None:
        """Count that a model call begins."""
        await self._happened()

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: MessageDone) -> None:
        """Count that a model call has ended."""
        await self._happened()

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        """Count that a tool begins."""
        await self._happened()

    async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        """Count that a handoff is made."""
        await self._happened()

    async def on_agent_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        """Count that an agent has an output."""
        await self._happened()


class Lives:
    """Plays lives of processes with the executor of an engine."""

    backend: ClassVar[str] = "asyncio"
    """The event loop in which `live` is awaited: ``"asyncio"`` or ``"trio"``."""
    streamed: ClassVar[bool] = False
    """Whether the runs are streamed. An engine that finds steps by their position needs that: a streamed run
    makes the steps of agents as tools one after the other."""

    async def live(self, run_id: str, use: Use) -> None:
        """Play one life of a process that has a run: make its executor, and await ``use(executor)``.

        The process dies at the end of ``use``, which always raises. The engine must not take the exception
        for the end of the run. The exception may leave this method.

        A test calls this method again with the same ``run_id`` for another process that resumes the run: make
        everything anew, and keep only what the engine has stored. Each test has run ids of its own.

        Args:
            run_id: the id of the run.
            use: the code of this life, to be awaited in the event loop in which the engine runs agents.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method live(run_id, use).")

    # How the tests play

    def _play(self, run_id: str, script: Callable[[Executor], Awaitable[T]]) -> list[T]:
        """Play one life, and return a list with the result of the script; empty if it was killed before."""
        life = _Life(script)
        try:
            anyio.run(self.live, run_id, life.use, backend=self.backend)
        except BaseException as error:
            if not is_killed(error) and life.error is None:
                raise
        if life.error is not None:
            raise life.error
        check(
            life.is_used,
            "that `live` awaits use(executor)",
            "it did not.",
            "without it, no run goes through the engine.",
        )
        return life.results

    async def _run(
        self,
        agent: Agent[Any],
        executor: Executor | None,
        run_id: str,
        hooks: RunHooks | None = None,
        config: RunConfig | None = None,
    ) -> RunResult[Any]:
        config = replace(config or RunConfig(), executor=executor, run_id=run_id, retry=_QUICK)
        if self.streamed:
            return await Runner.run_streamed(agent, "Hi", hooks=hooks, run_config=config).drain()
        return await Runner.run(agent, "Hi", hooks=hooks, run_config=config)

    def _result_of(
        self, run_id: str, agent: Agent[Any], hooks: RunHooks | None = None, config: RunConfig | None = None
    ) -> RunResult[Any] | None:
        """Return the result of a run in one life; None if it was killed."""

        async def script(executor: Executor) -> RunResult[Any]:
            return await self._run(agent, executor, run_id, hooks, config)

        results = self._play(run_id, script)
        return results[0] if results else None

    def _end(self, run_id: str, agent: Agent[Any], config: RunConfig | None = None) -> RunResult[Any]:
        """Return the result of a run that must come to its end in this life."""
        result = self._result_of(run_id, agent, config=config)
        assert result is not None, "The run was killed in a life in which the test kills nothing."
        return result

    def _alone(self, agent: Agent[Any], run_id: str) -> RunResult[Any]:
        """Return the result of a run without an executor."""
        config = RunConfig(fallback=True, run_id=run_id, retry=_QUICK)
        results: list[RunResult[Any]] = []

        async def run() -> None:
            results.append(await Runner.run(agent, "Hi", run_config=config))

        anyio.run(run, backend=self.backend)
        return results[0]

    def _watch(self, run_id: str, agent: Agent[Any]) -> Watched:
        """Return an executor that has noted the calls of a run."""

        async def script(executor: Executor) -> Watched:
            watched = Watched(executor)
            await self._run(agent, watched, run_id, config=RunConfig(fallback=True))
            return watched

        return self._play(run_id, script)[0]

    def _raised(
        self, run_id: str, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> Exception | None:
        """Return the exception of a model step; None if it raises none."""

        async def script(executor: Executor) -> Exception | None:
            try:
                await read(executor, call, body)
            except Exception as error:
                return error
            return None

        return self._play(run_id, script)[0]

    def _kill(self, run_id: str, agent: Agent[Any], config: RunConfig | None = None) -> None:
        """Play a life in which a tool kills the process."""
        result = self._result_of(run_id, agent, config=config)
        check(
            result is None,
            "that the process dies in the middle of a tool",
            "a result.",
            "an engine must not take an end of the process for an outcome of the step.",
        )


def new_id() -> str:
    """Return the id of a new run."""
    return f"contract-{os.urandom(8).hex()}"


def tool_call(run_id: str, number: int) -> Call:
    """Return one of the tool steps of a turn."""
    return Call(run_id, f"t1.tool.work.c{number}", "tool", {"name": "work", "number": number})


def model_call(run_id: str) -> Call:
    """Return a model step."""
    return Call(run_id, "t1.model.A", "model", {"agent": "A", "handler": "m"})


def outcome(text: str) -> Outcome:
    """Return the outcome of a tool step."""
    return {"ok": {"output": text, "usage": None}, "stop": False}


async def read(
    executor: Executor, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
) -> list[HandlerEvent]:
    """Return the events of a model step."""
    async with aclosing(executor.stream(call, body)) as events:
        return [event async for event in events]
