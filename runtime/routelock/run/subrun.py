"""Sub-runs: the runs that answer calls of agents as tools.

A sub-run has a transcript, handoffs and turns of its own. It shares the app's context object, the shared
memory (until it hands over with a payload, see `routelock.context`), the scopes, the hooks, the settings and
the executor with the outer run. Its usage counts for the outer run, whose limits hold for both together. The
guardrails of ``RunConfig`` check the input and output of the outermost run only; those of agents work in
sub-runs too. ``Agent.as_tool`` may give a sub-run settings, hooks, limits and a session of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import Event

from routelock._callables import is_spurious_cancel, resolve
from routelock._concurrency import call_in_time, in_time
from routelock._copies import own_copy
from routelock._text import clip
from routelock.agents.agent_tool import AgentCall
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
from routelock.history.messages import text_of
from routelock.run.config import RunConfig
from routelock.run.emit import call_hook
from routelock.run.events import NestedEvent, RunEvent
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.frames import failure_of
from routelock.run.limit_errors import set_by
from routelock.run.limits import Limits
from routelock.run.routing import RoutedCall
from routelock.run.run import Run
from routelock.run.start import replace_input, smaller, start, with_trace
from routelock.run.store import RunStore
from routelock.tools.failures import failed, refusal_text
from routelock.tools.outcome import ToolOutcome, outcome_of, to_text
from routelock.tools.screening import screen_arguments, screen_outcome

if TYPE_CHECKING:
    from routelock.sessions.session import Session
    from routelock.state.document import RunDocument
    from routelock.state.run_state import RunState

__all__ = [
    "Events",
    "GraceOver",
    "SubRun",
    "inner_config",
    "order_by_session",
    "prepare_sub_runs",
    "put_inside",
    "step_key",
]

T = TypeVar("T")


Events = Callable[[Run], AsyncGenerator[RunEvent]]
"""Carries out a run and yields its events: `loop.run_events`, which this module cannot import."""

_DEEPEST = 20
"""Sub-runs may be nested to this depth; each level takes several frames of Python's stack."""

_LONGEST_PARTIAL = 1000


class GraceOver(Exception):
    """A sub-run is cut off, because another call of the reply ended the run."""


