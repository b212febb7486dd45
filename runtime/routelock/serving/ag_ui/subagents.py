"""The events of agents that are called as tools. This module does no input or output.

The client learns that such an agent works, and for which call. Its text is not sent: its answer is the
result of the call.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from routelock._sendable import sendable
from routelock.run.events import NestedEvent, RunDone

__all__ = ["Subagents"]


_Event = dict[str, Any]

_Path = tuple[str, ...]
"""The ids of the calls around a sub-run, the outermost first."""


class Subagents:
    """Makes the events that begin and end the sub-runs of one run."""

    def __init__(self) -> None:
        self._open: dict[_Path, str] = {}
        """The ids of the sub-runs that go on."""

    def take(self, event: NestedEvent, shown: Mapping[str, str]) -> list[_Event]:
        """Return the events of an event of a sub-run.

        Args:
            event: the event.
            shown: the ids of calls for the client, by the ids of the run.
        """
        events = [] if event.call_ids in self._open else [self._begun(event, shown)]
        if isinstance(event.event, RunDone):
            waits = event.event.result.stop_reason == "requires_action"
            events += self._ended(event.call_ids, {"type": "suspended" if waits else "success"})
        return events

    def end(self, call_id: str) -> list[_Event]:
        """End the sub-runs of a call of the run that have not ended by themselves."""
        return self._failed([path for path in self._open if path[0] == call_id])

    def end_all(self) -> list[_Event]:
        """End the sub-runs that have not ended by themselves."""
        return self._failed([*self._open])

    def _begun(self, event: NestedEvent, shown: Mapping[str, str]) -> _Event:
        name = self._open[event.call_ids] = f"sub_{uuid.uuid4().hex}"
        outer = self._open.get(event.call_ids[:-1])
        call = shown.get(event.call_ids[0]) if len(event.call_ids) == 1 else None
        return {
            "type": "SUBAGENT_STARTED",
            "subagentRunId": name,
            "name": sendable(event.path[-1]),
            **({} if outer is None else {"parentSubagentRunId": outer}),
            **({} if call is None else {"parentToolCallId": call}),
        }

    def _ended(self, path: _Path, outcome: Mapping[str, str]) -> list[_Event]:
        name = self._open.pop(path)
        return [{"type": "SUBAGENT_FINISHED", "subagentRunId": name, "outcome": dict(outcome)}]

    def _failed(self, paths: list[_Path]) -> list[_Event]:
        # the innermost first
        names = [self._open.pop(path) for path in sorted(paths, key=len, reverse=True)]
        why = "The agent has not finished."
        return [{"type": "SUBAGENT_ERROR", "subagentRunId": name, "message": why} for name in names]
