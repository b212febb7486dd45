"""What a run emits while it goes on, for readers of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from routelock.handlers.events import HandlerEvent
from routelock.handoff_request import HandoffStatus
from routelock.run.result import RunResult

__all__ = [
    "AgentUpdated",
    "ApprovalRequested",
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
    """This agent speaks from now on. The first event of every run names its first agent.

    A run that goes on from a state goes on with its events, too: it names who speaks when somebody else does.
    """

    type: ClassVar[Literal["agent_updated"]] = "agent_updated"
    agent: str


@dataclass(frozen=True, slots=True)
class EmptyReply:
    """A reply had nothing in it: no text, no call, no refusal.

    The run makes up no text in its place. It asks once more, or takes nothing for the answer, see
    ``RunConfig.detect_loops``.
    """

    type: ClassVar[Literal["empty_reply"]] = "empty_reply"
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFallback:
    """A handler failed before it showed anything, and the agent's next one by priority takes its place.

    It answers for the agent until the run ends, see ``RunConfig.fallback``.
    """

    type: ClassVar[Literal["handler_fallback"]] = "handler_fallback"
    agent: str
    handler: str
    """The one that failed."""
    next_handler: str
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """An ordinary tool is about to run."""

    type: ClassVar[Literal["tool_called"]] = "tool_called"
    agent: str
    call_id: str
    name: str
    arguments: str
    """JSON text as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """A call has its answer. ``error`` is None when the tool did what it was asked.

    ``"not_run"`` and ``"cancelled"`` are those of calls beside one that ended the run.
    """

    type: ClassVar[Literal["tool_output"]] = "tool_output"
    agent: str
    call_id: str
    name: str
    output: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRequested:
    """The model called a transfer tool, and this is the transfer that the run tries."""

    type: ClassVar[Literal["handoff_requested"]] = "handoff_requested"
    source: str
    target: str
    call_id: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffOccurred:
    """A transfer was made; `AgentUpdated` follows when the target is an agent."""

    type: ClassVar[Literal["handoff_occurred"]] = "handoff_occurred"
    source: str
    target: str
    call_id: str
    reason: str | None = None
    preserve_context: bool = True
    """Whether the target is shown the conversation, see ``Handoff.preserve_context``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffCompleted:
    """The target's work is done, or has ended otherwise; every transfer that it agreed to ends with one.

    It comes as soon as that is known: with the final output, before the event of the transfer with which the
    target handed on, before the one with which it returned, and last before the run ends for another reason.
    A stream that is left ends without.
    """

    type: ClassVar[Literal["handoff_completed"]] = "handoff_completed"
    source: str
    """Who handed over."""
    target: str
    """Whose work it was."""
    call_id: str
    status: HandoffStatus
    """That of the record: ``COMPLETED``, or ``FAILED``, or ``ACCEPTED`` when the run ended otherwise."""
    error: str | None = None
    """Why it failed."""

    @property
    def success(self) -> bool:
        """Whether the target answered, or handed on."""
        return self.status is HandoffStatus.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReturned:
    """Whoever was handed over to has answered, and the caller goes on; see ``Handoff.return_to_caller``."""

    type: ClassVar[Literal["handoff_returned"]] = "handoff_returned"
    source: str
    """Who answered."""
    target: str
    """Who goes on."""
    call_id: str
    """The call of the caller's that is answered."""
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFailed:
    """A transfer was asked for and not made, or the target failed while its caller waited.

    The source goes on and knows why.
    """

    type: ClassVar[Literal["handoff_failed"]] = "handoff_failed"
    source: str
    target: str
    call_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """A call waits for somebody's approval; the run ends with it, once the other calls are answered."""

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    agent: str
    call_id: str
    name: str
    arguments: str
    """JSON text as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What the next model was to see broke a rule that providers enforce, and was repaired."""

    type: ClassVar[Literal["repaired"]] = "repaired"
    agent: str
    repair: str


@dataclass(frozen=True, slots=True)
class RunDone:
    """The last event of a run that ends well."""

    type: ClassVar[Literal["run_done"]] = "run_done"
    result: RunResult[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedEvent:
    """What happens in the run of an agent that was called as a tool, while it happens; streamed runs only."""

    type: ClassVar[Literal["nested"]] = "nested"
    path: tuple[str, ...]
    """Names of agents: who asked first, whom it asked, whom that one asked, ..., who answers."""
    call_ids: tuple[str, ...]
    """The ids of those calls, the outermost first. Each belongs to the run of its own asker."""
    event: RunEvent
    """Never a `NestedEvent`: however deep the run, it is wrapped once."""


RunEvent = (
    HandlerEvent
    | AgentUpdated
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
"""What a stream yields: each event has a ``type``, and the last one is `RunDone`."""
