"""Runs that wait for their client, each as the newest of its thread.

A run waits for approvals, for results of the client's own tools, or for both. It goes on where it was when
a request of its thread has all of them. Its state is in memory: after a restart, or in another worker
process, a request begins at the first agent, with the messages that the client sends anyway.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from routelock.agents.agent import Agent
from routelock.history.messages import Message
from routelock.run.result import RunResult
from routelock.serving.ag_ui.interrupts import Interrupt
from routelock.serving.ag_ui.requests import RunRequest
from routelock.serving.bounded_store import BoundedStore, Bounds, state_size
from routelock.serving.requests import bad_request
from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption

__all__ = ["Threads", "WaitingRun", "waiting_run", "with_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run that waits for its client."""

    state: RunState
    shown: Mapping[str, str]
    """The ids of calls that the client knows, by those of the run."""
    interrupts: Mapping[str, Interrupt]
    """The questions to the client, by ids that cannot be guessed."""

    def asks_again(self, asked: RunRequest) -> bool:
        """Whether a request leaves an approval open. Then nothing is decided."""
        return not self.interrupts.keys() <= asked.resume.keys()

    def resumed(self, asked: RunRequest) -> RunState | None:
        """Return the state with the answers of a request; None if the request does not continue the run.

        Raises:
            Refusal: 400, an answer does not fit, or a call that needs no approval has no result.
        """
        answers = self._answers(asked)
        if len(answers) < len(self.state.pending):
            if self.interrupts:
                raise bad_request("messages: a call of the client's own tools has no result.", "messages")
            return None
        if not self.interrupts and asked.messages[-1]["role"] != "tool":
            return None
        state = self.state
        for name, one in self.interrupts.items():
            state = one.decide(state, asked.resume[name])
        return state.with_answers(answers) if answers else state

    def _answers(self, asked: RunRequest) -> list[Message]:
        """Return the results of the client's calls, each under the id that the call has in the run."""
        given = {message.get("tool_call_id"): message for message in asked.messages}
        pending = [call["id"] for call in self.state.pending]
        found = [(own, given.get(self.shown.get(own, own))) for own in pending]
        return [{**message, "tool_call_id": own} for own, message in found if message is not None]


def waiting_run(result: RunResult[Any], shown: Mapping[str, str], *, edits: bool = False) -> WaitingRun:
    """Return a run that waits, with new ids for its interrupts.

    Args:
        result: the result of the run.
        shown: the ids of calls that the client knows, by those of the run.
        edits: whether the client may edit the arguments of calls that it knows.

    Raises:
        ConfigError: shared data of the run is not JSON.
    """
    state = result.state()
    interrupts = {
        f"int_{secrets.token_hex(16)}": _interrupt(one, state, shown, edits=edits)
        for one in result.interruptions
    }
    return WaitingRun(state=state, shown=dict(shown), interrupts=interrupts)


def _interrupt(one: Interruption, state: RunState, shown: Mapping[str, str], *, edits: bool) -> Interrupt:
    known = None if one.path else shown.get(one.call_id)
    if not edits or known is None or one.question is not None:
        return Interrupt(call=one, shown=known)
    agent = state.agents.get(one.agent)
    tools = {tool.name: tool for tool in agent.all_tools} if agent is not None else {}
    return Interrupt(call=one, shown=known, tool=tools.get(one.name))


def with_memory(state: RunState, entries: Mapping[str, Any]) -> RunState:
    """Return the state of a run whose shared memory has other values for some keys."""
    memory = {**state.document.shared_memory, **entries}
    return replace(state, document=replace(state.document, shared_memory=memory))


_Thread = tuple[str, str, str]
"""The names of a caller and of an agent, and the caller's id of a conversation."""


class Threads:
    """The waiting runs and next agents of an app's conversations. A caller finds only its own.

    Args:
        bounds: the bounds of the runs, whose bytes are counted as JSON.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._runs = BoundedStore[_Thread, WaitingRun](bounds)
        self._agents = BoundedStore[_Thread, Agent[Any]](bounds)

    def __len__(self) -> int:
        return len(self._runs)

    def keep(self, thread: _Thread, run: WaitingRun) -> None:
        """Keep the run that waits in a thread, in place of an earlier one."""
        self._runs.put(thread, run, state_size(run.state))

    def waiting(self, thread: _Thread) -> WaitingRun | None:
        """Return the run that waits in a thread, or None."""
        return self._runs.get(thread)

    def take(self, thread: _Thread) -> None:
        """Remove the run that waits in a thread: it goes on only once."""
        self._runs.remove(thread)

    def keep_agent(self, thread: _Thread, agent: Agent[Any]) -> None:
        """Keep the agent that the next run of a thread begins with, see ``RunConfig.next_agent``."""
        self._agents.put(thread, agent, 1)

    def agent(self, thread: _Thread) -> Agent[Any] | None:
        """Return the agent that the next run of a thread begins with; None for the requested one."""
        return self._agents.get(thread)
