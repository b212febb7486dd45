"""Runs within a run: how an agent answers a call as a tool.

A nested run has a transcript, handoffs and turns of its own. It shares with the outer one the app's
context object, the shared memory (until it hands over with a payload, see `routelock.context`), the scopes,
the hooks, the settings and the executor. What it uses counts as the outer run's, and the limits of that one
hold for both together. The input and output guardrails of a run are about what enters and leaves it as a
whole, so they do not see nested runs; those of the agents do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from routelock._callables import is_spurious_cancel, resolve
from routelock._text import clip
from routelock.context import ToolContext
from routelock.errors import (
    ConfigError,
    GuardrailTripped,
    InputGuardrailTripped,
    LimitExceeded,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ToolError,
    ToolTimeout,
)
from routelock.handlers.events import HandlerEvent
from routelock.history.messages import ToolCall, text_of
from routelock.run.config import RunConfig
from routelock.run.events import NestedEvent, RunEvent
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.frames import failure_of
from routelock.run.run import Run
from routelock.run.start import start, with_trace
from routelock.run.timeouts import in_time
from routelock.tools.agent_tool import AgentCall
from routelock.tools.invoke import refusal_text
from routelock.tools.tool import Tool, ToolOutcome, outcome_of

if TYPE_CHECKING:
    from routelock.state.document import RunDocument

__all__ = ["Consultation", "Events", "GraceOver", "consultations", "step_key"]


Events = Callable[[Run], AsyncGenerator[RunEvent]]
"""`routelock.run.loop.run_events`, which is given to those below it."""

_DEEPEST = 20
"""So many runs may be within one another; each takes some frames of Python's stack."""

_LONGEST_PARTIAL = 1000


class GraceOver(Exception):
    """A nested run is cut off, because another call of the reply ends the run."""


@dataclass(slots=True, eq=False)
class Consultation:
    """One call of an agent tool."""

    run: Run
    """The outer one."""
    call: ToolCall
    tool: Tool
    asked: AgentCall
    text: str = ""
    """What the agent is asked."""
    inner: Run | None = None
    """The nested run, if there can be one."""
    refused: Exception | None = None
    """Why there is none."""
    outcome: ToolOutcome | None = None
    """How the call ended, once that is known."""
    seconds: float | None = None
    """How long the nested run of a streamed run may take, because another call ends the run."""

    def read(self) -> bool:
        """Find out what the agent is asked; return whether it can be."""
        try:
            self.text = self.asked.read(self.call["function"].get("arguments") or "")
        except ModelBehaviorError as error:
            text = refusal_text(self.tool.name, error)
            self.outcome = ToolOutcome(text, error="arguments", exception=error)
        except Exception as error:  # out of a validator of the app's
            self.refused = error
        return self.outcome is None and self.refused is None

    def prepare(self, share: int | None) -> None:
        """Make the nested run, which may have so many turns.

        Raises:
            ConfigError: it was stopped, and cannot go on with the agents that there are now.
        """
        run, name = self.run, self.tool.name
        stood = run.sub_runs.to_resume.get(self.call["id"])
        if share == 0 and stood is None:  # one that goes on may have a call to make that was approved
            turns = run.budget.max_turns or 0
            self.refused = MaxTurnsExceeded(
                f"Of the max_turns ({turns}) of the run, none is left for tool {name!r}: the last one is for "
                f"whoever called it. Raise {run.budget.set_by('turns', turns, 'max_turns')} of the run."
            )
            return
        if run.sub_runs.depth >= _DEEPEST:
            self.refused = LimitExceeded(f"{_DEEPEST} agents have asked one another already.")
            return
        most = self.asked.max_turns
        if share is not None:
            share += 0 if stood is None else stood.turn + stood.sub_run_turns
            most = share if most is None else min(most, share)
        if stood is not None:
            self.inner = _gone_on(run, self, most, stood)
            return
        try:
            self.inner = _begun(run, self, most)
        except ConfigError as error:
            self.refused = error

    async def answered(self, context: ToolContext[Any], events: Events) -> AsyncGenerator[NestedEvent]:
        """Answer the call, and yield what happens if the run is streamed. The outcome is in ``outcome``.

        There is none yet if the nested run waits for an approval.

        Raises:
            ToolError: it failed, and the tool's ``on_error`` is to stop the outer run.
            GraceOver: it took longer than ``seconds``.
        """
        if self.outcome is not None:
            return
        try:
            inner = self._ready()
            async with aclosing(self._within_grace(_carried_out(inner, self.tool, events))) as happening:
                async for event in happening:
                    if self.run.stream:
                        yield self._wrapped(event)
            if inner.ending.stop_reason != "requires_action":
                self.outcome = await self._answer(inner)
        except (AssertionError, GraceOver):  # a test's own complaint is no answer
            raise
        except Exception as error:
            self.outcome = await self._failed(context, error)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            cancelled = ToolError("it was cancelled from within")
            cancelled.__cause__ = error
            self.outcome = await self._failed(context, cancelled)

    def _within_grace(self, events: AsyncGenerator[RunEvent]) -> AsyncGenerator[RunEvent]:
        return events if self.seconds is None else in_time(events, self.seconds, GraceOver())

    def _ready(self) -> Run:
        if self.inner is None:
            assert self.refused is not None
            raise self.refused
        return self.inner

    def _wrapped(self, event: RunEvent) -> NestedEvent:
        name, call_id = self.run.frame.agent.name, self.call["id"]
        if isinstance(event, NestedEvent):
            return NestedEvent(
                path=(name, *event.path), call_ids=(call_id, *event.call_ids), event=event.event
            )
        return NestedEvent(path=(name, self.asked.agent.name), call_ids=(call_id,), event=event)

    async def _answer(self, inner: Run) -> ToolOutcome:
        output: Any = inner.ending.final_output
        if self.asked.output is not None:
            output = await resolve(self.asked.output(inner.result()))
        return outcome_of(output, self.tool.max_result)

    async def _failed(self, context: ToolContext[Any], error: Exception) -> ToolOutcome:
        """Let the tool's policy decide; a report says how far the agent came."""
        if isinstance(error, ToolTimeout) and self.inner is not None:
            error.result = self.inner.result()
        outcome = await self.tool.failed(context, error)
        if self.tool.on_error != "report" or self.inner is None:
            return outcome
        if isinstance(error, GuardrailTripped):  # what it stopped must not get round it
            return _not_quoted(outcome, self.tool, error)
        said = [text_of(item.message) for item in self.inner.transcript.items if item.kind == "model"]
        last = next(filter(None, reversed(said)), "")
        if not last:
            return outcome
        so_far = f"\nThe last that the agent said, which is no final answer: {clip(last, _LONGEST_PARTIAL)}"
        return replace(outcome, output=outcome.output + so_far)


