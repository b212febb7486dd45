"""Starting runs: plain, from synchronous code, and as a stream of events."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError
from routelock.history.messages import RunInput
from routelock.run.config import RunConfig
from routelock.run.result import RunResult
from routelock.run.run import Run
from routelock.run.start import DEFAULT_MAX_TURNS, is_state, start
from routelock.run.stream import RunHandle, RunStream, finish

if TYPE_CHECKING:  # loaded by those who use it
    from routelock.sessions.session import Session
    from routelock.state.run_state import RunState

__all__ = ["Runner"]

T = TypeVar("T")


class Runner:
    """Runs agents. All three ways run the same loop and give the same result."""

    @staticmethod
    async def run(
        starting_agent: Agent[T],
        input: RunInput | RunState,
        *,
        context: T | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Any]:
        """Run until there is a final output, and return everything that happened.

        Args:
            starting_agent: who answers first, whatever happened in earlier runs.
            input: the user's text, or messages such as ``earlier.to_input_list() + [message]``; or a
                `RunState`, with which that run goes on where it stood.
            context: an object for tools, instructions and hooks; no model sees it.
            max_turns: most model calls, over all agents; None for no limit. A run that goes on counts those
                that it made before.
            hooks: watches the run.
            run_config: settings for all agents of the run.
            session: what came before the input, and where the run is kept, turn by turn, see
                `routelock.sessions`. A run that goes on is kept where it was kept before.
            handle: where the result is found also if the run is cancelled; each run needs one of its own.

        Raises:
            ConfigError: agents, input or settings that cannot work, before any model call.
            SessionError: the session could not be loaded or stored, or somebody else has gone on with it.
            RoutelockError: whatever ended the run, with the partial result in ``error.result``.
        """
        run = start(starting_agent, input, context, max_turns, hooks, run_config, stream=False)
        run = _kept(run, session, input)
        if handle is not None:
            handle.hold(run)
        return await finish(run)

    @staticmethod
    def run_sync(
        starting_agent: Agent[T],
        input: RunInput | RunState,
        *,
        context: T | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
        handle: RunHandle | None = None,
    ) -> RunResult[Any]:
        """Do `Runner.run` from code that is not async. Arguments and errors are the same.

        Raises:
            ConfigError: an event loop is already running in this thread.
        """
        import asyncio  # noqa: PLC0415 - a good part of the time that importing routelock takes

        if _loop_is_running():
            raise ConfigError(
                "Runner.run_sync cannot be used inside a running event loop (a notebook, an async web "
                "handler). Use `result = await Runner.run(...)` there."
            )
        run = start(starting_agent, input, context, max_turns, hooks, run_config, stream=False)
        run = _kept(run, session, input)
        if handle is not None:
            handle.hold(run)
        return asyncio.run(finish(run))

    @staticmethod
    def run_streamed(
        starting_agent: Agent[T],
        input: RunInput | RunState,
        *,
        context: T | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | None = None,
        session: Session | None = None,
    ) -> RunStream:
        """Return a run as a stream of events. Arguments and errors are those of `Runner.run`.

        Nothing happens until the stream is read, and nothing is read ahead of its reader.
        """
        run = start(starting_agent, input, context, max_turns, hooks, run_config, stream=True)
        return RunStream(_kept(run, session, input))


def _kept(run: Run, session: Session | None, input: RunInput | RunState) -> Run:
    """Let a run be kept in its session, if it has one."""
    if session is not None:
        if not hasattr(session, "store_of_run"):
            raise ConfigError(
                f"session must be a Session, such as Session('user-7', SQLiteSessions('chats.db')), not "
                f"{session!r:.80}. See routelock.sessions."
            )
        run.store = session.store_of_run(input if is_state(input) else None)
    return run


def _loop_is_running() -> bool:
    """Ask the loops that are loaded: what anyio goes by is inherited by threads that asyncio starts."""
    asyncio, trio = sys.modules["asyncio"], sys.modules.get("trio")
    for ask in (asyncio.get_running_loop, *([trio.lowlevel.current_trio_token] if trio else ())):
        with suppress(RuntimeError):
            ask()
            return True
    return False
