"""What a trace of a run is made of: one record for each thing that happens, when it happens.

As a line of a file a record is a JSON object: ``type`` names it (``run_start`` for `RunStarted`, see
`RECORDS`), ``run`` says whose it is, ``time`` when it happened, in seconds of ``RunConfig.clock``. The other
keys are the fields below; those with the value of their default are left out. Whoever reads ignores types
and keys that it does not know.

Messages are written once and have a number ever after (`ItemTraced`): from 0 up those of the transcript, in
its order, and from -1 down those that only models saw, such as system prompts, summaries and what a filter
wrote. So what a model call was shown is a list of numbers, written as spans: ``[[-2, -2], [0, 3]]`` is the
message -2 and the messages 0 to 3, see `numbers`. The tools that were offered are written once, alike.
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
"""Grows when a reader of an older version would misunderstand a record. New keys and types do not count."""

LOCAL = frozenset(("request", "reply"))
"""Fields with objects of the process, which are in no file."""

Span = tuple[int, int]
"""The first and the last of numbers that follow one another."""

NO_SPANS: tuple[Span, ...] = ()


def spans(found: Iterable[int], after: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Return numbers as spans, in their order, behind those that there are."""
    made = [[*each] for each in after]
    for number in found:
        if made and number == made[-1][1] + 1:
            made[-1][1] = number
        else:
            made.append([number, number])
    return tuple((first, last) for first, last in made)


