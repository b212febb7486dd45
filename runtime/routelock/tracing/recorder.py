"""Writes the records of a run to its traces; a trace that raises does not break the run.

A message is written once and has a number in later records. So the size of a trace grows with the length of
the run, and not with its square.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from dataclasses import fields as dataclass_fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from routelock._callables import error_text
from routelock._json import recordable
from routelock._redaction import redact
from routelock._text import preview
from routelock.agents.agent import Agent
from routelock.agents.checked_graph import agent_tools
from routelock.context import PAYLOAD_KEY
from routelock.errors import ConfigError
from routelock.guardrails import records_as_json
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone
from routelock.handlers.port import Handler, Request, model_of
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import ToolCall
from routelock.run.config import RunConfig
from routelock.run.config_problems import listed
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
    ViewCompacted,
    log,
)
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.records import Compaction, HandoffRecord, Problem, Shown
from routelock.run.run import Run
from routelock.tools.outcome import ToolOutcome
from routelock.tools.tool import Tool
from routelock.tracing.file import TraceFile
from routelock.tracing.message_numbers import MessageNumbers
from routelock.tracing.records import (
    FORMAT,
    AgentTraced,
    CompactedTraced,
    EdgeTraced,
    ErrorTraced,
    HandoffTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    ProblemTraced,
    RunEnded,
    RunStarted,
    TookOver,
    ToolEnded,
    ToolStarted,
    TraceRecord,
)

__all__ = [
    "ContextHandler",
    "Recorder",
    "Trace",
    "TraceWriter",
    "agent_traced",
    "error_traced",
    "handoff_traced",
    "problem_traced",
    "traced",
]


class TraceWriter(Protocol):
    """Takes the records of one run.

    A writer may also have a method ``inside(call_id)`` that returns a context manager. The tool of that call
    runs inside it. With None instead of an id, each step of the handler runs inside it; it is left before the
    step's event is yielded.

    A writer may also have a method ``received(event, time)``, which is called with each event of the handler,
    and with the time of ``RunConfig.clock``.
    """

    def write(self, record: TraceRecord, /) -> None:
        """Take one record. It must neither block nor change the record.

        A writer that raises gets no more records of the run, and ``RunResult.errors`` has the error.
        """
        ...


class Trace(Protocol):
    """Takes traces of runs, see ``RunConfig.trace``. Any number of runs may use one at the same time."""

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> TraceWriter:
        """Return the writer for the records of a run that starts.

        Args:
            start: the first record; the writer does not get it again.
            parent: the writer that this trace returned for the outer run, if the run is a sub-run.
        """
        ...


class Recorder(Protocol):
    """Writes the moments of a run to its traces; a run without a trace has no recorder."""

    def set_outer(self, outer: Recorder, call_id: str) -> None:
        """Connect a sub-run's recorder with that of its outer run, and the call that it answers."""
        ...

    def write(self, moment: Moment) -> None:
        """Write the records of a moment, and those of everything that is new since the last one."""
        ...

    def inside(self, call_id: str | None) -> AbstractContextManager[None]:
        """Return the writers' context managers for the tool of a call, or for the handler if None."""
        ...

    def handler(self) -> Handler:
        """Return the active handler, wrapped for the writers that have ``inside`` or ``received``."""
        ...


