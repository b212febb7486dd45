"""What a run leaves behind: its result, and the records in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypeVar

from routelock._json import detached
from routelock.agents.agent import Agent
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request, ToolChoice, ToolSpec
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.history.messages import Message, RunItem, ToolCall, marked, refusal_of, shown_later
from routelock.history.repair import repair
from routelock.tools.approvals import Interruption
from routelock.usage import Usage, total_by

if TYPE_CHECKING:
    from routelock.state.run_state import RunState

__all__ = ["HandoffRecord", "ModelCall", "Problem", "RunResult", "Shown", "StopReason"]


T = TypeVar("T", default=Any)

U = TypeVar("U")

StopReason = Literal["done", "requires_action", "limit", "error", "unfinished"]
"""``done``: a final output. ``requires_action``: the caller has to answer ``pending``, or to say a word on
``interruptions``. ``limit``: a budget ended the run. ``error``: an error did.
``unfinished``: the run was cancelled, its stream was left early, or it still goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """What the run consumed while the target was active; None until the target's work is done. Failed
    attempts and agents that were called as tools count. The usage of all handoffs, and what was consumed
    before the first, add up to the usage of the run."""

    @property
    def taken(self) -> bool:
        """Whether the target took over."""
        accepted = (HandoffStatus.ACCEPTED, HandoffStatus.COMPLETED)
        return self.status in accepted or (self.status is HandoffStatus.FAILED and self.usage is not None)

    @property
    def tokens(self) -> int | None:
        """The tokens of ``usage``; None while the target is active, or if it never was."""
        return None if self.usage is None else self.usage.total_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that went wrong and did not end the run: it was answered, retried or worked around."""

    kind: Literal[
        "unknown_tool",
        "bad_arguments",
        "tool",
        "handoff",
        "hook",
        "provider",
        "fallback",
        "output",
        "loop",
        "limit",
        "session",
    ]
    agent: str
    turn: int
    message: str
    call_id: str | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class Shown:
    """What a model call was shown: a system prompt, and the first ``count`` of a list that only grows.

    A copy for each call would make the memory of a long run grow with the square of its length.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call: exactly what the handler was given, and what it replied."""

    agent: str
    handler: str
    turn: int
    shown: Shown = field(repr=False)
    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice | None
    settings: Mapping[str, Any]
    reply: MessageDone | None = None
    """None when the call failed or was cut off."""

    @staticmethod
    def of(request: Request, shown: Shown, handler: str, reply: MessageDone | None) -> ModelCall:
        """Return the call that was made of this request."""
        return ModelCall(
            agent=request.agent,
            handler=handler,
            turn=request.turn,
            shown=shown,
            tools=request.tools,
            tool_choice=request.tool_choice,
            settings=request.settings,
            reply=reply,
        )

    @property
    def messages(self) -> list[Message]:
        """The messages that were shown, the system prompt first."""
        return self.shown.messages()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult(Generic[T]):
    """All that a run did. A partial one hangs on the error of a run that failed, as ``error.result``."""

    final_output: T
    """Text, or a value of the last agent's ``output_type``; None when there is none."""
    last_agent: Agent[Any]
    """Who answered last."""
    next_agent: Agent[Any]
    """Who answers the user's next message; pass it to the next run, see ``RunConfig.next_agent``."""
    items: Sequence[RunItem]
    """The transcript: the input and everything that happened, in order, nothing left out. Do not edit what
    is in it: it is the run's own. `messages` are copies."""
    input_count: int
    """How many of ``items`` are the input."""
    usage: Usage
    usage_by_agent: dict[str, Usage]
    handoffs: Sequence[HandoffRecord]
    errors: Sequence[Problem]
    repairs: Sequence[str]
    warnings: Sequence[str]
    calls: Sequence[ModelCall]
    """The model calls in order: what each was shown and what it replied."""
    context: RunContext[Any]
    stop_reason: StopReason = "done"
    last_handler: str = ""
    """Name of the handler that answered last."""
    pending: Sequence[ToolCall] = ()
    """Calls of the caller's own tools (``RunConfig.external_tools``), which nobody has answered yet."""
    interruptions: Sequence[Interruption] = ()
    """Calls that wait for somebody's approval, those of agents as tools included, see docs/approvals.md."""
    nested: Mapping[str, RunResult[Any]] = field(default_factory=lambda: {})
    """The runs of agents that were called as tools, by call id. ``usage`` includes theirs, all else is
    this run's alone."""
    capture: Callable[[], RunState] | None = field(default=None, compare=False)
    """What `state` calls."""

    def __repr__(self) -> str:
        # asyncio formats what a finished task returned: the whole history would take seconds
        output = None if self.final_output is None else str(self.final_output)[:200]
        return (
            f"RunResult({self.stop_reason}, last_agent={self.last_agent.name!r}, turns={len(self.calls)}, "
            f"final_output={output!r})"
        )

    def _repr_html_(self) -> str:
        # upward and late: what draws is loaded where something is drawn
        from routelock.run.notebook import result_html  # noqa: PLC0415

        return result_html(self)

    @property
    def new_items(self) -> Sequence[RunItem]:
        """What the run added to its input."""
        return self.items[self.input_count :]

    @property
    def refusal(self) -> str | None:
        """What the model said in refusing to answer; None if it did not.

        It is the final output as well. With an ``output_type`` there is none: the run ends with a
        `ModelBehaviorError`, and ``error.result`` says so.
        """
        said = refusal_of(self.items[-1].message) if len(self.items) > self.input_count else ""
        return said if said.strip() else None

    @property
    def usage_by_handler(self) -> dict[str, Usage]:
        """What the complete replies of each handler consumed."""
        counted = ((each.handler, each.reply.usage) for each in self.calls if each.reply and each.reply.usage)
        return total_by(counted, *(inner.usage_by_handler.items() for inner in self.nested.values()))

    @property
    def usage_by_model(self) -> dict[str, Usage]:
        """What the complete replies of each model consumed, by the name that the provider gives it.

        A handler that names no model counts by its own name. Attempts that failed and what tools report are
        in ``usage`` alone, and so are calls that were made before the run was resumed from a state.
        """
        counted = (
            (each.reply.model or each.handler, each.reply.usage or Usage(requests=1, estimated=True))
            for each in self.calls
            if each.reply is not None
        )
        return total_by(counted, *(inner.usage_by_model.items() for inner in self.nested.values()))

    @property
    def usage_by_edge(self) -> dict[tuple[str, str], Usage]:
        """What was consumed behind each edge, by source and target, while the target was in charge.

        That is the sum of ``HandoffRecord.usage``, in which the runs of agents that were called as tools are;
        their own edges are on their results. What came before the first transfer is behind no edge.
        """
        return total_by(((each.source, each.target), each.usage) for each in self.handoffs if each.usage)

    @property
    def messages(self) -> list[Message]:
        """Copies of the messages of the whole transcript, as they happened."""
        return [detached(item.message) for item in self.items]

    @property
    def raw_replies(self) -> list[MessageDone]:
        """The complete replies of the model calls, in order."""
        return [call.reply for call in self.calls if call.reply is not None]

    def state(self) -> RunState:
        """Return where the run stands, for ``Runner.run`` to go on with, here or in another process.

        Take it when the run has ended, however it ended. The result of a stream that goes on is that of a
        moment: take ``stream.result.state()`` in one go, best between two turns.

        Raises:
            ConfigError: something that the run shares is no JSON (the message says where), the run has gone
                on since, or it is a run within another one.
        """
        if self.capture is None:
            raise ConfigError("This result was not made by a run, so there is nothing to go on with.")
        state = self.capture()
        if len(state.items) != len(self.items):
            raise ConfigError("The run has gone on since this result was made: take stream.result.state().")
        return state

    def to_input_list(self) -> list[Message]:
        """Return the conversation as valid input for another run; add the next user message to it.

        Calls that were never answered, because the run ended early, are given an answer that says so;
        those that are ``pending`` stay open: add a ``tool`` message for each.

        Messages keep what belongs to the provider that wrote them, marked with a private key, and the
        next run shows it to that provider only. Which agent made a call is marked alike, and another one is
        told of the call in a note. All are copies: to edit one does not change the result. How an agent that
        was asked came to its answer is left out (``Handoff.return_to_caller``): whoever asked has the answer.
        """
        messages = repair([marked(item) for item in shown_later(self.items)])[0]
        if not self.pending:
            return messages
        still_open = {call["id"] for call in self.pending}
        return [message for message in messages if message.get("tool_call_id") not in still_open]

    def final_output_as(self, cls: type[U], *, raise_if_incorrect_type: bool = False) -> U:
        """Return the final output, typed as ``cls``; with the flag, raise TypeError when it is not."""
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise TypeError(f"Final output is {type(self.final_output).__name__}, not {cls.__name__}.")
        return cast(U, self.final_output)
