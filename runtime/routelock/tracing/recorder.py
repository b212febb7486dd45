"""Writes what happens in a run to each `Trace` of it, without letting a trace break the run.

A message that was shown before is named by its number in later records, so that a trace grows with the run
and not with its square.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from routelock._callables import error_text
from routelock._redaction import redact
from routelock._text import preview
from routelock.agents.agent import Agent
from routelock.context import PAYLOAD_KEY
from routelock.errors import ConfigError
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone
from routelock.handlers.port import Handler, Request, ToolSpec, model_of
from routelock.handoff_request import recordable
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import Message, RunItem, ToolCall, is_note, portable
from routelock.history.notes import unforged
from routelock.run.config import RunConfig, listed
from routelock.run.emit import (
    HandoffMade,
    HandoffNoted,
    ModelCallBegins,
    ModelCallEnds,
    ModelCallRetried,
    Moment,
    RunBegins,
    RunEnds,
    ToolBegins,
    ToolEnds,
    log,
)
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.result import HandoffRecord, Problem, Shown
from routelock.run.run import Run
from routelock.tools.agent_tool import AgentCall
from routelock.tools.tool import ToolOutcome
from routelock.tracing.file import TraceFile
from routelock.tracing.records import (
    FORMAT,
    AgentTraced,
    EdgeTraced,
    ErrorTraced,
    HandoffTraced,
    ItemTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    ProblemTraced,
    RunEnded,
    RunStarted,
    Span,
    TookOver,
    ToolEnded,
    ToolStarted,
    ToolsTraced,
    TraceRecord,
    spans,
)

__all__ = [
    "Accounted",
    "Accounts",
    "Recorder",
    "Trace",
    "TraceWriter",
    "Within",
    "agent_traced",
    "error_traced",
    "handoff_traced",
    "problem_traced",
    "traced",
]


class TraceWriter(Protocol):
    """Is given what happens in one run.

    It may have a method ``inside(call_id)`` as well, which returns a context manager. The tool of that call
    runs within it; with None for the id, the handler does, each time that it works, but not while its events
    are shown.
    """

    def write(self, record: TraceRecord, /) -> None:
        """Take one record. It must not wait, and must not change what is in it.

        One that raises is not asked again in that run; what it raised is on ``RunResult.errors``.
        """
        ...


class Trace(Protocol):
    """Takes traces of runs, see ``RunConfig.trace``. Any number of runs may use one at the same time."""

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> TraceWriter:
        """Return what is given the records of a run that begins.

        Args:
            start: the first of them; it is not given to the writer again.
            parent: what this trace returned for the run within which that run is, if there is one.
        """
        ...


class Recorder(Protocol):
    """Writes what happens in a run to its traces; a run without a trace has none."""

    def within(self, outer: Recorder, call_id: str) -> None:
        """Be that of a run which answers a call of another one."""
        ...

    def write(self, moment: Moment) -> None:
        """Write what a moment adds, and everything that is new on the run since the last one."""
        ...

    def inside(self, call_id: str | None) -> AbstractContextManager[None]:
        """Return that within which a tool runs, or the handler that makes the model call."""
        ...

    def handler(self) -> Handler:
        """Return the active handler, or one around it that works within what the writers want."""
        ...


class Within:
    """A handler that works within a context manager of a trace, entered anew for each of its steps.

    Between them somebody else may have the word, and may read on in another task or never: what was entered
    in one context could then only be left in another one.
    """

    def __init__(self, inner: Handler, inside: Callable[[str | None], AbstractContextManager[None]]) -> None:
        self.name = inner.name
        self._inner = inner
        self._inside = inside

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Answer as the handler does."""
        events = self._inner.stream(request)
        # what is no generator is for `routelock.handlers.retry` to complain about
        return self._steps(events) if hasattr(events, "__aiter__") and hasattr(events, "aclose") else events

    async def _steps(self, events: AsyncGenerator[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
        steps = aiter(events)
        try:
            while True:
                with self._inside(None):
                    try:
                        event = await anext(steps)
                    except StopAsyncIteration:
                        return
                yield event
        finally:
            with self._inside(None):
                await events.aclose()


def error_traced(error: BaseException | None) -> ErrorTraced | None:
    """Return an exception as it is written."""
    return None if error is None else ErrorTraced(type=type(error).__name__, message=error_text(error))


def agent_traced(agent: Agent[Any], config: RunConfig) -> AgentTraced:
    """Return an agent as it is written, with the handlers that the run may reach."""
    asked = [(tool.name, tool.on_invoke_tool) for tool in agent.all_tools]
    return AgentTraced(
        name=agent.name,
        description=agent.handoff_description or "",
        handlers=[each.name for each in handlers_by_priority(agent, config)],
        tools=[name for name, _ in asked],
        agent_tools={name: how.agent.name for name, how in asked if isinstance(how, AgentCall)},
        handoffs=[_edge(edge) for edge in agent.edges],
    )


def _edge(edge: Handoff) -> EdgeTraced:
    return EdgeTraced(
        tool_name=edge.tool_name,
        target=edge.agent_name,
        others=[other if isinstance(other, str) else other.name for other in edge.others],
        to_handler=edge.to_handler is not None,
        returns=edge.return_to_caller,
    )


def handoff_traced(run_id: str, now: float, record: HandoffRecord) -> HandoffTraced:
    """Return a transfer as it stands."""
    return HandoffTraced(
        run=run_id,
        time=now,
        id=record.id,
        source=record.source,
        target=record.target,
        tool_name=record.tool_name,
        call_id=record.call_id,
        turn=record.turn,
        status=record.status.value,
        tried=record.tried,
        requested_by=record.requested_by,
        reason=record.reason,
        input=record.input,
        error=record.error,
        passed_over=[*record.passed_over],
        parent_id=record.parent_id,
        depth=record.depth,
        started=record.started,
        ended=record.ended,
        usage=record.usage,
    )


def problem_traced(run_id: str, now: float, problem: Problem) -> ProblemTraced:
    """Return a problem as it is written."""
    return ProblemTraced(
        run=run_id,
        time=now,
        kind=problem.kind,
        agent=problem.agent,
        turn=problem.turn,
        message=problem.message,
        call_id=problem.call_id,
        error=error_traced(problem.error),
    )


_OWN_WORDS = frozenset(("summary", "filter", "note"))
"""Kinds of items that are nobody's words in the transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """What became of the messages of the transcript in one model call, and what is to be written before."""

    unwritten: Sequence[ItemTraced | ToolsTraced]
    shown: Sequence[Span]
    removed: Sequence[Span]
    summarised: Sequence[Span]
    told: Sequence[Span]
    tools: int | None


@dataclass(frozen=True, slots=True)
class _Form:
    """A message that is not in the transcript as it is."""

    message: Message
    """Held, so that no other message can have its identity."""
    kind: str
    stands_for: int | None = None
    covers: Sequence[int] = ()


class Accounts:
    """The numbers of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._written = 0
        self._numbers: dict[int, int] = {}
        self._forms: dict[int, _Form] = {}
        self._systems: dict[str, int] = {}
        self._offers: list[Sequence[ToolSpec]] = []
        self._last: tuple[Shown, int, Accounted] | None = None
        """What the last call was shown, how much was written then, and its account."""

    def new_items(self, items: Sequence[RunItem], now: float) -> Iterable[ItemTraced]:
        """Return what the transcript has that was not written yet."""
        new = items[self._written :]
        self._written = len(items)
        for item in new:
            self._numbers[id(item.message)] = item.id
            yield ItemTraced(
                run=self._run_id,
                time=now,
                id=item.id,
                kind=item.kind,
                message=item.message,
                agent=item.agent,
                asked_by=item.asked_by,
            )

    def of_call(
        self, tools: Sequence[ToolSpec], shown: Shown, view: Sequence[RunItem], now: float
    ) -> Accounted:
        """Return what a model call is shown and offered.

        Args:
            tools: what it is offered.
            shown: what it is shown.
            view: of what that was made.
            now: the time of what is to be written.
        """
        found = self._gone_on(tools, shown, now) or self._afresh(tools, shown, view, now)
        self._last = shown, self._written, found
        return found

    def _gone_on(self, tools: Sequence[ToolSpec], shown: Shown, now: float) -> Accounted | None:
        """Return the account of a call that is shown what the last one was, and all that has come since.

        Nearly all calls of a long run are: to look at all messages for each would take ever longer.
        """
        if self._last is None:
            return None
        before, written, last = self._last
        if shown.growing is not before.growing or shown.system != before.system:
            return None
        new = [self._numbers.get(id(message)) for message in shown.growing[before.count : shown.count]]
        if new != list(range(written, self._written)):
            return None
        unwritten: list[ItemTraced | ToolsTraced] = []
        offered = self._offer(tools, now, unwritten)
        seen = spans(range(written, self._written), last.shown)
        return replace(last, tools=offered, unwritten=unwritten, shown=seen)

    def _afresh(
        self, tools: Sequence[ToolSpec], call: Shown, view: Sequence[RunItem], now: float
    ) -> Accounted:
        unwritten: list[ItemTraced | ToolsTraced] = []
        shown = [self._number(message, view, now, unwritten) for message in call.messages()]
        forms = [self._forms[number] for number in shown if number < 0]
        summarised = {place for form in forms for place in form.covers}
        there = {*shown, *(form.stands_for for form in forms)}
        known = there | summarised
        missing = [place for place in range(self._written) if place not in known]
        told: set[int] = set()
        if missing and any(form.kind == "note" for form in forms):
            told = {item.id for item in view if item.kind not in _OWN_WORDS}.intersection(missing)
        return Accounted(
            tools=self._offer(tools, now, unwritten),
            unwritten=unwritten,
            shown=spans(shown),
            removed=spans(place for place in missing if place not in told),
            summarised=spans(sorted(summarised - there)),
            told=spans(sorted(told)),
        )

    def _number(self, message: Message, view: Sequence[RunItem], now: float, unwritten: list[Any]) -> int:
        known = self._numbers.get(id(message))
        if known is None and message["role"] == "system":
            known = self._systems.get(str(message.get("content")))
        if known is not None:
            return known
        number, form = -1 - len(self._forms), _form_of(message, view)
        self._forms[number], self._numbers[id(message)] = form, number
        if form.kind == "system":
            self._systems[str(message.get("content"))] = number
        unwritten.append(
            ItemTraced(
                run=self._run_id,
                time=now,
                id=number,
                kind=form.kind,
                message=message,
                covers=spans(form.covers),
                stands_for=form.stands_for,
            )
        )
        return number

    def _offer(self, specs: Sequence[ToolSpec], now: float, unwritten: list[Any]) -> int | None:
        if not specs:
            return None
        for number, known in enumerate(self._offers):
            if known is specs or known == specs:
                return number
        self._offers.append(specs)
        number = len(self._offers) - 1
        unwritten.append(ToolsTraced(run=self._run_id, time=now, id=number, tools=specs))
        return number


def _form_of(message: Message, view: Sequence[RunItem]) -> _Form:
    """Find out what a message is that is not in the transcript as it is."""
    for item in view:
        if item.message is message:
            return _made_of(message, item, item.kind)
    for item in view:
        if item.message["role"] == message["role"] and unforged(portable(item.message)) == message:
            return _made_of(message, item, "view")
    if message["role"] == "system":
        return _Form(message, "system")
    return _Form(message, "note" if is_note(message) else "view")


def _made_of(message: Message, item: RunItem, kind: str) -> _Form:
    if item.kind in _OWN_WORDS:
        return _Form(message, item.kind, covers=sorted({each.id for each in item.covers}))
    return _Form(message, kind, stands_for=item.id)


_log = logging.getLogger("routelock.trace")

_PAYLOAD_ROOM = 4000

T = TypeVar("T")


def traced(run: Run) -> Run:
    """Return the run, which tells the traces of its settings, if there are any, what happens.

    Raises:
        ConfigError: a file cannot be made where it is to be.
    """
    if given := listed(run.config.trace):
        run.recorder = _RunRecorder(run, [_trace(one) for one in given])
    return run


def _trace(given: str | PathLike[str] | Trace) -> Trace:
    trace = TraceFile(given) if isinstance(given, str | PathLike) else given
    if isinstance(trace, TraceFile) and (why := _cannot_be(Path(trace.path).absolute())):
        raise ConfigError(f"RunConfig(trace=...): there can be no file {os.fspath(trace.path)!r}: {why}.")
    return trace


def _cannot_be(path: Path) -> str | None:
    """Return why a file can neither be made nor be added to. It is not tried: a run may write nothing."""
    if not path.parent.is_dir():
        return f"make the folder {path.parent} first"
    if path.is_dir():
        return "it is a folder; name a file in it"
    place, wanted = (path, os.R_OK | os.W_OK) if path.exists() else (path.parent, os.W_OK | os.X_OK)
    return None if os.access(place, wanted) else f"{place} may not be written by this user"


class _RunRecorder:
    """The tracing of one run."""

    def __init__(self, run: Run, traces: Sequence[Trace]) -> None:
        self.run = run
        self.traces = traces
        self.writers: list[TraceWriter | None] = []
        self.outer: _RunRecorder | None = None
        self.outer_call: str | None = None
        self.accounts = Accounts(run.run_id)
        self.handoffs: dict[str, HandoffRecord] = {}
        self.problems = 0
        self.repairs = 0
        self.calls = 0
        self.ended = False

    def within(self, outer: Recorder, call_id: str) -> None:
        self.outer, self.outer_call = cast(_RunRecorder, outer), call_id

    def write(self, moment: Moment) -> None:
        match moment:
            case RunBegins():
                self._begin()
            case ModelCallBegins():
                self._model_started(moment.request, moment.shown)
            case ModelCallRetried():
                self._model_retried(moment.failed)
            case ModelCallEnds():
                self._model_ended(moment.reply, moment.error)
            case ToolBegins():
                self._tool_started(moment.call, moment.nested)
            case ToolEnds():
                self._tool_ended(moment.call, moment.outcome)
            case HandoffNoted():
                self._catch_up()
            case HandoffMade():
                self._handoff_made(moment)
            case RunEnds():
                self._end(moment.error)
            case _:  # what is on the run is written with the next moment
                pass

    def _begin(self) -> None:
        start = _start(self)
        above = self.outer.writers if self.outer is not None else [None] * len(self.traces)
        self.writers = [None] * len(self.traces)
        for place, (trace, parent) in enumerate(zip(self.traces, above, strict=True)):
            self.writers[place] = self._safely(partial(trace.begin, start, parent), place)
        # what was before, if the run goes on from a state, is not written again
        self.problems, self.repairs = len(self.run.report.errors), len(self.run.report.repairs)
        self.handoffs = {one.id: one for one in self.run.handoffs.records}
        self._catch_up()

    def _catch_up(self) -> None:
        run = self.run
        for item in self.accounts.new_items(run.transcript.items, self._now()):
            self._write(item)
        for one in run.handoffs.records:
            if self.handoffs.get(one.id) is not one:
                self.handoffs[one.id] = one
                self._write(handoff_traced(run.run_id, self._now(), one))
        for problem in run.report.errors[self.problems :]:
            self._write(problem_traced(run.run_id, self._now(), problem))
        self.problems = len(run.report.errors)

    def _model_started(self, request: Request, shown: Shown) -> None:
        self._catch_up()
        run, now = self.run, self._now()
        self.calls += 1
        seen = self.accounts.of_call(request.tools, shown, run.frame.view.items, now)
        for record in seen.unwritten:
            self._write(record)
        repairs, self.repairs = run.report.repairs[self.repairs :], len(run.report.repairs)
        schema = request.output_schema
        self._write(
            ModelStarted(
                run=run.run_id,
                time=now,
                call=self.calls,
                turn=run.turn,
                agent=run.frame.agent.name,
                handler=run.frame.handler.name,
                **model_of(run.frame.handler),
                shown=seen.shown,
                removed=seen.removed,
                summarised=seen.summarised,
                told=seen.told,
                repairs=repairs,
                tools=seen.tools,
                tool_choice=request.tool_choice,
                settings=request.settings,
                output_schema=None if schema is None else schema.schema,
                request=request,
            )
        )

    def _model_retried(self, failed: AttemptFailed) -> None:
        self._write(
            ModelRetried(
                run=self.run.run_id,
                time=self._now(),
                call=self.calls,
                attempt=failed.attempt,
                delay=failed.delay,
                error=error_traced(failed.error) or ErrorTraced(),
            )
        )

    def _model_ended(self, reply: MessageDone | None, error: BaseException | None) -> None:
        end = ModelEnded(run=self.run.run_id, time=self._now(), call=self.calls, error=error_traced(error))
        if reply is not None:
            end = replace(
                end,
                item=len(self.run.transcript.items) if error is None else None,
                usage=reply.usage,
                finish_reason=reply.finish_reason,
                model=reply.model,
                response_id=reply.response_id,
                reply=reply,
            )
        self._write(end)

    def _tool_started(self, call: ToolCall, nested: str | None) -> None:
        self._catch_up()
        run = self.run
        self._write(
            ToolStarted(
                run=run.run_id,
                time=self._now(),
                call_id=call["id"],
                name=call["function"]["name"],
                agent=run.frame.agent.name,
                turn=run.turn,
                arguments=call["function"].get("arguments") or "",
                nested=nested,
            )
        )

    def _tool_ended(self, call: ToolCall, outcome: ToolOutcome) -> None:
        self._write(
            ToolEnded(
                run=self.run.run_id,
                time=self._now(),
                call_id=call["id"],
                name=call["function"]["name"],
                output=outcome.output,
                failure=outcome.error,
                error=error_traced(outcome.exception),
                usage=outcome.usage,
            )
        )

    @contextmanager
    def inside(self, call_id: str | None) -> Generator[None]:
        with ExitStack() as stack:
            for place, writer in enumerate(self.writers):
                if (enter := getattr(writer, "inside", None)) is not None:
                    self._safely(partial(self._enter, stack, place, partial(enter, call_id)), place)
            yield

    def _enter(
        self, stack: ExitStack, place: int, inside: Callable[[], AbstractContextManager[object]]
    ) -> None:
        within = inside()
        leave = within.__exit__
        within.__enter__()
        stack.push(partial(self._leave, place, leave))

    def _leave(self, place: int, leave: Callable[..., object], *raised: object) -> None:
        """Leave what was entered; None, whatever that returns, so what the run raised goes on."""
        self._safely(partial(leave, *raised), place)

    def handler(self) -> Handler:
        inner = self.run.frame.handler
        return Within(inner, self.inside) if any(hasattr(one, "inside") for one in self.writers) else inner

    def _handoff_made(self, made: HandoffMade) -> None:
        self._catch_up()
        run, payload = self.run, self.run.memory.shared.get(PAYLOAD_KEY)
        self._write(
            TookOver(
                run=run.run_id,
                time=self._now(),
                handoff=made.record.id,
                shaped_by=made.shaped_by,
                before=made.before,
                after=made.after,
                payload=None if payload is None else preview(redact(recordable(payload)), _PAYLOAD_ROOM),
            )
        )

    def _end(self, error: BaseException | None) -> None:
        if self.ended:
            return
        self.ended = True
        self._catch_up()
        result = self.run.result()
        self._write(
            RunEnded(
                run=self.run.run_id,
                time=self._now(),
                stop_reason=result.stop_reason,
                output=result.final_output,
                error=error_traced(error),
                last_agent=result.last_agent.name,
                last_handler=result.last_handler,
                next_agent=result.next_agent.name,
                turns=self.run.turn,
                usage=result.usage,
                usage_by_agent=result.usage_by_agent,
                warnings=result.warnings,
                pending=result.pending,
                interruptions=[asdict(each) for each in result.interruptions],
            )
        )

    def _now(self) -> float:
        return self.run.config.clock()

    def _write(self, record: TraceRecord) -> None:
        for place, writer in enumerate(self.writers):
            if writer is not None:
                self._safely(partial(writer.write, record), place)

    def _safely(self, tell: Callable[[], T], place: int) -> T | None:
        """Tell a writer something; one that raises is told nothing more, and the run goes on."""
        try:
            return tell()
        except Exception as error:
            self.writers[place] = None
            log(self.run, _log, logging.ERROR, "a trace raised", error=error)
            what = f"the trace raised {type(error).__name__} and was given up: {error_text(error)}"
            self.run.problem("hook", what, error=error)
            return None


def _start(tracing: _RunRecorder) -> RunStarted:
    run, outer = tracing.run, tracing.outer
    return RunStarted(
        run=run.run_id,
        time=run.config.clock(),
        format=FORMAT,
        parent=None if outer is None else outer.run.run_id,
        parent_call=tracing.outer_call,
        agent=run.frame.agent.name,
        handler=run.frame.handler.name,
        default_agent=run.first.name,
        default_handler=run.frame.default_handler,
        resumed=run.turn > 0,
        turn=run.turn,
        input_count=run.transcript.input_count,
        stream=run.stream,
        max_turns=run.budget.max_turns,
        user_id=run.config.user_id,
        conversation_id=run.config.conversation_id,
        agents=[agent_traced(agent, run.config) for agent in run.graph.values()],
    )
