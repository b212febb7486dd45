"""Records of a run: its handoffs, model calls, compactions and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from routelock.handlers.events import MessageDone
from routelock.handlers.port import ToolChoice, ToolSpec
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.history.messages import Message
from routelock.usage import NO_USAGE, Usage

__all__ = [
    "Compaction",
    "HandoffRecord",
    "ModelCall",
    "Problem",
    "Shown",
    "StopReason",
]


StopReason = Literal["done", "requires_action", "limit", "error", "stopped", "unfinished"]
"""Why a run ended.

``done``: it has a final output. ``requires_action``: the caller has to answer the calls in ``pending``, or to
approve or deny those in ``interruptions``. ``limit``: a limit ended it. ``error``: an error ended it.
``stopped``: the app stopped it after a turn, with `RunStream.stop` or `RunHandle.stop`.
``unfinished``: it was cancelled, its stream was closed early, or it still goes on."""


@dataclass(frozen=True, kw_only=True)
class HandoffRecord:
    """One handoff that the model or a tool asked for, made or not."""

    id: str
    """``h-<run id>-<n>``."""
    source: str
    target: str
    tool_name: str
    call_id: str
    turn: int
    status: HandoffStatus
    """``COMPLETED``: the target's work is done. ``ACCEPTED``: the target took over, and the run ended first.
    ``FAILED``: a callback raised, the run ended before the handoff was decided, or the target failed while
    it was active."""
    tried: bool = True
    """False if another handoff of the same reply came first, or the turn ended the run."""
    requested_by: Literal["model", "tool"] = "model"
    """``"model"``: the model called a transfer tool. ``"tool"``: a tool returned a `HandoffRequest`."""
    reason: str | None = None
    """The model's reason, or else that of the declaration."""
    input: Any = None
    """The input that was passed along, parsed by the handoff's ``input_type``."""
    error: str | None = None
    """Why the handoff was not made, or how it failed."""
    request: HandoffRequest | None = field(default=None, repr=False)
    """The request to the target."""
    response: HandoffResponse | None = field(default=None, repr=False)
    """The response to the request: whether it was accepted, by which target, and if not, why. ``status``
    says how the target's work ended, and ``passed_over`` what other targets said."""
    passed_over: Sequence[tuple[str, str]] = ()
    """The targets that did not take over, each with the reason."""
    parent_id: str | None = None
    """The id of the handoff that made the source active."""
    depth: int = 1
    """The number of handoffs that the run had made, with this one."""
    started: float | None = field(default=None, compare=False)
    """The time of the request, in seconds of ``RunConfig.clock``."""
    ended: float | None = field(default=None, compare=False)
    """The time of the refusal, or of the end of the target's work; None while the target is active."""
    usage: Usage | None = None
    """The usage of the run while the target was active; None until the target's work is done. Failed
    attempts and agents that were called as tools count. The usage of all handoffs, and what was consumed
    before the first, add up to the usage of the run."""

    @property
    def taken(self) -> bool:
        """Whether the target took over."""
        accepted = (HandoffStatus.ACCEPTED, HandoffStatus.COMPLETED)
        return self.status in accepted or (self.status is HandoffStatus.FAILED and self.usage is not None)

    @property
    def label(self) -> str:
        """The handoff in a few words for a user: ``"Handoff: <reason>"``, or ``"Handoff to <target>"``."""
        return f"Handoff: {self.reason}" if self.reason else f"Handoff to {self.target}"

    @property
    def tokens(self) -> int | None:
        """The tokens of ``usage``; None while the target is active, or if it never was."""
        return None if self.usage is None else self.usage.total_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One compaction of a view before a model call, see `routelock.history.Compact`."""

    agent: str
    """The agent whose view was compacted."""
    turn: int
    why: Literal["tokens", "messages", "tool_results", "too_long"]
    """The limit that was exceeded; ``"too_long"``: the provider refused the request with `ContextTooLong`."""
    how: Literal["cut", "dropped", "summarised"]
    """How the view was shortened: tool results were cut, or messages were left out or summarised."""
    replaced: int
    """The number of messages that one message replaces; after ``"cut"``, the number of cut results."""
    before: int
    """The number of messages in the view before the compaction."""
    after: int
    """The number of messages in the view after it."""
    tokens_before: int
    """The tokens of the request before it, as far as they were counted."""
    tokens_after: int
    """The tokens of the request after it, estimated."""
    summary: str | None = None
    """The text of a new summary."""
    usage: Usage = NO_USAGE
    """The usage of the summary. It is part of the usage of the run, under the name of its writer."""


@dataclass(slots=True)
class Shown:
    """Messages of a model call: a system prompt, and the first ``count`` of a list that only grows.

    With a copy for each call, the memory of a long run would grow with the square of its length.
    """

    system: Message | None
    growing: list[Message]
    count: int

    def messages(self) -> list[Message]:
        """Return the messages, the system prompt first."""
        shown = self.growing[: self.count]
        if self.system is not None:
            shown.insert(0, self.system)
        return shown


@dataclass(frozen=True, init=False)
class ModelCall:
    """One model call: the exact request to the handler, and its reply."""

    agent: str
    handler: str
    turn: int
    shown: Shown = field(repr=False)
    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice | None
    settings: Mapping[str, Any]
    reply: MessageDone | None = None
    """None when the call failed or was cut off."""

    def __init__(
        self,
        agent: str,
        handler: str,
        turn: int,
        shown: Shown,
        tools: Sequence[ToolSpec],
        tool_choice: ToolChoice | None,
        settings: Mapping[str, Any],
        reply: MessageDone | None = None,
    ) -> None:
        fields = self.__dict__  # an __init__ by dataclass takes twice as long for a frozen class
        fields["agent"] = agent
        fields["handler"] = handler
        fields["turn"] = turn
        fields["shown"] = shown
        fields["tools"] = tools
        fields["tool_choice"] = tool_choice
        fields["settings"] = settings
        fields["reply"] = reply

    @property
    def messages(self) -> list[Message]:
        """The messages of the request, the system prompt first."""
        return self.shown.messages()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that went wrong without ending the run."""

    kind: Literal[
        "unknown_tool",
        "bad_arguments",
        "tool",
        "handoff",
        "hook",
        "provider",
        "fallback",
        "output",
        "refusal",
        "loop",
        "limit",
        "session",
    ]
    agent: str
    turn: int
    message: str
    call_id: str | None = None
    error: BaseException | None = None
