"""Starts runs: async, from synchronous code, and as a stream of events."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, overload

from routelock._hints import hint_keywords
from routelock._peer_names import RUN_KEYWORDS
from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError
from routelock.history.messages import RunInput
from routelock.run.config import RunConfig
from routelock.run.loop import run_to_end
from routelock.run.result import RunResult
from routelock.run.start import DEFAULT_MAX_TURNS, start
from routelock.run.stream import RunHandle, RunStream

if TYPE_CHECKING:
    from routelock.sessions.session import Session
    from routelock.state.run_state import RunState

__all__ = ["Runner"]

Context = TypeVar("Context")

Output = TypeVar("Output")

_SETTINGS = {each.name: f"run_config=RunConfig({each.name}=...)" for each in fields(RunConfig)}

_KEYWORDS: Mapping[str, str] = {**_SETTINGS, **RUN_KEYWORDS}
"""Keywords that the methods below do not have, each with what to write in its place."""


class Runner:
    """Runs agents. All three methods run the same loop and give the same result."""

    @overload
    @staticmethod
    async def run(
        starting_agent: Agent[None, Output],
        input: RunInput | RunState,
        *,
        context: None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]: ...

    @overload
    @staticmethod
    async def run(
        starting_agent: Agent[Context, Output],
        input: RunInput | RunState,
        *,
        context: Context,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]: ...

    @staticmethod
    @hint_keywords(_KEYWORDS)
    async def run(
        starting_agent: Agent[Any, Output],
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]:
        """Run agents until there is a final output, and return the result.

        Args:
            starting_agent: the agent that answers first.
            input: the user's text, or messages such as ``earlier.to_input_list() + [message]``; or a
                `RunState`, to resume that run where it stopped.
            context: an object for tools, instructions and hooks; no model sees it.
            max_turns: the highest number of model calls, over all agents; None for no limit. The earlier
                calls of a resumed run count.
            hooks: called on the events of the run.
            run_config: settings for all agents of the run.
            session: the conversation so far; the run is stored in it turn by turn, see `routelock.sessions`.
                Resume a run with the session that it was started with.
            handle: has the result even if the run is cancelled; each run needs its own.

        Raises:
            ConfigError: agents, input or settings are wrong; raised before any model call.
            SessionError: the session could not be loaded or stored, or another run changed it meanwhile.
            RoutelockError: an error ended the run; the partial result is in ``error.result``.
        """
        given = (starting_agent, input, context, max_turns, hooks, run_config)
        return await run_to_end(start(*given, stream=False, session=session, handle=handle))

    @overload
    @staticmethod
    def run_sync(
        starting_agent: Agent[None, Output],
        input: RunInput | RunState,
        *,
        context: None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]: ...

    @overload
    @staticmethod
    def run_sync(
        starting_agent: Agent[Context, Output],
        input: RunInput | RunState,
        *,
        context: Context,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]: ...

    @staticmethod
    @hint_keywords(_KEYWORDS)
    def run_sync(
        starting_agent: Agent[Any, Output],
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Output]:
        """Do the same as `Runner.run`, from code that is not async. Arguments and errors are the same.

        Raises:
            ConfigError: an event loop is already running in this thread.
        """
        import asyncio  # noqa: PLC0415 - it would take a good part of the import time of routelock

        if _is_loop_running():
            raise ConfigError(
                "Runner.run_sync cannot be used inside a running event loop (a notebook, an async web "
                "handler). Use `result = await Runner.run(...)` there."
            )
        given = (starting_agent, input, context, max_turns, hooks, run_config)
        return asyncio.run(run_to_end(start(*given, stream=False, session=session, handle=handle)))

    @overload
    @staticmethod
    def run_streamed(
        starting_agent: Agent[None, Output],
        input: RunInput | RunState,
        *,
        context: None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
    ) -> RunStream[Output]: ...

    @overload
    @staticmethod
    def run_streamed(
        starting_agent: Agent[Context, Output],
        input: RunInput | RunState,
        *,
        context: Context,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
    ) -> RunStream[Output]: ...

    @staticmethod
    @hint_keywords(_KEYWORDS)
    def run_streamed(
        starting_agent: Agent[Any, Output],
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
    ) -> RunStream[Output]:
        """Return a run as a stream of events. Arguments and errors are those of `Runner.run`.

        The run starts when the stream is first read, and it never runs ahead of its reader.
        """
        given = (starting_agent, input, context, max_turns, hooks, run_config)
        return RunStream(start(*given, stream=True, session=session))


def _is_loop_running() -> bool:
    """Whether an event loop runs in this thread.

    The check asks asyncio and trio and not anyio: threads that asyncio starts inherit anyio's variable.
    """
    asyncio, trio = sys.modules["asyncio"], sys.modules.get("trio")
    for running in (asyncio.get_running_loop, *([trio.lowlevel.current_trio_token] if trio else ())):
        with suppress(RuntimeError):
            running()
            return True
    return False
