"""The one place where a run tells what happens: `emit` gives each moment to hooks, traces and the log.

What watches a run cannot break it: what a hook, a trace or a log raises is noted on the result. The reader of
a stream is the loop's own caller: the loop yields it the events of `routelock.run.events`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from routelock._callables import error_text, is_error, resolve
from routelock._json import detached, own_copy
from routelock._redaction import redact_text
from routelock._text import plain
from routelock.agents.agent import Agent
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.context import ToolContext
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Handler, Request, copy_of
from routelock.history.messages import ToolCall
from routelock.run.result import HandoffRecord, Shown
from routelock.tools.tool import Tool, ToolOutcome

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = [
    "AgentBegins",
    "AgentEnds",
    "AnswerReturned",
    "HandoffMade",
    "HandoffNoted",
    "HandoffReceived",
    "ModelCallBegins",
    "ModelCallEnds",
    "ModelCallRetried",
    "Moment",
    "ReplyTaken",
    "RunBegins",
    "RunEnds",
    "ToolBegins",
    "ToolEnds",
    "emit",
    "emit_now",
    "has_hooks",
    "log",
    "loggable_text",
    "own_reply",
]


class Moment:
    """Something that happens in a run. The hooks of its name are called, if it has one."""

    __slots__ = ()
    hook: ClassVar[str | None] = None
    """Name of the hook of a run, see `routelock.agents.RunHooks`."""
    agent_hook: ClassVar[str | None] = None
    """Name of the same hook of an agent, see `routelock.agents.AgentHooks`."""
    begins: ClassVar[bool] = False
    """Whether something starts: hooks come before the trace then, so that their time is not counted."""

    def told(self) -> tuple[object, ...]:
        """Return what a hook is given after the context and the active agent; all of it is the hook's own."""
        return ()

    def told_agent(self, agent: Agent[Any]) -> tuple[object, ...]:
        """Return what the hook of an agent is given after the context."""
        return (agent, *self.told())


@dataclass(slots=True)
class RunBegins(Moment):
    """The run starts, or goes on from a state."""


@dataclass(slots=True)
class AgentBegins(Moment):
    """An agent becomes the active one."""

    hook = "on_agent_start"
    agent_hook = "on_start"


@dataclass(slots=True)
class ModelCallBegins(Moment):
    """A model call is about to be made."""

    hook = agent_hook = "on_llm_start"
    begins = True
    request: Request
    shown: Shown

    def told(self) -> tuple[object, ...]:
        """Return a copy of the request."""
        return (copy_of(self.request),)


@dataclass(slots=True)
class ModelCallRetried(Moment):
    """An attempt of a model call failed, and another one follows."""

    failed: AttemptFailed


@dataclass(slots=True)
class ModelCallEnds(Moment):
    """A model call has ended, with a reply or without."""

    reply: MessageDone | None
    error: BaseException | None


@dataclass(slots=True)
class ReplyTaken(Moment):
    """A complete reply is in the transcript."""

    hook = agent_hook = "on_llm_end"
    reply: MessageDone

    def told(self) -> tuple[object, ...]:
        """Return a copy of the reply."""
        return (own_reply(self.reply),)


@dataclass(slots=True)
class ToolBegins(Moment):
    """A tool is about to run."""

    hook = agent_hook = "on_tool_start"
    begins = True
    call: ToolCall
    tool: Tool
    context: ToolContext[Any] | None
    nested: str | None = None
    """Id of the run that answers the call, if the tool is an agent."""

    def told(self) -> tuple[object, ...]:
        """Return the tool."""
        return (self.tool,)


@dataclass(slots=True)
class ToolEnds(Moment):
    """A tool has an outcome."""

    hook = agent_hook = "on_tool_end"
    call: ToolCall
    tool: Tool
    context: ToolContext[Any] | None
    outcome: ToolOutcome

    def told(self) -> tuple[object, ...]:
        """Return the tool and the text that answers the call."""
        return self.tool, self.outcome.output


@dataclass(slots=True)
class HandoffNoted(Moment):
    """A handoff is on record, made or not."""

    record: HandoffRecord


@dataclass(slots=True)
class HandoffMade(Moment):
    """The view of the target is ready, and the source is still active."""

    hook = "on_handoff"
    agent_hook = "on_handoff"
    record: HandoffRecord
    source: Agent[Any]
    target: Agent[Any] | Handler
    shaped_by: str | None
    """What shaped the view: a filter, or nothing."""
    before: int
    """How many items the source's view had."""
    after: int
    """How many items the target's view has."""

    def told(self) -> tuple[object, ...]:
        """Return the target."""
        return (self.target,)

    def told_agent(self, agent: Agent[Any]) -> tuple[object, ...]:
        """Return the target and the source."""
        return self.target, self.source


@dataclass(slots=True)
class HandoffReceived(Moment):
    """An agent that was handed over to is active."""

    agent_hook = "on_handoff"
    source: Agent[Any]
    target: Agent[Any]


@dataclass(slots=True)
class AnswerReturned(Moment):
    """An agent has answered its caller, which goes on."""

    source: str
    target: str


@dataclass(slots=True)
class AgentEnds(Moment):
    """An agent has given its output."""

    hook = "on_agent_end"
    agent_hook = "on_end"
    output: object

    def told(self) -> tuple[object, ...]:
        """Return a copy of the output."""
        return (own_copy(self.output),)


@dataclass(slots=True)
class RunEnds(Moment):
    """The run has ended."""

    error: BaseException | None


async def emit(run: Run, moment: Moment) -> None:
    """Give a moment to everything that watches the run, and wait for its hooks."""
    if not (run.recorder or has_hooks(run) or type(moment) in _OFTEN_WATCHED):
        return
    if not moment.begins:
        emit_now(run, moment)
    if run.hooks is not None or run.frame.agent.has_hooks or isinstance(moment, HandoffReceived):
        await _call_hooks(run, moment)
    if moment.begins:
        emit_now(run, moment)


