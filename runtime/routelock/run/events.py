"""Events of a streamed run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from routelock.handlers.events import HandlerEvent
from routelock.handoff_request import HandoffStatus
from routelock.run.records import Compaction
from routelock.run.result import RunResult

__all__ = [
    "AgentUpdated",
    "ApprovalRequested",
    "Compacted",
    "EmptyReply",
    "HandlerFallback",
    "HandoffCompleted",
    "HandoffFailed",
    "HandoffOccurred",
    "HandoffRequested",
    "HandoffReturned",
    "NestedEvent",
    "Repaired",
    "RunDone",
    "RunEvent",
    "ToolCalled",
    "ToolOutput",
]


@dataclass(frozen=True, slots=True)
class AgentUpdated:
    """Another agent is active from now on. The first event of every run names its first agent.

    A resumed run continues its events: it emits this one only when the active agent changes.
    """

    type: ClassVar[Literal["agent_updated"]] = "agent_updated"
    agent: str


@dataclass(frozen=True, slots=True)
class EmptyReply:
    """The model's reply was empty: no text, no call, no refusal.

    The run does not replace it with text. It calls the model once more, or takes the empty reply as the final
    output, see ``RunConfig.detect_loops``.
    """

    type: ClassVar[Literal["empty_reply"]] = "empty_reply"
    agent: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """An agent's view of a long conversation was compacted before its next model call."""

    type: ClassVar[Literal["compacted"]] = "compacted"
    compaction: Compaction


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFallback:
    """A handler failed before it showed anything, and the agent's next one by priority replaces it.

    The replacement answers for the agent until the run ends, see ``RunConfig.fallback``.
    """

    type: ClassVar[Literal["handler_fallback"]] = "handler_fallback"
    agent: str
    handler: str
    """Name of the handler that failed."""
    next_handler: str
    """Name of its replacement."""
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool is about to run."""

    type: ClassVar[Literal["tool_called"]] = "tool_called"
    agent: str
    call_id: str
    name: str
    arguments: str
    """Arguments as JSON text, as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """A tool call has its result."""

    type: ClassVar[Literal["tool_output"]] = "tool_output"
    agent: str
    call_id: str
    name: str
    output: str
    """The result as the model sees it."""
    error: str | None = None
    """Kind of error; None if the tool succeeded. ``"not_run"`` and ``"cancelled"`` mark the other calls of a
    reply after one of them ended the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRequested:
    """The model or a tool requests a handoff, and the run tries it."""

    type: ClassVar[Literal["handoff_requested"]] = "handoff_requested"
    source: str
    target: str
    call_id: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffOccurred:
    """A handoff was carried out; `AgentUpdated` follows if the target is an agent."""

    type: ClassVar[Literal["handoff_occurred"]] = "handoff_occurred"
    source: str
    target: str
    call_id: str
    reason: str | None = None
    preserve_context: bool = True
    """Whether the target is shown the conversation, see ``Handoff.preserve_context``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffCompleted:
    """The target's work has ended; each handoff that was accepted gets one such event.

    The event comes with the final output, before the `HandoffOccurred` of the target's own handoff, before
    the `HandoffReturned` of its answer, or last if the run ends for another reason. A stream that is closed
    early lacks it.
    """

    type: ClassVar[Literal["handoff_completed"]] = "handoff_completed"
    source: str
    """Name of the agent that handed over."""
    target: str
    """Name of the agent or handler whose work has ended."""
    call_id: str
    status: HandoffStatus
    """Status of the record: ``COMPLETED``, ``FAILED``, or ``ACCEPTED`` if the run ended otherwise."""
    error: str | None = None
    """Why it failed."""

    @property
    def success(self) -> bool:
        """Whether the target answered or handed over to another agent."""
        return self.status is HandoffStatus.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReturned:
    """The target of a handoff returned its answer to the caller, see ``Handoff.return_to_caller``."""

    type: ClassVar[Literal["handoff_returned"]] = "handoff_returned"
    source: str
    """Name of the agent that answered."""
    target: str
    """Name of the caller, which goes on."""
    call_id: str
    """Id of the caller's call, whose result is the answer."""
    output: str
    """The answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFailed:
    """A requested handoff was not carried out, or its target failed while the caller waited.

    The source goes on, and its model is told the reason.
    """

    type: ClassVar[Literal["handoff_failed"]] = "handoff_failed"
    source: str
    target: str
    call_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """A call waits for an approval; the run ends once the other calls are answered."""

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    agent: str
    call_id: str
    name: str
    arguments: str
    """Arguments as JSON text, as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A message broke a rule that providers enforce, and the run repaired it."""

    type: ClassVar[Literal["repaired"]] = "repaired"
    agent: str
    repair: str
    """What was repaired, as text."""


@dataclass(frozen=True, slots=True)
class RunDone:
    """The last event of a run that does not raise."""

    type: ClassVar[Literal["run_done"]] = "run_done"
    result: RunResult[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedEvent:
    """An event of a sub-run, the run of an agent that was called as a tool; in streamed runs only."""

    type: ClassVar[Literal["nested"]] = "nested"
    path: tuple[str, ...]
    """Names of the agents from the outermost caller down to the one that the event is about."""
    call_ids: tuple[str, ...]
    """Ids of the calls between them, the outermost first. Each call is in the transcript of its caller."""
    event: RunEvent
    """The event itself; never a `NestedEvent`, at any depth."""


RunEvent = (
    HandlerEvent
    | AgentUpdated
    | Compacted
    | EmptyReply
    | HandlerFallback
    | ToolCalled
    | ToolOutput
    | HandoffRequested
    | HandoffOccurred
    | HandoffCompleted
    | HandoffReturned
    | HandoffFailed
    | Repaired
    | ApprovalRequested
    | NestedEvent
    | RunDone
)
"""Any event of a stream. Each has a ``type``, and the last one is `RunDone`."""