class ContextHandler:
    """A handler whose steps each run in a context manager of a trace; the trace gets each event.

    The context manager is left before each event is yielded. A reader may go on in another task, or never,
    and a context manager must be left in the context in which it was entered.
    """

    def __init__(
        self,
        inner: Handler,
        inside: Callable[[str | None], AbstractContextManager[None]],
        received: Callable[[HandlerEvent], None],
    ) -> None:
        self.name: str = inner.name
        self._inner = inner
        self._inside = inside
        self._received = received

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the handler."""
        events = self._inner.stream(request)
        # `routelock.handlers.retry` reports a value that is not a generator
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
                self._received(event)
                yield event
        finally:
            with self._inside(None):
                await events.aclose()


def error_traced(error: BaseException | None) -> ErrorTraced | None:
    """Return the record of an exception."""
    return None if error is None else ErrorTraced(type=type(error).__name__, message=error_text(error))


def agent_traced(agent: Agent[Any], config: RunConfig) -> AgentTraced:
    """Return the record of an agent, with the handlers that the run may reach."""
    handlers = handlers_by_priority(agent, config)
    return AgentTraced(
        name=agent.name,
        description=agent.handoff_description or "",
        handlers=[each.name for each in handlers],
        models={each.name: each.written for each in handlers if each.written != each.name},
        tools=[tool.name for tool in agent.all_tools],
        agent_tools={name: call.agent.name for name, call in agent_tools(agent)},
        handoffs=[_edge(handoff) for handoff in agent.all_handoffs],
    )


def _edge(handoff: Handoff) -> EdgeTraced:
    return EdgeTraced(
        tool_name=handoff.tool_name,
        target=handoff.agent_name,
        others=[other if isinstance(other, str) else other.name for other in handoff.others],
        to_handler=handoff.to_handler is not None,
        returns=handoff.return_to_caller,
    )


def handoff_traced(run_id: str, now: float, record: HandoffRecord) -> HandoffTraced:
    """Return the trace record of a handoff, with its present status."""
    values: dict[str, Any] = _values_for(HandoffTraced, record) | {"status": record.status.value}
    return HandoffTraced(run=run_id, time=now, **values)


def problem_traced(run_id: str, now: float, problem: Problem) -> ProblemTraced:
    """Return the trace record of a problem."""
    values: dict[str, Any] = _values_for(ProblemTraced, problem) | {"error": error_traced(problem.error)}
    return ProblemTraced(run=run_id, time=now, **values)


def _values_for(kind: type[Any], source: object) -> dict[str, Any]:
    """Return the values of ``source`` for the fields of a record that have the same names."""
    names = [each.name for each in dataclass_fields(kind)]
    return {name: getattr(source, name) for name in names if hasattr(source, name)}


_log = logging.getLogger("routelock.trace")

_LONGEST_PAYLOAD = 4000

T = TypeVar("T")


def traced(run: Run) -> Run:
    """Return the run, with a recorder for the traces of its settings, if there are any.

    Raises:
        ConfigError: a trace file cannot be written.
    """
    if given := listed(run.config.trace):
        run.recorder = _RunRecorder(run, [_trace(one) for one in given])
    return run


def _trace(given: str | PathLike[str] | Trace) -> Trace:
    trace = TraceFile(given) if isinstance(given, str | PathLike) else given
    if isinstance(trace, TraceFile) and (why := _path_problem(Path(trace.path).absolute())):
        raise ConfigError(f"RunConfig(trace=...): cannot write the file {os.fspath(trace.path)!r}: {why}.")
    return trace


def _path_problem(path: Path) -> str | None:
    """Return why a file cannot be written, or None. No file is created, because a run may write nothing."""
    if not path.parent.is_dir():
        return f"make the folder {path.parent} first"
    if path.is_dir():
        return "it is a folder; name a file in it"
    place, wanted = (path, os.R_OK | os.W_OK) if path.exists() else (path.parent, os.W_OK | os.X_OK)
    return None if os.access(place, wanted) else f"this user may not write to {place}"


class _RunRecorder:
    """Recorder of one run."""

    def __init__(self, run: Run, traces: Sequence[Trace]) -> None:
        self.run = run
        self.given = listed(run.config.trace)
        self.traces = traces
        self.writers: list[TraceWriter | None] = []
        """The writer of each trace; None for a trace that raised."""
        self.outer: _RunRecorder | None = None
        self.outer_call: str | None = None
        self.numbers = MessageNumbers(run.run_id)
        self.handoffs: dict[str, HandoffRecord] = {}
        """The handoffs as they were written last, by id."""
        self.problems = 0
        """The number of problems that were written; the next two count written repairs and model calls."""
        self.repairs = 0
        self.calls = 0
        self.ended = False

    def set_outer(self, outer: Recorder, call_id: str) -> None:
        self.outer, self.outer_call = cast(_RunRecorder, outer), call_id

    def writer_for(self, given: object) -> TraceWriter | None:
        """Return the writer of this run for a trace of the settings; None if the run is not traced there."""
        writers = zip(self.given, self.writers, strict=True)
        return next((writer for own, writer in writers if own is given or own == given), None)

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
                self._tool_started(moment.call, moment.tool, moment.nested)
            case ToolEnds():
                self._tool_ended(moment.call, moment.outcome)
            case HandoffNoted():
                self._catch_up()
            case HandoffMade():
                self._handoff_made(moment)
            case ViewCompacted():
                self._compacted(moment.compaction)
            case RunEnds():
                self._end(moment.error)
            case _:  # new items of the run are written with the next moment
                pass

    def _begin(self) -> None:
        start = _start(self)
        self.writers = [None] * len(self.traces)
        for place, trace in enumerate(self.traces):
            parent = None if self.outer is None else self.outer.writer_for(self.given[place])
            self.writers[place] = self._safely(partial(trace.begin, start, parent), place)
        if start.resumed:  # the run has written its earlier problems, repairs and handoffs before
            self.problems, self.repairs = len(self.run.report.errors), len(self.run.report.repairs)
            self.handoffs = {one.id: one for one in self.run.handoffs.records}
        self._catch_up()

    def _catch_up(self) -> None:
        """Write the items, handoffs and problems that are new since the last time."""
        run = self.run
        for item in self.numbers.new_items(run.transcript.items, self._now()):
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
        messages = self.numbers.of_call(request.tools, shown, run.frame.view.items, now)
        for record in messages.unwritten:
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
                shown=messages.shown,
                removed=messages.removed,
                summarised=messages.summarised,
                told=messages.told,
                repairs=repairs,
                tools=messages.tools,
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
            item = len(self.run.transcript.items) if error is None else None
            end = replace(end, item=item, reply=reply, **_values_for(ModelEnded, reply))
        self._write(end)

    def _tool_started(self, call: ToolCall, tool: Tool, nested: str | None) -> None:
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
                origin=tool.origin,
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
        manager = inside()
        leave = manager.__exit__
        manager.__enter__()
        stack.push(partial(self._leave, place, leave))

    def _leave(self, place: int, leave: Callable[..., object], *raised: object) -> None:
        """Leave a context manager of a writer, and ignore its result: it cannot suppress an exception."""
        self._safely(partial(leave, *raised), place)

    def handler(self) -> Handler:
        inner = self.run.frame.handler
        is_wanted = any(hasattr(one, name) for one in self.writers for name in ("inside", "received"))
        return ContextHandler(inner, self.inside, self._received) if is_wanted else inner

    def _received(self, event: HandlerEvent) -> None:
        for place, writer in enumerate(self.writers):
            if (receive := getattr(writer, "received", None)) is not None:
                self._safely(partial(receive, event, self._now()), place)

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
                payload=None if payload is None else preview(redact(recordable(payload)), _LONGEST_PAYLOAD),
            )
        )

    def _compacted(self, made: Compaction) -> None:
        self._catch_up()
        values = _values_for(CompactedTraced, made)
        self._write(CompactedTraced(run=self.run.run_id, time=self._now(), **values))

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
                guardrails=records_as_json(result.guardrail_results),
            )
        )

    def _now(self) -> float:
        return self.run.config.clock()

    def _write(self, record: TraceRecord) -> None:
        for place, writer in enumerate(self.writers):
            if writer is not None:
                self._safely(partial(writer.write, record), place)

    def _safely(self, action: Callable[[], T], place: int) -> T | None:
        """Call a writer; if it raises, it gets no more records, and the run goes on."""
        try:
            return action()
        except Exception as error:
            self.writers[place] = None
            log(self.run, _log, logging.ERROR, "a trace raised", error=error)
            what = f"the trace raised {type(error).__name__} and gets no more records: {error_text(error)}"
            self.run.add_problem("hook", what, error=error)
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
        default_agent=run.first_agent.name,
        default_handler=run.frame.default_handler,
        resumed=run.turn > 0,
        turn=run.turn,
        input_count=run.transcript.input_count,
        stream=run.is_streamed,
        max_turns=run.budget.max_turns,
        user_id=run.config.user_id,
        conversation_id=run.config.conversation_id,
        agents=[agent_traced(agent, run.config) for agent in run.graph.values()],
    )
