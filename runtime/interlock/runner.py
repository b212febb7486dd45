"""Starting runs: plain, from synchronous code, and as a stream of events."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.agents import Agent
from interlock.config import RunConfig
from interlock.errors import ConfigError
from interlock.hooks import RunHooks
from interlock.loop import run_events, run_loop
from interlock.messages import Message, RunInput
from interlock.results import RunEvent, RunResult
from interlock.run import Run
from interlock.starting import DEFAULT_MAX_TURNS, is_state, start

if TYPE_CHECKING:  # loaded by those who use it
    from interlock.run_state import RunState
    from interlock.sessions.session import Session

__all__ = ["DEFAULT_MAX_TURNS", "RunHandle", "RunStream", "Runner"]

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
                `interlock.sessions`. A run that goes on is kept where it was kept before.
            handle: where the result is found also if the run is cancelled; each run needs one of its own.

        Raises:
            ConfigError: agents, input or settings that cannot work, before any model call.
            SessionError: the session could not be loaded or stored, or somebody else has gone on with it.
            InterlockError: whatever ended the run, with the partial result in ``error.result``.
        """
        run = start(starting_agent, input, context, max_turns, hooks, run_config, stream=False)
        run = _kept(run, session, input)
        if handle is not None:
            handle.hold(run)
        return await _finish(run)

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
        import asyncio  # noqa: PLC0415 - a good part of the time that importing interlock takes

        if _loop_is_running():
            raise ConfigError(
                "Runner.run_sync cannot be used inside a running event loop (a notebook, an async web "
                "handler). Use `result = await Runner.run(...)` there."
            )
        run = start(starting_agent, input, context, max_turns, hooks, run_config, stream=False)
        run = _kept(run, session, input)
        if handle is not None:
            handle.hold(run)
        return asyncio.run(_finish(run))

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
        if not hasattr(session, "keeper"):
            raise ConfigError(
                f"session must be a Session, such as Session('user-7', SQLiteSessions('chats.db')), not "
                f"{session!r:.80}. See interlock.sessions."
            )
        run.keeper = session.keeper(input if is_state(input) else None)
    return run


async def _finish(run: Run) -> RunResult[Any]:
    """Carry out a run that nobody watches, and return its result."""
    if run.config.timeout is None:
        await run_loop(run)
    else:
        async with aclosing(run_events(run)) as events:
            async for _ in events:
                pass
    return run.result()


class RunHandle:
    """The caller's hold on one run: its result, however the run ends.

        handle = RunHandle()
        with anyio.move_on_after(30):
            await Runner.run(agent, "Hi", handle=handle)
        result = handle.result

    An error that ends a run carries the result itself, but a cancellation, a timeout of the caller's or a
    ``KeyboardInterrupt`` does not. Go on with ``handle.result.state()``: what was begun is not done again. A
    state from before the run does not know what the run has done. A `RunStream` has its result itself.
    """

    def __init__(self) -> None:
        self._run: Run | None = None

    @property
    def result(self) -> RunResult[Any] | None:
        """The result as it stands, final once the run has ended, see ``stop_reason``; None before a run."""
        return None if self._run is None else self._run.result()

    def hold(self, run: Run) -> None:
        """Hold a run; `Runner.run` does that.

        Raises:
            ConfigError: this handle has had one.
        """
        if self._run is not None:
            raise ConfigError("A RunHandle is for one run, and this one has had its run: make another one.")
        self._run = run


class RunStream:
    """A run that is read event by event.

        async with Runner.run_streamed(agent, "Hi") as stream:
            async for event in stream:
                ...
        result = stream.result

    Leaving the ``async with`` block early ends the run: the connection to the provider is closed, and
    ``result`` is what happened until then, as it is for a `RunHandle`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events: AsyncGenerator[RunEvent] = run_events(run)

    @property
    def result(self) -> RunResult[Any]:
        """The result as it stands: complete after the last event, partial (see ``stop_reason``) before."""
        return self._run.result()

    @property
    def final_output(self) -> Any:
        """The final output, or None as long as there is none."""
        return self._run.final_output

    @property
    def current_agent(self) -> Agent[Any]:
        """Who is speaking."""
        return self._run.agent

    @property
    def last_agent(self) -> Agent[Any]:
        """The agent that spoke last, as on the result; the same as ``current_agent``."""
        return self._run.agent

    def to_input_list(self) -> list[Message]:
        """Return what happened so far as input for the next run, see `RunResult.to_input_list`."""
        return self._run.result().to_input_list()

    async def drain(self) -> RunResult[Any]:
        """Read the rest of the run and return its result."""
        async for _ in self:
            pass
        return self.result

    def stream_events(self) -> AsyncIterator[RunEvent]:
        """Return the events; the same as iterating over the stream itself."""
        return aiter(self)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the run now, if it still goes on. Safe to call twice."""
        try:
            await self._events.aclose()
        except RuntimeError as error:
            if "already running" not in str(error):
                raise
            raise ConfigError(
                "This stream is being read by another task at this moment. Cancel that task instead: its "
                "`async with` block closes the stream."
            ) from error


def _loop_is_running() -> bool:
    """Ask the loops that are loaded: what anyio goes by is inherited by threads that asyncio starts."""
    asyncio, trio = sys.modules["asyncio"], sys.modules.get("trio")
    for ask in (asyncio.get_running_loop, *([trio.lowlevel.current_trio_token] if trio else ())):
        with suppress(RuntimeError):
            ask()
            return True
    return False