def numbers(written: Iterable[Span]) -> list[int]:
    """Return the numbers that spans stand for, in their order."""
    return [number for first, last in written for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTraced:
    """An exception."""

    type: str = ""
    """The name of its class."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTraced:
    """A handoff that an agent declares."""

    tool_name: str = ""
    target: str = ""
    others: Sequence[str] = ()
    """Who is asked next, see ``Handoff.others``."""
    to_handler: bool = False
    """Whether the target is a handler, not an agent."""
    returns: bool = False
    """Whether the source goes on when the target is done, see ``Handoff.return_to_caller``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTraced:
    """An agent of the run's graph."""

    name: str = ""
    description: str = ""
    handlers: Sequence[str] = ()
    """Names of those that the run may reach; the first is the default, and usually the model."""
    tools: Sequence[str] = ()
    agent_tools: Mapping[str, str] = field(default_factory=lambda: {})
    """Those of the tools that are agents, and the agents' names."""
    handoffs: Sequence[EdgeTraced] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins. One that goes on from a `RunState` begins once more, with the same id."""

    type: ClassVar[str] = "run_start"
    run: str
    time: float
    format: int = 0
    """`FORMAT` of whoever wrote it."""
    parent: str | None = None
    """The run within which this one is, because an agent was called as a tool."""
    parent_call: str | None = None
    """The id of that call."""
    agent: str = ""
    """Who begins."""
    handler: str = ""
    default_agent: str = ""
    """With whom the run began; another one than ``agent`` if it goes on from a state."""
    default_handler: str = ""
    resumed: bool = False
    turn: int = 0
    """How many turns the run has had before."""
    input_count: int = 0
    """How many of its first messages are the input."""
    stream: bool = False
    max_turns: int | None = None
    user_id: str | None = None
    conversation_id: str | None = None
    agents: Sequence[AgentTraced] = ()
    """The graph, the first agent first; who joins later is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTraced:
    """A message. See `routelock.history.RunItem` for those of the transcript."""

    type: ClassVar[str] = "item"
    run: str
    time: float
    id: int
    """From 0 up in the transcript; below 0 for what only a model saw."""
    kind: str = ""
    """As of a `RunItem`; ``system`` for a system prompt, ``view`` for a message that was repaired or had
    parts left out that only another provider can read."""
    message: Mapping[str, Any] = field(default_factory=lambda: {})
    agent: str | None = None
    asked_by: str | None = None
    covers: Sequence[Span] = NO_SPANS
    """What of the transcript a summary stands for."""
    stands_for: int | None = None
    """Of which message of the transcript this is another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsTraced:
    """Tools as they were offered to a model, for the first time in the run."""

    type: ClassVar[str] = "tools"
    run: str
    time: float
    id: int
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStarted:
    """A model call begins.

    Each message of the transcript is shown as it is or in another form, or is in ``told``, ``summarised``
    or ``removed``.
    """

    type: ClassVar[str] = "model_start"
    run: str
    time: float
    call: int
    """Counted from 1 in the run, those that fail included."""
    turn: int = 0
    agent: str = ""
    handler: str = ""
    model: str | None = None
    """The model, if the handler says which it asks."""
    provider: str | None = None
    """Whom it asks, such as ``openai``; None for what is no model of a vendor's."""
    shown: Sequence[Span] = NO_SPANS
    """What the handler is given, message by message, the system prompt first."""
    removed: Sequence[Span] = NO_SPANS
    """What filters or repairs kept out."""
    summarised: Sequence[Span] = NO_SPANS
    told: Sequence[Span] = NO_SPANS
    """Other agents' calls and their answers, which are in a note instead."""
    repairs: Sequence[str] = ()
    """What was repaired for this call."""
    tools: int | None = None
    """The `ToolsTraced` with this id were offered."""
    tool_choice: str | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {})
    output_schema: Mapping[str, Any] | None = None
    request: Any = field(default=None, repr=False, compare=False)
    """The `routelock.Request` itself; only in the process where it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried:
    """An attempt at a model call failed, and there will be another one."""

    type: ClassVar[str] = "model_retry"
    run: str
    time: float
    call: int
    attempt: int = 1
    delay: float = 0.0
    error: ErrorTraced = ErrorTraced()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEnded:
    """A model call has come to its end. Without an ``item`` and an ``error`` it was cut off."""

    type: ClassVar[str] = "model_end"
    run: str
    time: float
    call: int
    item: int | None = None
    """The complete reply, in the transcript; it is written right after this."""
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
    """A tool is about to run."""

    type: ClassVar[str] = "tool_start"
    run: str
    time: float
    call_id: str
    name: str = ""
    agent: str = ""
    turn: int = 0
    arguments: str = ""
    """JSON text as the model wrote it."""
    nested: str | None = None
    """The id of the run that answers, if the tool is an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool has an outcome. One that was replayed by an executor has this record alone."""

    type: ClassVar[str] = "tool_end"
    run: str
    time: float
    call_id: str
    name: str = ""
    output: str = ""
    """The text that answers the call. That of a tool that asks for a handoff is decided later."""
    failure: str | None = None
    """None when it did what it was asked; ``arguments``, ``raised``, ``timeout`` or ``output`` otherwise."""
    error: ErrorTraced | None = None
    """What was raised."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTraced:
    """A transfer as it stands; written again with the same ``id`` when it ends. See `HandoffRecord`."""

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
    """The target of a transfer has taken over: what shaped its view, and what rides along."""

    type: ClassVar[str] = "took_over"
    run: str
    time: float
    handoff: str
    """The id of the transfer."""
    shaped_by: str | None = None
    """The filter, or what else changed the view; None if the target sees what the source saw."""
    before: int = 0
    """How many messages the source saw ..."""
    after: int = 0
    """... and how many the target will see."""
    payload: str | None = None
    """The data that rides along, as one line that is cut where it is long."""


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
    """A run has ended. One without this record was killed, or still goes on."""

    type: ClassVar[str] = "run_end"
    run: str
    time: float
    stop_reason: str = "unfinished"
    """As of the `RunResult`."""
    output: Any = None
    error: ErrorTraced | None = None
    """What is raised."""
    last_agent: str = ""
    last_handler: str = ""
    next_agent: str = ""
    """Who answers the user's next message."""
    turns: int = 0
    usage: Usage = NO_USAGE
    usage_by_agent: Mapping[str, Usage] = field(default_factory=lambda: {})
    warnings: Sequence[str] = ()
    pending: Sequence[Mapping[str, Any]] = ()
    """Calls that the caller has to answer."""
    interruptions: Sequence[Mapping[str, Any]] = ()
    """Calls that wait for somebody's approval, as `routelock.tools.Interruption` has them."""


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
    | ProblemTraced
    | RunEnded
)
"""A record of a trace; ``type`` tells which one."""

RECORDS: Mapping[str, type[Any]] = {kind.type: kind for kind in get_args(TraceRecord)}
"""The class of each record by what its ``type`` is in a file."""
