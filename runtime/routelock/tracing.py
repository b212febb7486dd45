"""Telling a `routelock.trace_port.Trace` what happens in a run, without letting it break the run.

The run's books are the source: items, transfers and problems are written when the next thing happens, in
the order in which they came. What is not in the books, such as when a call began, the run says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar, cast

from routelock._callables import words_of
from routelock._redaction import redact
from routelock._text import glimpse
from routelock.context import PAYLOAD_KEY
from routelock.errors import ConfigError
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Handler, Request, model_of
from routelock.handoff_request import recordable
from routelock.history.messages import ToolCall
from routelock.run.config import listed
from routelock.run.emit import log
from routelock.run.result import HandoffRecord
from routelock.run.run import Run
from routelock.tools.tool import ToolOutcome
from routelock.trace_files import TraceFile
from routelock.trace_notes import agent_traced, error_traced, handoff_traced, problem_traced
from routelock.trace_port import Trace, TraceWriter, Tracing, Within
from routelock.trace_records import (
    FORMAT,
    ErrorTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    RunEnded,
    RunStarted,
    TookOver,
    ToolEnded,
    ToolStarted,
    TraceRecord,
)
from routelock.trace_views import Accounts

__all__ = ["traced"]

_log = logging.getLogger("routelock.trace")
_PAYLOAD_ROOM = 4000

T = TypeVar("T")


def traced(run: Run) -> Run:
    """Return the run, which tells the traces of its settings, if there are any, what happens.

    Raises:
        ConfigError: a file cannot be made where it is to be.
    """
    if given := listed(run.config.trace):
        run.tracing = _RunTracing(run, [_trace(one) for one in given])
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


class _RunTracing:
    """The tracing of one run."""

    def __init__(self, run: Run, traces: Sequence[Trace]) -> None:
        self.run = run
        self.traces = traces
        self.writers: list[TraceWriter | None] = []
        self.outer: _RunTracing | None = None
        self.outer_call: str | None = None
        self.accounts = Accounts(run.run_id)
        self.handoffs: dict[str, HandoffRecord] = {}
        self.problems = 0
        self.repairs = 0
        self.calls = 0
        self.ended = False

    def within(self, outer: Tracing, call_id: str) -> None:
        self.outer, self.outer_call = cast(_RunTracing, outer), call_id

    def begin(self) -> None:
        start = _start(self)
        above = self.outer.writers if self.outer is not None else [None] * len(self.traces)
        self.writers = [None] * len(self.traces)
        for place, (trace, parent) in enumerate(zip(self.traces, above, strict=True)):
            self.writers[place] = self._safely(partial(trace.begin, start, parent), place)
        self.problems, self.repairs = len(self.run.errors), len(self.run.repairs)  # of before, if it goes on
        self.handoffs = {one.id: one for one in self.run.handoffs}
        self.catch_up()

    def catch_up(self) -> None:
        run = self.run
        for item in self.accounts.new_items(run.items, self._now()):
            self._write(item)
        for one in run.handoffs:
            if self.handoffs.get(one.id) is not one:
                self.handoffs[one.id] = one
                self._write(handoff_traced(run.run_id, self._now(), one))
        for problem in run.errors[self.problems :]:
            self._write(problem_traced(run.run_id, self._now(), problem))
        self.problems = len(run.errors)

    def model_started(self, request: Request) -> None:
        self.catch_up()
        run, now = self.run, self._now()
        assert run.open_call is not None
        shown = run.open_call[1]
        self.calls += 1
        seen = self.accounts.of_call(request.tools, shown, run.view.items, now)
        for record in seen.unwritten:
            self._write(record)
        repairs, self.repairs = run.repairs[self.repairs :], len(run.repairs)
        schema = request.output_schema
        self._write(
            ModelStarted(
                run=run.run_id,
                time=now,
                call=self.calls,
                turn=run.turn,
                agent=run.agent.name,
                handler=run.handler.name,
                **model_of(run.handler),
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

    def model_retried(self, failed: AttemptFailed) -> None:
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

    def model_ended(self, reply: MessageDone | None, error: BaseException | None) -> None:
        end = ModelEnded(run=self.run.run_id, time=self._now(), call=self.calls, error=error_traced(error))
        if reply is not None:
            end = replace(
                end,
                item=len(self.run.items) if error is None else None,
                usage=reply.usage,
                finish_reason=reply.finish_reason,
                model=reply.model,
                response_id=reply.response_id,
                reply=reply,
            )
        self._write(end)

    def tool_started(self, call: ToolCall, nested: str | None = None) -> None:
        self.catch_up()
        run = self.run
        self._write(
            ToolStarted(
                run=run.run_id,
                time=self._now(),
                call_id=call["id"],
                name=call["function"]["name"],
                agent=run.agent.name,
                turn=run.turn,
                arguments=call["function"].get("arguments") or "",
                nested=nested,
            )
        )

    def tool_ended(self, call: ToolCall, outcome: ToolOutcome) -> None:
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
        inner = self.run.handler
        return Within(inner, self.inside) if any(hasattr(one, "inside") for one in self.writers) else inner

    def took_over(self, handoff_id: str, shaped_by: str | None, before: int) -> None:
        self.catch_up()
        run, payload = self.run, self.run.shared_memory.get(PAYLOAD_KEY)
        self._write(
            TookOver(
                run=run.run_id,
                time=self._now(),
                handoff=handoff_id,
                shaped_by=shaped_by,
                before=before,
                after=len(run.view.items),
                payload=None if payload is None else glimpse(redact(recordable(payload)), _PAYLOAD_ROOM),
            )
        )

    def end(self, error: BaseException | None) -> None:
        if self.ended:
            return
        self.ended = True
        self.catch_up()
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
            what = f"the trace raised {type(error).__name__} and was given up: {words_of(error)}"
            self.run.problem("hook", what, error=error)
            return None


def _start(tracing: _RunTracing) -> RunStarted:
    run, outer = tracing.run, tracing.outer
    return RunStarted(
        run=run.run_id,
        time=run.config.clock(),
        format=FORMAT,
        parent=None if outer is None else outer.run.run_id,
        parent_call=tracing.outer_call,
        agent=run.agent.name,
        handler=run.handler.name,
        default_agent=run.first.name,
        default_handler=run.default_handler,
        resumed=run.turn > 0,
        turn=run.turn,
        input_count=run.input_count,
        stream=run.stream,
        max_turns=run.max_turns,
        user_id=run.config.user_id,
        conversation_id=run.config.conversation_id,
        agents=[agent_traced(agent, run.config) for agent in run.graph.values()],
    )
