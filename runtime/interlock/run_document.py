"""The JSON of a run: what it looks like, and reading it from a place that nobody trusts.

Only data is in it. Agents, handlers and tools are names, and no class is named at all. What is read is
checked so far that a run can be made of it: types, ranges, and that whatever refers to something does so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, cast

import pydantic
from typing_extensions import TypedDict

from interlock.context_shape import check_version
from interlock.errors import ConfigError
from interlock.messages import ItemKind, Message, RunItem, checked_message
from interlock.usage import Usage

__all__ = [
    "CallerDocument",
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
    "checked_document",
    "items_of",
    "usage_document",
    "usage_of",
    "view_of",
]

_Count = Annotated[int, pydantic.Field(ge=0, le=2**53)]
_Pair = Annotated[list[str], pydantic.Field(min_length=2, max_length=2)]
_MOST_SHOWN = 5


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


class NarrowedDocument(TypedDict):
    """A memory within another, see `interlock.sharing`."""

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


@functools.cache
def _contract() -> pydantic.TypeAdapter[RunDocument]:
    # made with the first state that is read: it takes longer than importing all of interlock
    return pydantic.TypeAdapter(RunDocument)


def checked_document(data: object) -> RunDocument:
    """Return foreign JSON data as the document of a run.

    Raises:
        ValueError: it is none, or one of a newer format. The message says where, and shows no value.
    """
    if not isinstance(data, dict):
        raise ValueError("it is no object")
    if "format_version" not in data:
        raise ValueError("format_version is missing")
    check_version(cast("dict[str, Any]", data))
    try:
        document = _contract().validate_python(data, strict=True)
    except pydantic.ValidationError as error:
        raise ValueError(_misfit(error)) from None  # its own text shows values
    _check_items(document)
    _check_calls(document)
    _check_handoffs(document)
    return document


def _misfit(error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(str(step)[:40] for step in each['loc'])}: {each['msg']}" for each in found[:_MOST_SHOWN]
    ]
    more = error.error_count() - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _check_items(document: RunDocument) -> None:
    items = document["items"]
    for place, item in enumerate(items):
        if item["id"] != place:
            raise ValueError(f"items[{place}] must have the id {place}")
        if "covers" in item:
            raise ValueError(f"items[{place}] is no summary: those are in views only")
        item["message"] = _message(f"items[{place}]", place, item["message"])
    for name in ("input_count", "first_of_turn"):
        if document[name] > len(items):
            raise ValueError(f"{name} is beyond the last item")
    views = [("position", document["position"]), *_named("callers", document["callers"])]
    for name, position in views:
        _check_view(f"{name}.view", position["view"], len(items))
        position["rendered"] = min(position["rendered"], len(position["view"]))


def _named(name: str, all_of: Sequence[CallerDocument]) -> Iterable[tuple[str, Position]]:
    return ((f"{name}[{place}]", each) for place, each in enumerate(all_of))


def _check_view(where: str, view: list[int | ItemDocument], count: int) -> None:
    for place, item in enumerate(view):
        if isinstance(item, int):
            if not 0 <= item < count:
                raise ValueError(f"{where}[{place}] is the place of no item")
            continue
        item["message"] = _message(f"{where}[{place}]", place, item["message"])
        for n, each in enumerate(item.get("whole", [])):
            item.get("whole", [])[n] = _message(f"{where}[{place}].whole[{n}]", n, each)
        _check_view(f"{where}[{place}].covers", item.get("covers", []), count)


def _message(where: str, place: int, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", checked_message(place, message))
    except ConfigError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}") from error


def _check_calls(document: RunDocument) -> None:
    calls = [("pending", call) for call in document["pending"]]
    calls += [("callers", caller["call"]) for caller in document["callers"]]
    for where, call in calls:
        function: Any = call.get("function")
        if not isinstance(function, dict):
            raise ValueError(f"{where}: a call has no function")
        texts = (
            call.get("id"),
            *(cast("dict[str, Any]", function).get(key) for key in ("name", "arguments")),
        )
        if not all(isinstance(text, str) for text in texts) or not call["id"]:
            raise ValueError(f"{where}: a call needs an id, a name and arguments, all text")
    for item in document["items"]:
        for call in item["message"].get("tool_calls") or ():
            if item["kind"] == "model" and not call.get("id"):
                raise ValueError(f"items[{item['id']}]: a call of the run has no id")
    made = {call["id"] for item in document["items"] for call in item["message"].get("tool_calls") or ()}
    if strangers := [call["id"] for call in document["pending"] if call["id"] not in made]:
        raise ValueError(f"pending: there is no call {strangers[0]!r:.60} in the items")


def _check_handoffs(document: RunDocument) -> None:
    known = {record["id"] for record in document["handoffs"]}
    if any(caller["narrowings"] > len(document["narrowings"]) for caller in document["callers"]):
        raise ValueError("narrowings: there are fewer than a caller has")
    for position in (document["position"], *document["callers"]):
        opened = position["open_handoff"]
        if opened is not None and (opened not in known or opened not in document["spent"]):
            raise ValueError(f"open_handoff {opened!r:.60} is no handoff of the run")


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
