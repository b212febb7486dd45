"""`emit`: passes each moment of a run to its hooks, its traces and the log.

An observer cannot break a run: if a hook, a trace or a log raises, the result has a problem that says so.
Readers of a stream get the events of `routelock.run.events`, which the loop itself yields.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from routelock._callables import error_text, is_error, resolve
from routelock._copies import detached, own_copy
from routelock._redaction import redact_text
from routelock._text import plain
from routelock.agents.agent import Agent
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.context import ToolContext
from routelock.handlers.events import AttemptFailed, MessageDone
from routelock.handlers.port import Handler, Request, copy_of
from routelock.history.messages import ToolCall
from routelock.run.records import Compaction, HandoffRecord, Shown
from routelock.tools.outcome import ToolOutcome
from routelock.tools.tool import Tool

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
    "ViewCompacted",
    "call_hook",
    "emit",
    "emit_now",
    "log",
    "loggable_text",
    "own_reply",
]


class Moment:
    """Something that happens in a run, and the names of the hooks that are called for it."""

    __slots__ = ()
    hook: ClassVar[str | None] = None
    """Name of the method of `routelock.agents.RunHooks`."""
    agent_hook: ClassVar[str | None] = None
    """Name of the method of `routelock.agents.AgentHooks`."""
    begins: ClassVar[bool] = False
    """Whether an operation starts. Its hooks come before the trace, which does not count their time."""

    def hook_arguments(self) -> tuple[object, ...]:
        """Return the arguments of a run's hook after context and agent, as copies that it may change."""
        return ()

    def agent_hook_arguments(self, agent: Agent[Any]) -> tuple[object, ...]:
        """Return the arguments of an agent's hook after the context."""
        return (agent, *self.hook_arguments())

    def write_log(self, run: Run) -> None:
        """Write the lines of this moment to the log."""


@dataclass(slots=True)
class RunBegins(Moment):
    """The run starts or is resumed."""


@dataclass(slots=True)
class AgentBegins(Moment):
    """An agent becomes the active one."""

    hook: ClassVar[str | None] = "on_agent_start"
    agent_hook: ClassVar[str | None] = "on_start"


@dataclass(slots=True)
class ModelCallBegins(Moment):
    """A model call is about to be made."""

    hook: ClassVar[str | None] = "on_llm_start"
    agent_hook: ClassVar[str | None] = "on_llm_start"
    begins: ClassVar[bool] = True
    request: Request
    shown: Shown

    def hook_arguments(self) -> tuple[object, ...]:
        """Return a copy of the request."""
        return (copy_of(self.request),)


@dataclass(slots=True)
class ModelCallRetried(Moment):
    """An attempt of a model call failed, and another attempt follows."""

    failed: AttemptFailed


@dataclass(slots=True)
class ModelCallEnds(Moment):
    """A model call has ended, with a reply or without."""

    reply: MessageDone | None
    error: BaseException | None


@dataclass(slots=True)
class ReplyTaken(Moment):
    """A complete reply is in the transcript."""

    hook: ClassVar[str | None] = "on_llm_end"
    agent_hook: ClassVar[str | None] = "on_llm_end"
    reply: MessageDone

    def hook_arguments(self) -> tuple[object, ...]:
        """Return a copy of the reply."""
        return (own_reply(self.reply),)


@dataclass(slots=True)
class ViewCompacted(Moment):
    """A view was compacted before a model call."""

    compaction: Compaction


@dataclass(slots=True)
class ToolBegins(Moment):
    """A tool is about to run."""

    hook: ClassVar[str | None] = "on_tool_start"
    agent_hook: ClassVar[str | None] = "on_tool_start"
    begins: ClassVar[bool] = True
    call: ToolCall
    tool: Tool
    context: ToolContext[Any] | None
    nested: str | None = None
    """Id of the sub-run that answers the call, if the tool is an agent."""

    def hook_arguments(self) -> tuple[object, ...]:
        """Return the tool."""
        return (self.tool,)


