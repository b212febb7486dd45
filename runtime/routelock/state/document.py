"""The JSON of a run: what it looks like, how it is written, and what is checked when it is read.

Only data is in it. Agents, handlers and tools are names, and no class is named at all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, cast

import pydantic
from typing_extensions import TypedDict

from routelock.agents.agent import Agent
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus, recordable
from routelock.handoffs.context_fields import check_version
from routelock.handoffs.payload import HandoffPayload
from routelock.history.messages import ItemKind, Message, RunItem, calls_of, checked_message
from routelock.run.result import HandoffRecord
from routelock.tools.approvals import Approvals, Decision, Interruption
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
    "approvals_of",
    "check_waiting",
    "checked_document",
    "decision_documents",
    "interruption_document",
    "interruption_of",
    "is_behind",
    "items_of",
    "record_document",
    "record_of",
    "usage_document",
    "usage_of",
    "view_of",
]


FORMAT_VERSION = 1
"""What is written, and the newest that is read. A higher one is for a form that this code would misread."""


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
    """A memory within another, see `routelock.context`."""

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


def interruption_document(one: Interruption) -> InterruptionDocument:
    """Return a call that waits as JSON data."""
    return {
        "agent": one.agent,
        "name": one.name,
        "arguments": one.arguments,
        "call_id": one.call_id,
        "path": [*one.path],
    }


def interruption_of(document: InterruptionDocument, run_id: str) -> Interruption:
    """Return the call that a document of a run holds."""
    return Interruption(
        agent=document["agent"],
        name=document["name"],
        arguments=document["arguments"],
        call_id=document["call_id"],
        path=tuple(document["path"]),
        run_id=run_id,
    )


def check_waiting(one: Interruption, run_id: str, waiting: Sequence[InterruptionDocument]) -> None:
    """See that something can be said of a call.

    Args:
        one: the call.
        run_id: of the run that a state is of.
        waiting: the calls that wait in that state.

    Raises:
        ConfigError: it does not wait there, or has other arguments, or belongs to another run.
    """
    if not isinstance(cast(object, one), Interruption):
        raise ConfigError(
            f"Pass one Interruption, such as result.interruptions[0] or one of state.interruptions, not "
            f"{one!r:.80}."
        )
    called = f"The call {one.call_id!r:.80} of {one.name!r:.80}"
    if one.run_id != run_id:
        raise ConfigError(
            f"{called} belongs to the run {one.run_id!r:.80}, and this is a state of {run_id!r:.80}. "
            "Take one of this state's own interruptions."
        )
    if interruption_document(one) not in waiting:
        known = ", ".join(f"{each['name']} ({each['call_id']})" for each in waiting) or "none"
        raise ConfigError(
            f"{called} does not wait for approval in this state, or has other arguments there. Calls that "
            f"wait: {known:.400}."
        )


def decision_documents(approvals: Approvals) -> list[DecisionDocument]:
    """Return all that was said as JSON data."""
    said = [*approvals.by_call.items(), *approvals.by_tool.items()]
    return [
        {
            "on": [*on],
            "approved": decision.approved,
            "message": decision.message,
            "fingerprint": decision.fingerprint,
        }
        for on, decision in said
    ]


def approvals_of(documents: Iterable[DecisionDocument], asked: Iterable[Interruption]) -> Approvals:
    """Return what documents hold; of two decisions on the same the later one counts.

    Args:
        documents: what was said.
        asked: what it may have been said of.
    """
    by_call: dict[tuple[str, ...], Decision] = {}
    by_tool: dict[tuple[str, str], Decision] = {}
    for document in documents:
        on = document["on"]
        made = Decision(document["approved"], document["message"], document["fingerprint"])
        if made.fingerprint:
            by_call[*on,] = made
        else:
            by_tool[on[0], on[1]] = made
    return Approvals(by_call, by_tool, frozenset((*one.path, one.call_id) for one in asked))


_MOST_SHOWN = 5


@functools.cache
def _contract() -> pydantic.TypeAdapter[RunDocument]:
    # made with the first state that is read: it takes longer than importing all of routelock
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
    check_version(cast("dict[str, Any]", data), FORMAT_VERSION)
    try:
        document = _contract().validate_python(data, strict=True)
    except pydantic.ValidationError as error:
        raise ValueError(_misfit(error)) from None  # its own text shows values
    document = cast(RunDocument, _as_written(document, cast(object, data)))
    _check(document)
    return document


def _as_written(checked: Any, data: Any) -> Any:
    """Return checked data in the order, and with the numbers, in which it was written: 5 does not become 5.0.

    So a state that is read and written again is the same text.
    """
    if isinstance(checked, dict) and isinstance(data, dict):
        known = cast("dict[str, object]", checked)
        given = cast("dict[str, object]", data)
        return {key: _as_written(known[key], each) for key, each in given.items() if key in known}
    if isinstance(checked, list) and isinstance(data, list):
        pairs = zip(cast("list[object]", checked), cast("list[object]", data), strict=True)
        return [_as_written(*pair) for pair in pairs]
    written: object = data
    return written if checked == data else cast(object, checked)


def _check(document: RunDocument) -> None:
    _check_items(document)
    _check_calls(document)
    _check_handoffs(document)
    for decision in document.get("decisions", ()):
        if not decision["fingerprint"] and len(decision["on"]) != 2:
            raise ValueError("decisions: one on a tool names its agent and its tool")
    for inner in document.get("within", {}).values():
        _check(inner)


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
    _check_ids(document)
    made = {call["id"] for item in document["items"] for call in item["message"].get("tool_calls") or ()}
    if strangers := [call["id"] for call in document["pending"] if call["id"] not in made]:
        raise ValueError(f"pending: there is no call {strangers[0]!r:.60} in the items")


def _check_ids(document: RunDocument) -> None:
    """See that no decision and no answer can be taken for those of another call of the run's."""
    seen: set[str] = set()
    for item in document["items"]:
        for call in item["message"].get("tool_calls") or () if item["kind"] == "model" else ():
            if call["id"] in seen:
                raise ValueError(f"items[{item['id']}]: two calls of the run have the id {call['id']!r:.60}")
            seen.add(call["id"])


