"""The records of a trace: one record for each thing that happens in a run, written when it happens.

In a file a record is a line with a JSON object: ``type`` names it (``run_start`` for `RunStarted`, see
`RECORDS`), ``run`` is the id of the run, ``time`` the time in seconds of ``RunConfig.clock``. The other keys
are the fields below; fields with their default value are left out. Readers ignore types and keys that they do
not know.

Each message is written once, with a number (`ItemTraced`). Messages of the transcript count up from 0, in
their order. Messages that only models saw, such as system prompts, summaries and messages of a filter, count
down from -1. The messages of a model call are a list of numbers, written as spans: ``[[-2, -2], [0, 3]]`` is
the message -2 and the messages 0 to 3, see `numbers`. Offered tools are written once as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from routelock.usage import NO_USAGE, Usage

__all__ = [
    "FORMAT",
    "LOCAL",
    "RECORDS",
    "AgentTraced",
    "CompactedTraced",
    "EdgeTraced",
    "ErrorTraced",
    "HandoffTraced",
    "ItemTraced",
    "ModelEnded",
    "ModelRetried",
    "ModelStarted",
    "ProblemTraced",
    "RunEnded",
    "RunStarted",
    "Span",
    "TookOver",
    "ToolEnded",
    "ToolStarted",
    "ToolsTraced",
    "TraceRecord",
    "numbers",
    "spans",
]


FORMAT = 1
"""The format that is written; it grows if older readers would misread a record, not with new keys."""

LOCAL = frozenset(("request", "reply"))
"""Fields with objects of the process; they are not written to files."""

Span = tuple[int, int]
"""The first and the last of consecutive numbers."""

NO_SPANS: tuple[Span, ...] = ()


def spans(found: Iterable[int], after: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Return numbers as spans of consecutive ones, appended to the spans ``after``."""
    made = [[*each] for each in after]
    for number in found:
        if made and number == made[-1][1] + 1:
            made[-1][1] = number
        else:
            made.append([number, number])
    return tuple((first, last) for first, last in made)