def emit_now(run: Run, moment: Moment) -> None:
    """Give a moment that no hook is called for to the traces and the log; also while the run is cancelled."""
    if run.recorder is not None:
        run.recorder.write(moment)
    if (write_line := _LOGGED.get(type(moment))) is not None and _handoff_log.isEnabledFor(logging.INFO):
        write_line(run, moment)


def own_reply(reply: MessageDone) -> MessageDone:
    """Return a reply for code that may edit it: the message of the run's own is in the transcript."""
    return replace(reply, message=detached(reply.message))


# Hooks

_hooks_log = logging.getLogger("routelock.hooks")


def has_hooks(run: Run) -> bool:
    """Whether the run, the active agent or one of its skills has hooks."""
    return run.hooks is not None or run.frame.agent.has_hooks


async def _call_hooks(run: Run, moment: Moment) -> None:
    """Call the hooks of a moment, with the context, the active agent and what the moment tells.

    A hook that raises is logged and noted on the result: watching a run must not end it, and no exception may
    get lost.
    """
    context: Any = getattr(moment, "context", None)
    if isinstance(moment, HandoffReceived):
        shared = _hooks_of(moment.source, "on_handoff")
        for hook in _hooks_of(moment.target, "on_handoff"):
            if (
                moment.target is moment.source or hook not in shared
            ):  # what both have was called for the source
                await _call(run, "on_handoff", hook, None, moment.target, moment.source)
        return
    if moment.hook is not None and _does_something(run.hooks, RunHooks, moment.hook):
        hook = getattr(run.hooks, moment.hook, None)
        await _call(run, moment.hook, hook, context, run.frame.agent, *moment.told())
    if moment.agent_hook is None:
        return
    for hook in _hooks_of(run.frame.agent, moment.agent_hook):
        await _call(run, moment.agent_hook, hook, context, *moment.told_agent(run.frame.agent))


def _does_something(hooks: object, kind: type[object], name: str) -> bool:
    """Whether a hook is not that of the class to derive from; a missing one is reported when it is called."""
    if hooks is None:
        return False
    hook: object = getattr(hooks, name, None)
    return getattr(hook, "__func__", hook) is not getattr(kind, name)


def _hooks_of(agent: Agent[Any], name: str) -> Sequence[Any]:
    """Return what an agent's hooks and those of its skills have for a moment; None for a missing method."""
    skills = agent.registered.hooks.get(name, ())
    if not _does_something(agent.hooks, AgentHooks, name):
        return skills
    return [getattr(agent.hooks, name, None), *skills]


async def _call(run: Run, name: str, hook: Any, context: Any, *args: Any) -> None:
    try:
        if hook is None:
            raise TypeError(f"there is no method {name}; derive from RunHooks or AgentHooks")
        await resolve(hook(context or run.now(), *args))
    except BaseException as error:
        if not is_error(error):
            raise
        log(run, _hooks_log, logging.ERROR, "hook %s raised", name, error=error)
        text = f"hook {name} raised {type(error).__name__}: {error_text(error)}"
        run.problem("hook", text, call_id=None if context is None else context.tool_call_id, error=error)


# The log

_LONGEST = 200

_handoff_log = logging.getLogger("routelock.handoff")


def log(
    run: Run, to: logging.Logger, level: int, text: str, *args: object, error: BaseException | None = None
) -> None:
    """Write a line to a log.

    Args:
        run: a log that raises is noted on its result.
        to: the logger.
        level: one of `logging`.
        text: what to write, with ``args`` as `logging` puts them in.
        args: made ready even when the level is off: ask ``to.isEnabledFor`` before, if that takes time.
        error: its traceback is added.
    """
    if not to.isEnabledFor(level):
        return
    try:
        to.log(level, text, *args, exc_info=error, stacklevel=2)
    except Exception as raised:
        what = f"the log {to.name!r} raised {type(raised).__name__}: {error_text(raised)}"
        run.problem("hook", what, error=raised)


def loggable_text(text: str) -> str:
    """Return text as it may stand in a log: bounded, without secrets or line breaks."""
    return plain(redact_text(text[: 4 * _LONGEST]), _LONGEST)


def _log_made(run: Run, moment: HandoffMade) -> None:
    """Log a handoff for either side: with its reason, and nothing else of what was said."""
    record = moment.record
    source, target = loggable_text(record.source), loggable_text(record.target)
    line = "[handoff] Executing handoff: %s -> %s in turn %d of run %s"
    log(run, _handoff_log, logging.INFO, line, source, target, run.turn, run.run_id)
    why = f" (Reason: {loggable_text(record.reason)})" if record.reason else ""
    log(run, _handoff_log, logging.INFO, "[%s] Received handoff from %s%s", target, source, why)


def _log_noted(run: Run, moment: HandoffNoted) -> None:
    one = moment.record
    if one.ended is not None:  # it was not made
        log(run, _handoff_log, logging.INFO, "%s -> %s: %s", one.source, one.target, one.status)


def _log_returned(run: Run, moment: AnswerReturned) -> None:
    line = "%s -> %s with an answer in turn %d of run %s"
    log(run, _handoff_log, logging.INFO, line, moment.source, moment.target, run.turn, run.run_id)


_LOGGED: dict[type[Moment], Any] = {
    HandoffMade: _log_made,
    HandoffNoted: _log_noted,
    AnswerReturned: _log_returned,
}

_OFTEN_WATCHED = {*_LOGGED, HandoffReceived}
"""Moments of which a log may write, or the hooks of another agent than the active one may be called."""