class SubRun:
    """The run that answers a call of an agent as a tool."""

    __slots__ = (
        "after",
        "agent_call",
        "arguments",
        "call",
        "ended",
        "error",
        "inner",
        "is_stored",
        "is_waiting",
        "outcome",
        "outer",
        "seconds",
        "session",
        "value",
    )

    def __init__(self, outer: Run, call: RoutedCall, agent_call: AgentCall) -> None:
        self.outer: Run = outer
        self.call: RoutedCall = call
        self.agent_call: AgentCall = agent_call
        self.inner: Run | None = None
        """The run that answers the call; None if it cannot be started."""
        self.error: Exception | None = None
        """Why it cannot be started."""
        self.outcome: ToolOutcome | None = None
        """The outcome of the call, once there is one."""
        self.seconds: float | None = None
        """Time limit if the outer run is streamed and another call ended it; None for no limit."""
        self.value: Any = ""
        """The arguments as a text or a value of ``input_type`` ..."""
        self.arguments: Mapping[str, Any] = {}
        """... and by name."""
        self.is_stored: bool = False
        """Whether the inner run began before the outer run was resumed."""
        self.is_waiting: bool = False
        """Whether it waits for an approval, or for a sub-run that does."""
        self.session: Session | None = None
        self.after: SubRun | None = None
        """The sub-run that has the same session and must end before this one begins."""
        self.ended: Event | None = None
        """Set when this sub-run has ended, if others may wait for it."""
        try:
            self.value, self.arguments = agent_call.read(call.arguments)
        except ModelBehaviorError as error:
            text = refusal_text(call.tool.name, error)
            self.outcome = ToolOutcome(text, error="arguments", exception=error)
        except Exception as error:  # a validator of the app raised
            self.error = error

    async def wait_for_session(self) -> bool:
        """Wait for the sub-run that has the same session; return False if that one waits for an approval."""
        if self.after is None:
            return True
        if self.after.ended is not None:
            await self.after.ended.wait()
        self.is_waiting = self.after.is_waiting
        return not self.is_waiting

    def release_session(self) -> None:
        """Let the next sub-run with the same session begin; not called if this one raised and so ends all."""
        if self.ended is not None:
            self.ended.set()

    def prepare(self, share: int | None) -> None:
        """Create the inner run, or restore it if the outer run was resumed.

        Args:
            share: turns that it may take; None for no limit.

        Raises:
            ConfigError: its stored state does not match the agents of today.
        """
        run, most = self.outer, self.agent_call.max_turns
        stored = run.sub_runs.to_resume.get(self.call.id)
        if share == 0 and stored is None:  # a stored run may only have to make a call that was approved
            turns = run.budget.max_turns or 0
            setting = set_by(run.budget.limits, "turns", turns, "max_turns")
            self.error = MaxTurnsExceeded(
                f"Of the max_turns ({turns}) of the run, none is left for tool {self.call.name!r}: the last "
                f"one is for its caller. Raise {setting} of the run."
            )
            return
        if run.sub_runs.depth >= _DEEPEST:
            self.error = LimitExceeded(
                f"Agents that call agents as tools are nested {_DEEPEST} deep, which is the limit: go on "
                "without this call."
            )
            return
        self.is_stored = stored is not None
        limits: Limits = self.agent_call.settings.get("limits") or Limits()
        most = smaller(limits.turns, most)
        if share is not None:
            share += 0 if stored is None else stored.turn + stored.sub_run_turns
            most = share if most is None else min(most, share)
        try:
            self.inner = _inner_run(self, most, stored)
        except ConfigError as error:
            if stored is not None:
                raise
            self.error = error

    async def carry_out(self, context: ToolContext[Any], events: Events) -> AsyncGenerator[NestedEvent]:
        """Answer the call, and yield the events of the inner run if the outer one is streamed.

        The result is in ``outcome`` afterwards. It is None if the inner run waits for an approval.

        Raises:
            ToolError: the inner run failed, and the tool's ``on_error`` stops the outer run.
            ToolGuardrailTripped: a guardrail of the tool stopped the outer run.
            CallbackError: a guardrail of the tool raised.
            GraceOver: the inner run took longer than ``seconds``.
        """
        if self.outcome is not None:
            return
        context, records = replace(context, arguments=self.arguments), self.call.guardrails
        checked = context if records is None else replace(context, arguments=own_copy(self.arguments))
        if records is not None and self.inner is not None and not self.is_stored:
            values = self.value, self.arguments
            answer = await self._in_grace(partial(screen_arguments, self.call.tool, checked, values, records))
            if answer is not None:
                self.outcome = ToolOutcome(to_text(answer), error="guardrail")
                return
        async with aclosing(self._answer(context, events)) as happening:
            async for event in happening:
                yield event
        if records is not None and self.outcome is not None:
            check = partial(screen_outcome, self.call.tool, checked, self.outcome, records)
            self.outcome = await self._in_grace(check)

    async def _in_grace(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Call functions of the app within the grace period, if there is one."""
        if self.seconds is None:
            return await ask()
        return await call_in_time(ask, self.seconds, GraceOver)

    async def _answer(self, context: ToolContext[Any], events: Events) -> AsyncGenerator[NestedEvent]:
        """Carry out the inner run and take its outcome; see `carry_out`."""
        try:
            if self.inner is None:
                assert self.error is not None
                raise self.error
            if self.agent_call.input is not None and not self.is_stored:
                await self._in_grace(partial(self._make_input, self.inner, context))
            async with aclosing(self._events(self.inner, events)) as happening:
                async for event in happening:
                    nested = self._wrap(event) if self.inner.is_streamed else None
                    if nested is not None and self.agent_call.on_event is not None:
                        await self._show(context, nested)
                    if nested is not None and self.outer.is_streamed:
                        yield nested
            self.is_waiting = self.inner.ending.stop_reason == "requires_action"
            if not self.is_waiting:
                self.outcome = await self._outcome_of(self.inner)
        except (AssertionError, GraceOver):  # a failed assertion of a test is not a result
            raise
        except Exception as error:
            self.outcome = await self._failed(context, error)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            cancelled = ToolError("it raised a cancellation although nothing cancelled it")
            cancelled.__cause__ = error
            self.outcome = await self._failed(context, cancelled)

    async def _make_input(self, inner: Run, context: ToolContext[Any]) -> None:
        """Give the inner run what the ``input`` function of the tool makes of the arguments."""
        assert self.agent_call.input is not None
        replace_input(inner, await resolve(self.agent_call.input(context, self.value)))

    async def _show(self, context: ToolContext[Any], event: NestedEvent) -> None:
        """Call the ``on_event`` function of the tool."""
        name = f"on_event of {self.call.tool.name!r}"
        await call_hook(self.outer, name, self.agent_call.on_event, context, event)

    async def find_session(self, context: ToolContext[Any]) -> None:
        """Find the session of the inner run, which is stored in it turn by turn."""
        given, inner = self.agent_call.session, self.inner
        if given is None or inner is None or self.outcome is not None:
            return
        try:
            if callable(given):
                given = await resolve(given(replace(context, arguments=self.arguments)))
            if given is not None:
                inner.store = _store_of(self, inner, given)
        except Exception as error:
            self.inner, self.error = None, error
            return
        self.session = given

    def _events(self, inner: Run, run_events: Events) -> AsyncGenerator[RunEvent]:
        """Return the events of the inner run, within the ``timeout`` of its tool and the grace period."""
        tool, events = self.call.tool, run_events(inner)
        if tool.timeout is not None:
            late = ToolTimeout(f"Tool {tool.name!r} timed out after {tool.timeout:g}s.")
            events = in_time(events, tool.timeout, late)
        return events if self.seconds is None else in_time(events, self.seconds, GraceOver())

    def _wrap(self, event: RunEvent) -> NestedEvent:
        if not isinstance(event, NestedEvent):
            event = NestedEvent(path=(self.agent_call.agent.name,), call_ids=(), event=event)
        path, call_ids = (self.outer.frame.agent.name, *event.path), (self.call.id, *event.call_ids)
        return NestedEvent(path=path, call_ids=call_ids, event=event.event)

    async def _outcome_of(self, inner: Run) -> ToolOutcome:
        output: Any = inner.ending.final_output
        if self.agent_call.output is not None:
            output = await resolve(self.agent_call.output(inner.result()))
        return outcome_of(output, self.call.tool.max_result)

    async def _failed(self, context: ToolContext[Any], error: Exception) -> ToolOutcome:
        """Return the result of a failed sub-run, as the tool's ``on_error`` says.

        A report to the model has the last text of the agent.
        """
        if isinstance(error, ToolTimeout) and self.inner is not None:
            error.result = self.inner.result()
        tool = self.call.tool
        outcome = await failed(tool, context, error, of_agent=True)
        if tool.on_error != "report" or self.inner is None or isinstance(error, InputGuardrailTripped):
            return outcome
        if isinstance(error, GuardrailTripped):  # that of an output may quote what it stopped
            return replace(outcome, output=f"Tool {tool.name!r} failed: {failure_of(error)}.")
        texts = [text_of(item.message) for item in self.inner.transcript.items if item.kind == "model"]
        last = next(filter(None, reversed(texts)), "")
        if not last:
            return outcome
        so_far = f"\nThe agent's last message, which is not a final answer: {clip(last, _LONGEST_PARTIAL)}"
        return replace(outcome, output=outcome.output + so_far)


def prepare_sub_runs(run: Run, calls: Sequence[RoutedCall]) -> dict[str, SubRun]:
    """Prepare the calls of agents in one reply, so that they can be answered in any order.

    They share the turns that the run has left evenly, and one turn is reserved for the calling agent. If the
    first to start took all turns, the result would depend on the scheduler.

    Returns:
        the sub-runs by call id.
    """
    sub_runs = {
        call.id: SubRun(run, call, agent_call)
        for call in calls
        if isinstance(agent_call := call.tool.on_invoke_tool, AgentCall)
    }
    ready = [one for one in sub_runs.values() if one.outcome is None and one.error is None]
    for place, one in enumerate(ready):
        one.prepare(_share(run, place, len(ready)))
        if one.inner is not None:
            run.sub_runs.active[one.call.id] = one.inner
            run.budget.inner[one.call.id] = one.inner.budget
    return sub_runs


def order_by_session(sub_runs: Iterable[SubRun]) -> None:
    """Make sub-runs with the same session wait for one another, in call order.

    If they ran at the same time, the second would end with a `SessionConflict`.
    """
    newest: dict[str, SubRun] = {}
    for one in sub_runs:
        if one.session is not None:
            one.ended = Event()
            one.after, newest[one.session.name] = newest.get(one.session.name), one


def _store_of(one: SubRun, inner: Run, session: Session) -> RunStore:
    """Return the writer that stores an inner run in its session.

    Raises:
        ConfigError: this is no session.
    """
    if isinstance(session, type) or not hasattr(session, "store_of_sub_run"):
        called = f"The session function of {one.call.name!r}"
        raise ConfigError(f"{called} must return a Session or None, not {session!r:.80}.")
    state: RunState | None = None
    if one.is_stored:
        from routelock.state.resume import state_of_sub_run  # noqa: PLC0415 - only resumed runs need it

        state = state_of_sub_run(inner, one.outer.sub_runs.to_resume[one.call.id])
    is_replayed = inner.config.executor is not None
    return session.store_of_sub_run(state, outer=one.outer.store, is_replayed=is_replayed)


def _share(run: Run, place: int, count: int) -> int | None:
    """Return the number of turns for the sub-run at index ``place`` of ``count``; None for no limit."""
    if run.budget.max_turns is None:
        return None
    left = max(0, run.budget.max_turns - run.turn - run.budget.sub_run_turns - 1)
    return left // count + (place < left % count)


def _inner_run(one: SubRun, max_turns: int | None, stored: RunDocument | None) -> Run:
    """Start or restore an inner run, and give it its place, approvals, budget and trace."""
    outer, agent = one.outer, one.agent_call.agent
    config = inner_config(outer, step_key(outer, one.call), one.agent_call.settings)
    path = (*outer.sub_runs.path, one.call.id)
    stream = outer.is_streamed or one.agent_call.on_event is not None
    if stored is None:
        task = one.agent_call.text_of(one.value)
        inner = start(agent, task, outer.context, max_turns, None, config, stream=stream)
        inner.memory.shared = outer.memory.shared
    else:
        from routelock.state.resume import restore_sub_run  # noqa: PLC0415 - only resumed runs need it

        inner = with_trace(restore_sub_run(outer, agent, stored, max_turns, config, stream=stream))
        earlier = outer.open_calls.interruptions
        inner.open_calls.interruptions = tuple(each for each in earlier if each.path[: len(path)] == path)
    put_inside(outer, inner, one.call.id)
    inner.budget.own_limits = one.agent_call.settings.get("limits")
    if one.agent_call.hooks is not None:
        inner.hooks = (*outer.hooks, one.agent_call.hooks)
    return inner


def put_inside(outer: Run, inner: Run, call_id: str) -> None:
    """Give an inner run its place, approvals, budget, hooks and trace.

    Args:
        outer: the run around it.
        inner: the inner run.
        call_id: the call that it answers, or the key of its step.
    """
    inner.sub_runs.depth, inner.sub_runs.path = outer.sub_runs.depth + 1, (*outer.sub_runs.path, call_id)
    inner.sub_runs.outermost_id = outer.sub_runs.outermost_id or outer.run_id
    inner.open_calls.decisions, inner.budget.outer = outer.open_calls.decisions, outer.budget
    inner.hooks = outer.hooks
    if inner.recorder is not None and outer.recorder is not None:
        inner.recorder.set_outer(outer.recorder, call_id)


def inner_config(run: Run, key: str, own: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a run within another one: its own, and for the rest those of the outer run.

    Args:
        run: the outer run.
        key: the key of the step in which the inner run is carried out.
        own: the settings of ``as_tool(run_config=...)``.
    """
    config, executor = run.config, run.config.executor
    changed: dict[str, Any] = {
        "handler": None,
        "external_tools": (),
        "input_guardrails": (),
        "output_guardrails": (),
        "on_limit": "raise",  # at a limit, an agent has no answer
        "on_invalid_output": "raise",
        "on_refusal": "raise",
        "timeout": None,  # the timeout of the outer run holds
    }
    if own:
        changed |= _own_settings(own, config)
    return replace(
        config,
        **changed,
        limits=None if config.limits is None else config.limits.for_sub_run(),
        executor=None if executor is None else _OuterSteps(executor, run.run_id, key),
        run_id=f"{run.run_id}/{key}",
    )


def _own_settings(settings: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return the settings that ``as_tool(run_config=...)`` changes in those of the outer run.

    Of its limits, those on handoffs and time are options of the sub-run; `Budget` checks the others.
    """
    own = dict(settings)
    limits: Limits = own.pop("limits", None) or Limits()
    own["timeout"] = smaller(limits.seconds, own.get("timeout"))
    own["max_handoffs"] = smaller(limits.handoffs, own.get("max_handoffs", config.max_handoffs))
    own["model_settings"] = {**config.model_settings, **own.get("model_settings", {})}
    return own


def step_key(run: Run, call: RoutedCall) -> str:
    """Return the key of a tool's step: unique in the run, and the same at each replay."""
    answered = "" if call.answer is None else f".answer{call.answer.number}"
    return f"t{run.turn}.tool.{call.name}.{call.id}{answered}"


@dataclass(frozen=True, slots=True)
class _OuterSteps:
    """Passes the steps of a sub-run to the executor as steps of the outer run.

    The call of the agent is no step itself. So an engine that replays finds the steps within it, and can go
    on in the middle of a sub-run.
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
