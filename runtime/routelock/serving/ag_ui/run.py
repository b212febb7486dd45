"""The run that answers a request, with its events sent as they come."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.history.messages import Message
from routelock.run.config import RunConfig
from routelock.run.events import RunDone, RunEvent, ToolOutput
from routelock.run.result import RunResult
from routelock.run.stream import RunStream
from routelock.serving.ag_ui.events import RunEvents
from routelock.serving.ag_ui.interrupts import Interrupt
from routelock.serving.ag_ui.requests import RunRequest
from routelock.serving.ag_ui.shared_state import SharedState
from routelock.serving.ag_ui.threads import Threads, WaitingRun, waiting_run, with_memory
from routelock.serving.catalog import ServedAgent
from routelock.serving.config import AGUI, ServeConfig, ServedRequest
from routelock.serving.errors import Refusal
from routelock.serving.served_run import needs_approval, run_settings, run_stream
from routelock.state.run_state import RunState
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.serving.http import EventStream

__all__ = ["UserRun", "user_run"]


_MEMORY = "ag_ui"
"""The key of the client's state and properties in the shared memory."""

_logger = logging.getLogger("routelock.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRun:
    """The run that answers a request."""

    served: ServedAgent
    asked: RunRequest
    about: ServedRequest
    config: ServeConfig
    settings: AGUI
    threads: Threads
    agent: Agent[Any]
    given: list[Message] | RunState | WaitingRun
    """The input of a new run, the state of one that goes on, or a run that still waits."""
    run_config: RunConfig
    events: RunEvents
    state: SharedState = field(default_factory=lambda: SharedState({}))

    @property
    def thread(self) -> tuple[str, str, str]:
        """The key of the conversation."""
        return (self.about.principal, self.about.model, self.asked.thread)

    async def stream(self, to: EventStream) -> None:
        """Run, and send the events as they come."""
        if isinstance(self.given, WaitingRun):
            return await to.send(*self.events.ask_again(self.given.interrupts))
        state = self.given if isinstance(self.given, RunState) else None
        stream = await run_stream(self.config, self.about, self.agent, self.given, self.run_config)
        await to.send(*self.events.begin(None if state is None else state.agent))
        async with stream:
            async for event in stream:
                await to.send(*self.events.take(event), *self._changes(event, stream))
        await to.send(*self._end(stream.result))

    def _changes(self, event: RunEvent, stream: RunStream[Any]) -> list[dict[str, Any]]:
        """Return the event of a change of the shared state. Tools make them, and hooks before the end."""
        if not isinstance(event, ToolOutput | RunDone):
            return []
        entries: object = stream.result.context.shared_memory.get(_MEMORY)
        # a handoff may keep it from its target
        if not isinstance(entries, Mapping) or "state" not in entries:
            return []
        return self.state.change(cast("Mapping[str, object]", entries)["state"])

    def _end(self, result: RunResult[Any]) -> list[dict[str, Any]]:
        """Keep a run that waits, and return the last events."""
        if result.interruptions and not self.settings.approvals:
            raise needs_approval(result)
        waiting = self._waiting(result) if result.interruptions or result.pending else None
        interrupts: Mapping[str, Interrupt] = {} if waiting is None else waiting.interrupts
        if waiting is not None:
            self.threads.keep(self.thread, waiting)
        elif self.run_config.next_agent == "sticky":
            self.threads.keep_agent(self.thread, result.next_agent)
        usage = sum(result.usage_by_model.values(), Usage())
        return self.events.finish(result, interrupts, usage)

    def _waiting(self, result: RunResult[Any]) -> WaitingRun | None:
        try:
            return waiting_run(result, self.events.shown, edits=self.settings.edits)
        except ConfigError as error:
            if result.interruptions:  # without the state, no approval could be carried out
                raise
            _logger.warning(
                "%s: the run is not kept while its client runs its tools: %s", self.about.request_id, error
            )
            return None


def user_run(
    served: ServedAgent,
    asked: RunRequest,
    about: ServedRequest,
    config: ServeConfig,
    settings: AGUI,
    threads: Threads,
) -> UserRun:
    """Return the run that answers a request: a new one, or one that goes on.

    Raises:
        Refusal: 400, the request does not answer all calls that wait for it.
    """
    key = (about.principal, about.model, asked.thread)
    memory = {_MEMORY: {"state": asked.state, "forwarded_props": asked.forwarded}}
    given, shown = _given(asked, about, threads, key)
    if isinstance(given, RunState):
        given = with_memory(given, memory)
    agent = threads.agent(key) or served.agent
    base = run_settings(served, asked, about)
    return UserRun(
        served=served,
        asked=asked,
        about=about,
        config=config,
        settings=settings,
        threads=threads,
        agent=agent,
        given=given,
        run_config=replace(
            base,
            agents=base.agents if agent is served.agent else (*base.agents, served.agent),
            conversation_id=base.conversation_id or asked.thread,
            shared_memory={**base.shared_memory, **memory},
        ),
        events=_events(served, asked, settings, shown),
        state=SharedState(asked.state),
    )


def _given(
    asked: RunRequest, about: ServedRequest, threads: Threads, key: tuple[str, str, str]
) -> tuple[list[Message] | RunState | WaitingRun, Mapping[str, str]]:
    """Return the input of the run, and the ids of calls that the client knows, by those of the run.

    Raises:
        Refusal: 400, the request does not answer all calls that wait for it; 409, it only has answers, and no
            call waits.
    """
    if (waiting := threads.waiting(key)) is None:
        if asked.resume:
            _logger.warning("%s: no run of this thread waits for the answers in resume", about.request_id)
        if not asked.messages:
            why = "No run of this thread waits for an answer any more. Send the messages of the conversation."
            raise Refusal(409, why, "not_waiting")
        return asked.messages, {}
    if waiting.asks_again(asked):
        return waiting, waiting.shown
    state = waiting.resumed(asked)
    threads.take(key)
    return (asked.messages, {}) if state is None else (state, waiting.shown)


def _events(served: ServedAgent, asked: RunRequest, settings: AGUI, shown: Mapping[str, str]) -> RunEvents:
    own = frozenset(tool["function"]["name"] for tool in asked.tools)

    def is_hidden(name: str) -> bool:
        return name in served.transfers or not (settings.show_calls or name in own)

    return RunEvents(
        asked.thread,
        asked.run,
        writer=served.writer(),
        is_hidden=is_hidden,
        is_current=asked.is_current,
        shown=shown,
    )