@dataclass(slots=True)
class ToolEnds(Moment):
    """A tool call has a result."""

    hook: ClassVar[str | None] = "on_tool_end"
    agent_hook: ClassVar[str | None] = "on_tool_end"
    call: ToolCall
    tool: Tool
    context: ToolContext[Any] | None
    outcome: ToolOutcome

    def hook_arguments(self) -> tuple[object, ...]:
        """Return the tool and the text of its result."""
        return self.tool, self.outcome.output


@dataclass(slots=True)
class HandoffNoted(Moment):
    """A handoff is recorded, whether it was carried out or not."""

    record: HandoffRecord

    def write_log(self, run: Run) -> None:
        """Log a handoff that was not carried out."""
        one = self.record
        if one.ended is not None:
            source, target = loggable_text(one.source), loggable_text(one.target)
            log(run, _handoff_log, logging.INFO, "%s -> %s: %s", source, target, one.status)


@dataclass(slots=True)
class HandoffMade(Moment):
    """The view of the target is ready, and the source is still active."""

    hook: ClassVar[str | None] = "on_handoff"
    agent_hook: ClassVar[str | None] = "on_handoff"
    record: HandoffRecord
    source: Agent[Any]
    target: Agent[Any] | Handler
    shaped_by: str | None
    """Filter or summary that changed the view; None if the target sees all of it."""
    before: int
    """Number of items in the source's view."""
    after: int
    """Number of items in the target's view."""

    def hook_arguments(self) -> tuple[object, ...]:
        """Return the target."""
        return (self.target,)

    def agent_hook_arguments(self, agent: Agent[Any]) -> tuple[object, ...]:
        """Return the target and the source."""
        return self.target, self.source

    def write_log(self, run: Run) -> None:
        """Log a handoff for both agents, with its reason and no other content of the conversation."""
        record = self.record
        source, target = loggable_text(record.source), loggable_text(record.target)
        line = "[handoff] Executing handoff: %s -> %s in turn %d of run %s"
        log(run, _handoff_log, logging.INFO, line, source, target, run.turn, run.run_id)
        why = f" (Reason: {loggable_text(record.reason)})" if record.reason else ""
        log(run, _handoff_log, logging.INFO, "[%s] Received handoff from %s%s", target, source, why)


@dataclass(slots=True)
class HandoffReceived(Moment):
    """The target of a handoff is active."""

    agent_hook: ClassVar[str | None] = "on_handoff"
    source: Agent[Any]
    target: Agent[Any]


@dataclass(slots=True)
class AnswerReturned(Moment):
    """The output of an agent went back to its caller, which goes on."""

    source: str
    target: str

    def write_log(self, run: Run) -> None:
        """Log the way back."""
        line = "%s -> %s with an answer in turn %d of run %s"
        source, target = loggable_text(self.source), loggable_text(self.target)
        log(run, _handoff_log, logging.INFO, line, source, target, run.turn, run.run_id)


@dataclass(slots=True)
class AgentEnds(Moment):
    """An agent has given its output."""

    hook: ClassVar[str | None] = "on_agent_end"
    agent_hook: ClassVar[str | None] = "on_end"
    output: object

    def hook_arguments(self) -> tuple[object, ...]:
        """Return a copy of the output."""
        return (own_copy(self.output),)


@dataclass(slots=True)
class RunEnds(Moment):
    """The run has ended."""

    error: BaseException | None


async def emit(run: Run, moment: Moment) -> None:
    """Call the hooks of a moment and wait for them, and pass it to the traces and the log.

    A moment is made only if ``run.is_observed``.
    """
    if not moment.begins:
        emit_now(run, moment)
    if run.hooks or run.frame.agent.has_hooks:
        await _call_hooks(run, moment)
    if moment.begins:
        emit_now(run, moment)