def _not_quoted(outcome: ToolOutcome, tool: Tool, error: GuardrailTripped) -> ToolOutcome:
    """Leave out what a guardrail has reported, unless of what came in: it may quote what it stopped."""
    if isinstance(error, InputGuardrailTripped):
        return outcome
    return replace(outcome, output=f"Tool {tool.name!r} failed: {failure_of(error)}.")


def consultations(run: Run, calls: Sequence[tuple[ToolCall, Tool, AgentCall]]) -> list[Consultation]:
    """Make ready the calls of agent tools in one reply, so that they can be answered in any order.

    They share what the run has left of its turns, evenly, and one turn is kept for whoever asks: a
    budget that goes to whoever is first would make the result depend on the scheduler.
    """
    made = [Consultation(run, call, tool, asked) for call, tool, asked in calls]
    ready = [one for one in made if one.read()]
    for one, share in zip(ready, _shares(run, len(ready)), strict=True):
        one.prepare(share)
        if one.inner is not None:
            run.sub_runs.active[one.call["id"]] = one.inner
            run.budget.inner[one.call["id"]] = one.inner.budget
    return made


def _shares(run: Run, count: int) -> list[int | None]:
    if run.budget.max_turns is None:
        return [None] * count
    left = max(0, run.budget.max_turns - run.turn - run.budget.turns_within - 1)
    return [left // count + (place < left % count) for place in range(count)]


def _begun(run: Run, one: Consultation, max_turns: int | None) -> Run:
    config = _config(run, one)
    inner = start(one.asked.agent, one.text, run.context, max_turns, run.hooks, config, stream=run.stream)
    inner.memory.shared = run.memory.shared
    return _placed(inner, run, one)


def _gone_on(run: Run, one: Consultation, max_turns: int | None, stood: RunDocument) -> Run:
    from routelock.state.resume import restore_sub_run  # noqa: PLC0415 - for those that were stopped

    inner = with_trace(restore_sub_run(run, one.asked.agent, stood, max_turns, _config(run, one)))
    path = (*run.sub_runs.path, one.call["id"])
    earlier = run.calls.interruptions
    inner.calls.interruptions = tuple(each for each in earlier if each.path[: len(path)] == path)
    return _placed(inner, run, one)


def _placed(inner: Run, run: Run, one: Consultation) -> Run:
    path = (*run.sub_runs.path, one.call["id"])
    inner.sub_runs.depth, inner.sub_runs.path = run.sub_runs.depth + 1, path
    inner.sub_runs.outermost_id = run.sub_runs.outermost_id or run.run_id
    inner.calls.decisions, inner.budget.outer = run.calls.decisions, run.budget
    if inner.recorder is not None and run.recorder is not None:
        inner.recorder.within(run.recorder, one.call["id"])
    return inner


def _config(run: Run, one: Consultation) -> RunConfig:
    key = step_key(run, one.tool, one.call)
    return replace(
        run.config,
        handler=None,
        external_tools=(),
        input_guardrails=(),
        output_guardrails=(),
        on_limit="raise",  # an agent that ran out of budget has not answered
        timeout=None,  # that of the outer run goes on
        limits=None if run.config.limits is None else run.config.limits.for_sub_run(),
        executor=None if (executor := run.config.executor) is None else _Steps(executor, run.run_id, key),
        run_id=f"{run.run_id}/{key}",
    )


def step_key(run: Run, tool: Tool, call: ToolCall) -> str:
    """Return the key of a tool's step: unique in the run, and the same whenever it is replayed."""
    return f"t{run.turn}.tool.{tool.name}.{call['id']}"


async def _carried_out(inner: Run, tool: Tool, events_of: Events) -> AsyncGenerator[RunEvent]:
    """Carry out a nested run, as long as its tool may take."""
    events = events_of(inner)
    if tool.timeout is not None:
        late = ToolTimeout(f"Tool {tool.name!r} timed out after {tool.timeout:g}s.")
        events = in_time(events, tool.timeout, late)
    async with aclosing(events):
        async for event in events:
            yield event


@dataclass(frozen=True, slots=True)
class _Steps:
    """Passes the steps of a nested run to the executor of the outer one, as steps of that run.

    The call of the agent tool is no step itself: an engine that replays it then finds the steps within
    it, and goes on in the middle of a nested run.
    """

    executor: Executor
    run_id: str
    key: str

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        return self.executor.stream(self._outer(call), lambda _: body(call))

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        inner = {self._outer(call).key: call for call in calls}
        return await self.executor.gather(
            [self._outer(call) for call in calls], lambda step: body(inner[step.key])
        )

    def _outer(self, call: Call) -> Call:
        return replace(call, run_id=self.run_id, key=f"{self.key}/{call.key}")
