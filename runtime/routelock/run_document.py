"""The JSON of a run: what it looks like.

Only data is in it. Agents, handlers and tools are names, and no class is named at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, cast

import pydantic
from typing_extensions import TypedDict

from routelock.history.messages import ItemKind, Message, RunItem
from routelock.usage import Usage

__all__ = [
    "CallerDocument",
    "DecisionDocument",
    "InterruptionDocument",
    "ItemDocument",
    "NarrowedDocument",
    "Position",
    "ProblemDocument",
    "ProgressDocument",
    "RecordDocument",
    "RequestDocument",
    "ResponseDocument",
    "RunDocument",
    "UsageDocument",
    "is_behind",
    "items_of",
    "usage_document",
    "usage_of",
    "view_of",
]

_Count = Annotated[int, pydantic.Field(ge=0, le=2**53)]
_Pair = Annotated[list[str], pydantic.Field(min_length=2, max_length=2)]


class ItemDocument(TypedDict):
    """A `RunItem`; what is left out is as it is in most."""

    id: int
    kind: ItemKind
    message: dict[str, Any]
    agent: NotRequired[str]
    origin: NotRequired[str]
    covers: NotRequired[list[int | ItemDocument]]
    """What a summary stands for, see ``Position.view``."""
    whole: NotRequired[list[dict[str, Any]]]
    asked_by: NotRequired[str]


class UsageDocument(TypedDict):
    """A `Usage`."""

    requests: _Count
    input_tokens: _Count
    output_tokens: _Count
    cached_tokens: _Count
    reasoning_tokens: _Count
    cost: float | None
    estimated: bool


class Position(TypedDict):
    """Where an agent stands that speaks, or that waits for another one."""

    agent: str
    handler: str
    default_handler: str
    """With this handler the agent began; if it is the one above, whatever is the default now goes on."""
    stands_in: bool
    agent_turns: _Count
    open_handoff: str | None
    source_prompt: str | None
    payload_note: str | None
    view: list[int | ItemDocument]
    """What it is shown: the place of an item in the transcript, or one that is not there as it is."""
    rendered: _Count
    """How much of it a model was shown already, so that no repair is reported twice."""


class CallerDocument(Position):
    """An agent that waits for the answer of another one."""

    call: dict[str, Any]
    seconds: float | None
    payload: Any
    narrowings: _Count
    """How many of those of the run are not its own."""
    stands_by: NotRequired[bool]
    """Whether its call is answered, and it goes on only if the target is too slow."""


class NarrowedDocument(TypedDict):
    """A memory within another, see `routelock.sharing`."""

    keys: list[str] | None
    same: list[str]
    """Keys whose values are those of the memory around it."""
    own: dict[str, Any]
    """What else is in it."""
    given: list[str]
    """Keys that were in it at the beginning ..."""
    unchanged: list[str]
    """... and that still have the value that they had."""


class RequestDocument(TypedDict):
    """What a `HandoffRequest` says beside its record."""

    message: str | None
    preserve_context: bool
    capabilities_required: list[str]
    timeout: float | None
    priority: int
    payload: dict[str, Any] | None
    metadata: dict[str, Any]


_Status = Literal["PENDING", "ACCEPTED", "REJECTED", "COMPLETED", "EXPIRED", "FAILED"]


class ResponseDocument(TypedDict):
    """A `HandoffResponse`."""

    status: _Status
    handoff_id: str
    rejection_reason: str | None
    metadata: dict[str, Any]
    from_agent: str


class RecordDocument(TypedDict):
    """A `HandoffRecord`."""

    id: str
    source: str
    target: Annotated[str, pydantic.Field(min_length=1)]
    tool_name: str
    call_id: str
    turn: _Count
    status: _Status
    tried: bool
    requested_by: Literal["model", "tool"]
    reason: str | None
    input: Any
    error: str | None
    passed_over: list[_Pair]
    parent_id: str | None
    depth: _Count
    started: float | None
    ended: float | None
    usage: UsageDocument | None
    request: RequestDocument | None
    response: ResponseDocument | None


class ProblemDocument(TypedDict):
    """A `Problem`; the exception stays where it was raised."""

    kind: str
    agent: str
    turn: _Count
    message: str
    call_id: str | None


class ProgressDocument(TypedDict):
    """What the loop guard has seen."""

    answers: dict[str, str]
    times: dict[str, _Count]
    edges: list[_Pair]
    refused: _Count
    idle: _Count
    names: list[str]
    told: _Count | None


class InterruptionDocument(TypedDict):
    """An `Interruption`."""

    agent: str
    name: str
    arguments: str
    call_id: str
    path: list[str]


class DecisionDocument(TypedDict):
    """What somebody said of a call, or of all calls of a tool."""

    on: list[str]
    """The path and the id of the call; or the agent and the name of its tool."""
    approved: bool
    message: str
    fingerprint: str
    """That of the call; empty for all calls of a tool."""


class RunDocument(TypedDict):
    """All of a run that outlives its process."""

    format_version: int
    run_id: Annotated[str, pydantic.Field(min_length=1)]
    stop_reason: Literal["done", "requires_action", "limit", "error", "unfinished"]
    error: str | None
    first: str
    speaker: str | None
    started: bool
    position: Position
    callers: list[CallerDocument]
    turn: _Count
    first_of_turn: _Count
    turns_within: _Count
    mistakes: _Count
    empty_replies: _Count
    over_limit: _Count
    warned_of_many: bool
    input_count: _Count
    items: Annotated[list[ItemDocument], pydantic.Field(min_length=1)]
    pending: list[dict[str, Any]]
    begun: list[str]
    """Ids of calls that were begun, answered or not."""
    usage: UsageDocument
    usage_by_agent: dict[str, UsageDocument]
    spent: dict[str, UsageDocument]
    handoffs: list[RecordDocument]
    errors: list[ProblemDocument]
    repairs: list[str]
    warnings: list[str]
    failed: list[_Pair]
    progress: ProgressDocument
    shared_memory: dict[str, Any]
    """The outermost one, without the payload that rides along."""
    narrowings: list[NarrowedDocument]
    payload: Any
    tool_calls: NotRequired[_Count]
    deleted: NotRequired[list[str]]
    """Keys of the shared memory which the app gave, and which are there no more."""
    claims: NotRequired[_Count]
    """How often what a state left to do was begun in a session: who is behind holds a state that was used."""
    answered: NotRequired[bool]
    """Whether the caller has answered calls since the run stopped."""
    interruptions: NotRequired[list[InterruptionDocument]]
    """Calls of which nobody has said anything, here and in the runs within."""
    decisions: NotRequired[list[DecisionDocument]]
    within: NotRequired[dict[str, RunDocument]]
    """Runs within this one that were stopped, by the call that they answer."""


# -- from and to what a run works with --


def usage_document(usage: Usage) -> UsageDocument:
    """Return a usage as JSON data."""
    return cast(UsageDocument, asdict(usage))


def usage_of(document: UsageDocument) -> Usage:
    """Return the usage that a document holds."""
    return Usage(**document)


def items_of(document: RunDocument) -> list[RunItem]:
    """Return the transcript."""
    return [_item(item) for item in document["items"]]


def is_behind(given: RunDocument, kept: RunDocument) -> bool:
    """Whether something was done after the first of two states of a run: in it, or in one within it."""
    here, there = ((each["turn"], len(each["items"])) for each in (given, kept))
    if here != there:
        return here < there
    if not set(kept["begun"]) <= set(given["begun"]):
        return True
    before, since = given.get("within", {}), kept.get("within", {})
    return any(call_id not in before or is_behind(before[call_id], since[call_id]) for call_id in since)


def view_of(view: Iterable[int | ItemDocument], items: Sequence[RunItem]) -> list[RunItem]:
    """Return the items of a view; those of the transcript are the transcript's own."""
    known: dict[str, tuple[RunItem, ...]] = {}
    return [items[item] if isinstance(item, int) else _item(item, items, known) for item in view]


def _item(
    document: ItemDocument, items: Sequence[RunItem] = (), known: dict[str, tuple[RunItem, ...]] | None = None
) -> RunItem:
    covers = document.get("covers", [])
    whole = document.get("whole", [])
    return RunItem(
        id=document["id"],
        kind=document["kind"],
        message=cast(Message, document["message"]),
        agent=document.get("agent"),
        origin=document.get("origin"),
        covers=_covers(covers, items, {} if known is None else known) if covers else (),
        whole=tuple(cast("list[Message]", whole)),
        asked_by=document.get("asked_by"),
    )


def _covers(
    covers: list[int | ItemDocument], items: Sequence[RunItem], known: dict[str, tuple[RunItem, ...]]
) -> tuple[RunItem, ...]:
    """Return one and the same tuple to all messages of a summary: by that they know each other."""
    key = repr(covers)
    if key not in known:
        known[key] = tuple(
            items[item] if isinstance(item, int) else _item(item, items, known) for item in covers
        )
    return known[key]