def emit_now(run: Run, moment: Moment) -> None:
    """Pass a moment to the traces and the log, without hooks; this works in a cancelled run too."""
    if run.recorder is not None:
        run.recorder.write(moment)
    if _handoff_log.isEnabledFor(logging.INFO):
        moment.write_log(run)


def own_reply(reply: MessageDone) -> MessageDone:
    """Return a copy of a reply for code that may edit it; the original message is in the transcript."""
    return replace(reply, message=detached(reply.message))


# Hooks

_hooks_log = logging.getLogger("routelock.hooks")


async def _call_hooks(run: Run, moment: Moment) -> None:
    """Call the hooks of a moment with the context, the active agent and the moment's arguments.

    If a hook raises, the error is logged and is a problem of the result, and the run goes on.
    """
    context: Any = getattr(moment, "context", None)
    if isinstance(moment, HandoffReceived):
        shared = _hooks_of(moment.source, "on_handoff")
        for hook in _hooks_of(moment.target, "on_handoff"):
            # a hook that both agents have was called for the source
            if moment.target is moment.source or hook not in shared:
                await call_hook(run, "on_handoff", hook, None, moment.target, moment.source)
        return
    for hooks in run.hooks:
        if moment.hook is not None and _is_overridden(hooks, RunHooks, moment.hook):
            hook = getattr(hooks, moment.hook, None)
            await call_hook(run, moment.hook, hook, context, run.frame.agent, *moment.hook_arguments())
    if moment.agent_hook is None:
        return
    for hook in _hooks_of(run.frame.agent, moment.agent_hook):
        await call_hook(run, moment.agent_hook, hook, context, *moment.agent_hook_arguments(run.frame.agent))


def _is_overridden(hooks: object, kind: type[object], name: str) -> bool:
    """Whether a hook differs from that of the base class; `call_hook` reports one that is missing."""
    if hooks is None:
        return False
    hook: object = getattr(hooks, name, None)
    return getattr(hook, "__func__", hook) is not getattr(kind, name)


def _hooks_of(agent: Agent[Any], name: str) -> Sequence[Any]:
    """Return the hooks of one name that an agent and its skills have; None for a missing method."""
    skills = agent.registered.hooks.get(name, ())
    if not _is_overridden(agent.hooks, AgentHooks, name):
        return skills
    return [getattr(agent.hooks, name, None), *skills]


async def call_hook(run: Run, name: str, hook: Any, context: Any, *args: Any) -> None:
    """Call a hook with the context and more arguments; if it raises, the result has a problem."""
    try:
        if hook is None:
            raise TypeError(f"there is no method {name}; derive from RunHooks or AgentHooks")
        await resolve(hook(context or run.current_context(), *args))
    except BaseException as error:
        if not is_error(error):
            raise
        log(run, _hooks_log, logging.ERROR, "hook %s raised", name, error=error)
        text = f"hook {name} raised {type(error).__name__}: {error_text(error)}"
        run.add_problem("hook", text, call_id=None if context is None else context.tool_call_id, error=error)


# The log

_LONGEST = 200

_handoff_log = logging.getLogger("routelock.handoff")


def log(
    run: Run, to: logging.Logger, level: int, text: str, *args: object, error: BaseException | None = None
) -> None:
    """Write a line to a log; if the log raises, the run has a problem that says so.

    Args:
        run: the run.
        to: the logger.
        level: a level of `logging`.
        text: the line, with placeholders for ``args`` as in `logging`.
        args: evaluated even if the level is off; check ``to.isEnabledFor`` first if that is slow.
        error: error whose traceback is added.
    """
    if not to.isEnabledFor(level):
        return
    try:
        to.log(level, text, *args, exc_info=error, stacklevel=2)
    except Exception as raised:
        what = f"the log {to.name!r} raised {type(raised).__name__}: {error_text(raised)}"
        run.add_problem("hook", what, error=raised)


def loggable_text(text: str) -> str:
    """Return text that is safe to log: of limited length, without secrets or line breaks."""
    return plain(redact_text(text[: 4 * _LONGEST]), _LONGEST)