def _check_handoffs(document: RunDocument) -> None:
    known = {record["id"] for record in document["handoffs"]}
    if any(caller["narrowings"] > len(document["narrowings"]) for caller in document["callers"]):
        raise ValueError("narrowings: there are fewer than a caller has")
    for position in (document["position"], *document["callers"]):
        opened = position["open_handoff"]
        if opened is not None and (opened not in known or opened not in document["spent"]):
            raise ValueError(f"open_handoff {opened!r:.60} is no handoff of the run")


def record_document(record: HandoffRecord) -> RecordDocument:
    """Return a record as JSON data; what was passed along stays as far as JSON can say it."""
    return {
        "id": record.id,
        "source": record.source,
        "target": record.target,
        "tool_name": record.tool_name,
        "call_id": record.call_id,
        "turn": record.turn,
        "status": record.status.value,
        "tried": record.tried,
        "requested_by": record.requested_by,
        "reason": record.reason,
        "input": recordable(record.input),
        "error": record.error,
        "passed_over": [[*pair] for pair in record.passed_over],
        "parent_id": record.parent_id,
        "depth": record.depth,
        "started": record.started,
        "ended": record.ended,
        "usage": None if record.usage is None else usage_document(record.usage),
        "request": _asked(record),
        "response": None if record.response is None else _answered(record.response),
    }


def _answered(response: HandoffResponse) -> ResponseDocument:
    return {
        "status": response.status.value,
        "handoff_id": response.handoff_id,
        "rejection_reason": response.rejection_reason,
        "metadata": recordable(dict(response.metadata)),
        "from_agent": response.from_agent,
    }


def _asked(record: HandoffRecord) -> RequestDocument | None:
    request = record.request
    if request is None:
        return None
    payload = cast("HandoffPayload | None", request.payload)
    return {
        "message": request.message,
        "preserve_context": request.preserve_context,
        "capabilities_required": [*request.capabilities_required],
        "timeout": request.timeout,
        "priority": request.priority,
        "payload": None if payload is None else payload.to_dict(),
        "metadata": recordable(dict(request.metadata)),
    }


def record_of(
    document: RecordDocument, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]
) -> HandoffRecord:
    """Return the record that `record_document` wrote.

    Args:
        document: the data.
        items: the transcript, which has what the model wrote.
        graph: the agents of the run, whose handoffs say of which type that is.
    """
    given, usage = _input(document, items, graph), document["usage"]
    wanted, said = document["request"], document["response"]
    return HandoffRecord(
        id=document["id"],
        source=document["source"],
        target=document["target"],
        tool_name=document["tool_name"],
        call_id=document["call_id"],
        turn=document["turn"],
        status=HandoffStatus(document["status"]),
        tried=document["tried"],
        requested_by=document["requested_by"],
        reason=document["reason"],
        input=given,
        error=document["error"],
        request=None if wanted is None else _request(document, wanted, given),
        response=None if said is None else _response(said),
        passed_over=tuple((name, why) for name, why in document["passed_over"]),
        parent_id=document["parent_id"],
        depth=document["depth"],
        started=document["started"],
        ended=document["ended"],
        usage=None if usage is None else usage_of(usage),
    )


def _response(said: ResponseDocument) -> HandoffResponse:
    return HandoffResponse(
        status=HandoffStatus(said["status"]),
        handoff_id=said["handoff_id"],
        rejection_reason=said["rejection_reason"],
        metadata=said["metadata"],
        from_agent=said["from_agent"],
    )


def _request(document: RecordDocument, wanted: RequestDocument, given: Any) -> HandoffRequest:
    payload = wanted["payload"]
    return HandoffRequest(
        document["target"],
        input=given,
        reason=document["reason"],
        message=wanted["message"],
        from_agent=document["source"],
        request_id=document["id"],
        preserve_context=wanted["preserve_context"],
        capabilities_required=tuple(wanted["capabilities_required"]),
        timeout=wanted["timeout"],
        payload=None if payload is None else HandoffPayload.parse(payload),
        priority=wanted["priority"],
        metadata=wanted["metadata"],
    )


def _input(document: RecordDocument, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]) -> Any:
    """Return what was passed along, made anew of what the model wrote if the handoff has a type."""
    plain: Any = document["input"]
    if plain is None or document["requested_by"] != "model":
        return plain
    kinds = [
        edge.input_type
        for agent in graph.values()
        for edge in agent.edges
        if edge.tool_name == document["tool_name"] and edge.input_type is not None
    ]
    wrote = [
        call["function"]["arguments"]
        for item in items
        for call in calls_of(item.message)
        if call["id"] == document["call_id"]
    ]
    for kind in kinds[:1]:
        for text in wrote[:1]:
            with suppress(ModelBehaviorError):  # another version of the type: then it stays plain data
                return kind.parse(text, strict=True)
    return plain