def numbers(written: Iterable[Span]) -> list[int]:
    """Return the numbers in these spans, in their order."""
    return [number for first, last in written for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTraced:
    """An exception."""

    type: str = ""
    """The name of the exception's class."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTraced:
    """A handoff that an agent declares."""

    tool_name: str = ""
    target: str = ""
    others: Sequence[str] = ()
    """The targets that are tried next, see ``Handoff.others``."""
    to_handler: bool = False
    """Whether the target is a handler, not an agent."""
    returns: bool = False
    """Whether the source continues when the target is done, see ``Handoff.return_to_caller``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTraced:
    """An agent of the run's graph."""

    name: str = ""
    description: str = ""
    handlers: Sequence[str] = ()
    """Names of the handlers that the run may use; the first is the default, and usually the model."""
    models: Mapping[str, str] = field(default_factory=lambda: {})
    """The handlers that are named after their model, with the model as the user wrote it."""
    tools: Sequence[str] = ()
    agent_tools: Mapping[str, str] = field(default_factory=lambda: {})
    """The tools that are agents, with the names of these agents."""
    handoffs: Sequence[EdgeTraced] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run starts. A run that is resumed from a `RunState` starts once more, with the same id."""

    type: ClassVar[str] = "run_start"
    run: str
    time: float
    format: int = 0
    """`FORMAT` of the version that wrote it."""
    parent: str | None = None
    """The id of the outer run, if this run is one of an agent that was called as a tool."""
    parent_call: str | None = None
    """The id of the call that this run answers."""
    agent: str = ""
    """The active agent at the start."""
    handler: str = ""
    default_agent: str = ""
    """The agent that the run began with; a resumed run may have another active ``agent``."""
    default_handler: str = ""
    resumed: bool = False
    turn: int = 0
    """How many turns the run has had before it was resumed."""
    input_count: int = 0
    """How many of its first messages are the input."""
    stream: bool = False
    max_turns: int | None = None
    user_id: str | None = None
    conversation_id: str | None = None
    agents: Sequence[AgentTraced] = ()
    """The graph, the first agent first, without agents that join later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTraced:
    """A message of the transcript, or one that only a model was shown. See `routelock.history.RunItem`."""

    type: ClassVar[str] = "item"
    run: str
    time: float
    id: int
    """The number of the message: from 0 up in the transcript, below 0 if only a model saw it."""
    kind: str = ""
    """The kind as in a `RunItem`; ``system`` for a system prompt; ``view`` for a message that was repaired,
    or without the parts that only another provider can read."""
    message: Mapping[str, Any] = field(default_factory=lambda: {})
    agent: str | None = None
    asked_by: str | None = None
    covers: Sequence[Span] = NO_SPANS
    """The messages of the transcript that a summary covers."""
    stands_for: int | None = None
    """The message of the transcript of which this is another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsTraced:
    """Tools as a model call offers them for the first time in the run."""

    type: ClassVar[str] = "tools"
    run: str
    time: float
    id: int
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStarted:
    """A model call starts.

    Each message of the transcript is shown, unchanged or in another form, or is in ``told``, ``summarised``
    or ``removed``.
    """

    type: ClassVar[str] = "model_start"
    run: str
    time: float
    call: int
    """The number of the call in the run, from 1; failed calls count."""
    turn: int = 0
    agent: str = ""
    handler: str = ""
    model: str | None = None
    """The model, if the handler names one."""
    provider: str | None = None
    """The vendor, such as ``openai``; None if it is no vendor's model."""
    shown: Sequence[Span] = NO_SPANS
    """The messages that the handler is given, the system prompt first."""
    removed: Sequence[Span] = NO_SPANS
    """Messages that filters or repairs removed."""
    summarised: Sequence[Span] = NO_SPANS
    told: Sequence[Span] = NO_SPANS
    """Calls of other agents and their results; a handoff note replaces them."""
    repairs: Sequence[str] = ()
    """The repairs that were made for this call, as text."""
    tools: int | None = None
    """The id of the `ToolsTraced` that were offered."""
    tool_choice: str | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {})
    output_schema: Mapping[str, Any] | None = None
    request: Any = field(default=None, repr=False, compare=False)
    """The `routelock.Request` itself; only in the process where it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried:
    """An attempt at a model call failed, and another one follows."""

    type: ClassVar[str] = "model_retry"
    run: str
    time: float
    call: int
    attempt: int = 1
    delay: float = 0.0
    error: ErrorTraced = ErrorTraced()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEnded:
    """A model call ended. Without an ``item`` and an ``error`` it was cut off."""

    type: ClassVar[str] = "model_end"
    run: str
    time: float
    call: int
    item: int | None = None
    """The complete reply in the transcript; its `ItemTraced` is the next record."""
    usage: Usage | None = None
    finish_reason: str | None = None
    model: str | None = None
    """The model that answered, as the provider names it."""
    response_id: str | None = None
    error: ErrorTraced | None = None
    reply: Any = field(default=None, repr=False, compare=False)
    """The `routelock.handlers.MessageDone`; only in the process where it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool starts."""

    type: ClassVar[str] = "tool_start"
    run: str
    time: float
    call_id: str
    name: str = ""
    agent: str = ""
    turn: int = 0
    arguments: str = ""
    """JSON text as the model wrote it."""
    origin: str | None = None
    """The MCP server or agent that the tool comes from, see ``Tool.origin``."""
    nested: str | None = None
    """The id of the run that answers, if the tool is an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool has a result. If an executor replayed it, this is its only record."""

    type: ClassVar[str] = "tool_end"
    run: str
    time: float
    call_id: str
    name: str = ""
    output: str = ""
    """The tool result as text. That of a tool that requests a handoff is decided later."""
    failure: str | None = None
    """The reason why there is no proper result: ``arguments``, ``raised``, ``timeout``, ``output``; else
    None."""
    error: ErrorTraced | None = None
    """The exception of the tool."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTraced:
    """The state of a handoff; written again with the same ``id`` when it ends. See `HandoffRecord`."""

    type: ClassVar[str] = "handoff"
    run: str
    time: float
    id: str
    source: str = ""
    target: str = ""
    tool_name: str = ""
    call_id: str = ""
    turn: int = 0
    status: str = ""
    tried: bool = True
    requested_by: str = "model"
    reason: str | None = None
    input: Any = None
    error: str | None = None
    passed_over: Sequence[tuple[str, str]] = ()
    parent_id: str | None = None
    depth: int = 1
    started: float | None = None
    ended: float | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TookOver:
    """The target of a handoff has taken over: its view, and the payload of the handoff."""

    type: ClassVar[str] = "took_over"
    run: str
    time: float
    handoff: str
    """The id of the handoff."""
    shaped_by: str | None = None
    """The filter or setting that changed the view; None if the target sees the same as the source."""
    before: int = 0
    """How many messages the source saw."""
    after: int = 0
    """How many messages the target will see."""
    payload: str | None = None
    """The payload as one line, truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedTraced:
    """An agent's view of a long conversation was compacted. See `routelock.run.Compaction`."""

    type: ClassVar[str] = "compacted"
    run: str
    time: float
    agent: str = ""
    turn: int = 0
    why: str = ""
    how: str = ""
    replaced: int = 0
    """How many messages became one; after ``"cut"``, how many tool results were cut."""
    before: int = 0
    """How many messages the view had before."""
    after: int = 0
    """How many messages the view has now."""
    tokens_before: int = 0
    tokens_after: int = 0
    summary: str | None = None
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemTraced:
    """Something went wrong that did not end the run. See `routelock.run.Problem`."""

    type: ClassVar[str] = "problem"
    run: str
    time: float
    kind: str = ""
    agent: str = ""
    turn: int = 0
    message: str = ""
    call_id: str | None = None
    error: ErrorTraced | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run ended. A run without this record was killed, or is still going on."""

    type: ClassVar[str] = "run_end"
    run: str
    time: float
    stop_reason: str = "unfinished"
    """The ``stop_reason`` of the `RunResult`."""
    output: Any = None
    error: ErrorTraced | None = None
    """The error that the run raises."""
    last_agent: str = ""
    last_handler: str = ""
    next_agent: str = ""
    """The agent that answers the user's next message."""
    turns: int = 0
    usage: Usage = NO_USAGE
    usage_by_agent: Mapping[str, Usage] = field(default_factory=lambda: {})
    warnings: Sequence[str] = ()
    pending: Sequence[Mapping[str, Any]] = ()
    """Calls that the caller has to answer."""
    interruptions: Sequence[Mapping[str, Any]] = ()
    """Calls that wait for an approval, with the fields of `routelock.tools.Interruption`."""
    guardrails: Sequence[Mapping[str, Any]] = ()
    """The records of guardrails, with the fields of `routelock.guardrails.GuardrailRecord`."""


TraceRecord = (
    RunStarted
    | ItemTraced
    | ToolsTraced
    | ModelStarted
    | ModelRetried
    | ModelEnded
    | ToolStarted
    | ToolEnded
    | HandoffTraced
    | TookOver
    | CompactedTraced
    | ProblemTraced
    | RunEnded
)
"""A record of a trace; ``type`` says which one."""

RECORDS: Mapping[str, type[Any]] = {kind.type: kind for kind in get_args(TraceRecord)}
"""The classes of the records by their ``type``."""
