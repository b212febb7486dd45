"""Telling a run's and an agent's hooks what happens, without letting them break the run."""

from __future__ import annotations

import logging
from typing import Any

from interlock.callables import resolve
from interlock.run_state import RunState

__all__ = ["tell"]

_log = logging.getLogger("interlock.hooks")


async def tell(
    run: RunState, run_hook: str | None, *args: Any, agent_hook: str | None = None, context: Any = None
) -> None:
    """Call one hook of the run, and one of the active agent and of its skills, if there are any.

    A hook that raises is logged and noted on the result: watching a run must not end it, and an
    exception must not get lost.
    """
    if run_hook is not None and run.hooks is not None:
        await _call(run, run.hooks, run_hook, (context or run.now(), *args))
    if agent_hook is None:
        return
    if run.agent.hooks is not None:
        await _call(run, run.agent.hooks, agent_hook, (context or run.now(), run.agent, *args))
    for hook in run.agent.equipment.hooks.get(agent_hook, ()):
        await _call(run, hook, agent_hook, (context or run.now(), run.agent, *args))


async def _call(run: RunState, hooks: Any, name: str, args: tuple[Any, ...]) -> None:
    try:
        await resolve((getattr(hooks, name, None) or hooks)(*args))
    except Exception as error:
        _log.exception("hook %s raised", name)
        run.problem("hook", f"hook {name} raised {type(error).__name__}: {error}", error=error)
