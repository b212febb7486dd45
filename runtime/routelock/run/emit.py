"""Hooks and log lines: what watches a run is told what happens, and cannot break the run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from routelock._callables import error_text, is_error, resolve
from routelock._redaction import redact_text
from routelock._text import plain
from routelock.agents.agent import Agent
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.handlers.port import Handler

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = ["heard", "hears", "log", "loggable_text", "tell", "tell_of_handoff"]


_LONGEST = 200


def log(
    run: Run, to: logging.Logger, level: int, text: str, *args: object, error: BaseException | None = None
) -> None:
    """Write a line to a log.

    Args:
        run: on whose result it is noted when that cannot be done.
        to: the logger.
        level: one of `logging`.
        text: what to write, with ``args`` as `logging` puts them in.
        args: made ready even when nobody listens: ask ``to.isEnabledFor`` before, if that takes time.
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
    """Return what somebody wrote as it may stand in a log: bounded, without secrets or line breaks."""
    return plain(redact_text(text[: 4 * _LONGEST]), _LONGEST)


_log = logging.getLogger("routelock.hooks")


def heard(run: Run) -> bool:
    """Whether anybody listens: the run's hooks, the active agent's, or those of its skills."""
    return run.hooks is not None or run.agent.hooked


def hears(run: Run, hook: str) -> bool:
    """Return whether a hook of this name does something; its name is the same for runs and agents."""
    if run.hooks is None and not run.agent.hooked:
        return False
    if run.hooks is not None and not _does_nothing(run.hooks, RunHooks, hook):
        return True
    hooks = run.agent.hooks
    own = hooks is not None and not _does_nothing(hooks, AgentHooks, hook)
    return own or hook in run.agent.registered.hooks


def _does_nothing(hooks: object, kind: type[object], name: str) -> bool:
    """Whether a hook is that of the class that one derives from; a missing one is told as a mistake."""
    hook: object = getattr(hooks, name, None)
    return getattr(hook, "__func__", hook) is getattr(kind, name)


async def tell(
    run: Run, run_hook: str | None, agent_hook: str | None, *args: Any, context: Any = None
) -> None:
    """Call one hook of the run, and one of the active agent and of its skills, if there are any.

    Each is given the context, the active agent and ``args``. A hook that raises is logged and noted on the
    result: watching a run must not end it, and an exception must not get lost.
    """
    agent = run.agent
    if run_hook is not None and run.hooks is not None:
        await _call(run, run_hook, getattr(run.hooks, run_hook, None), context, agent, *args)
    if agent_hook is not None:
        for hook in _hooks(agent, agent_hook):
            await _call(run, agent_hook, hook, context, agent, *args)


async def tell_of_handoff(run: Run, of: Agent[Any], source: Agent[Any], target: Agent[Any] | Handler) -> None:
    """Call the hooks of one side of a handoff with the target and the source.

    Those that both sides share are called once, for the source.

    Args:
        run: the run.
        of: whose hooks, of the source or the target.
        source: the agent that hands over.
        target: what takes over.
    """
    told = [] if of is source else _hooks(source, "on_handoff")
    for hook in _hooks(of, "on_handoff"):
        if hook not in told:
            await _call(run, "on_handoff", hook, None, target, source)


def _hooks(agent: Agent[Any], name: str) -> list[Any]:
    """Return what an agent's hooks and those of its skills have for an event; None for a missing method."""
    own = [] if agent.hooks is None else [getattr(agent.hooks, name, None)]
    return [*own, *agent.registered.hooks.get(name, ())]


async def _call(run: Run, name: str, hook: Any, context: Any, *args: Any) -> None:
    try:
        if hook is None:
            raise TypeError(f"there is no method {name}; derive from RunHooks or AgentHooks")
        await resolve(hook(context or run.now(), *args))
    except BaseException as error:
        if not is_error(error):
            raise
        log(run, _log, logging.ERROR, "hook %s raised", name, error=error)
        text = f"hook {name} raised {type(error).__name__}: {error_text(error)}"
        run.problem("hook", text, call_id=None if context is None else context.tool_call_id, error=error)
