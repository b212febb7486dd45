"""A stored run: its classes, its JSON, and the checks when it is read.

pydantic reads and writes the classes below, and those of the run itself, such as `HandoffRecord`. Only data
is stored. Agents, handlers and tools are names, and no class is named at all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, cast

import pydantic
from pydantic_core import PydanticCustomError

from routelock._json import AnyObject
from routelock._json_document import check_json, check_version, misfit_text
from routelock._sendable import sendable, sendable_json
from routelock.errors import ConfigError
from routelock.guardrails import GuardrailRecord
from routelock.history.input import checked_message
from routelock.history.messages import RunItem, ToolCall, calls_of
from routelock.history.unfinished_turn import left_over
from routelock.run.records import Compaction, HandoffRecord, Problem, StopReason
from routelock.tools.approvals import Decision, Interruption
from routelock.usage import Usage

__all__ = [
    "FORMAT_VERSION",
    "RunDocument",
    "ShownItem",
    "StoredDecision",
    "StoredFrame",
    "StoredProgress",
    "StoredScope",
    "StoredSize",
    "copy_document",
    "parse_document",
    "read_document",
    "write_document",
]


FORMAT_VERSION = 1
"""The version that is written, and the newest that is read. It grows if older code would misread the form."""

_LARGEST = 2**53
_MOST_LEVELS = 50  # levels of summaries that cover summaries

_Count = Annotated[int, pydantic.Field(ge=0, le=_LARGEST)]


def _check_call(call: ToolCall) -> ToolCall:
    known = cast("dict[str, Any]", call)
    function: Any = known.get("function")
    fields = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    texts = (known.get("id"), fields.get("name"), fields.get("arguments"))
    if not all(isinstance(text, str) for text in texts) or not known["id"]:
        raise PydanticCustomError("call", "a call needs an id, and a function with a name and arguments")
    return call


def _check_usage(usage: Usage) -> Usage:
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    if not all(0 <= count <= _LARGEST for count in (usage.requests, *tokens)):
        raise PydanticCustomError("usage", "a number is negative or too large")
    return usage


def _check_record(record: HandoffRecord) -> HandoffRecord:
    if not record.target or not 0 <= record.turn <= _LARGEST or not 0 <= record.depth <= _LARGEST:
        raise PydanticCustomError("record", "it needs a target, and a turn and a depth of 0 or more")
    if record.usage is not None:
        _check_usage(record.usage)
    return record


def _check_guardrail(record: GuardrailRecord) -> GuardrailRecord:
    if not 0 <= record.turn <= _LARGEST:
        raise PydanticCustomError("guardrail", "its turn must be 0 or more")
    return record


# limits that the classes themselves cannot state, because they must load without pydantic
_Call = Annotated[ToolCall, AnyObject(), pydantic.AfterValidator(_check_call)]

_Usage = Annotated[Usage, pydantic.AfterValidator(_check_usage)]
_Guardrail = Annotated[GuardrailRecord, pydantic.AfterValidator(_check_guardrail)]
_Record = Annotated[HandoffRecord, pydantic.AfterValidator(_check_record)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """An item that models were shown and that is not in the transcript: a summary, or a filter's message."""

    item: RunItem
    covers: list[int] = field(default_factory=lambda: [])
    """The items that a summary replaces, by number; see ``StoredFrame.view``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSize:
    """The size of a view that is compacted, see `routelock.history.compaction.ViewSize`."""

    fixed: _Count = 0
    tools: _Count = 0
    estimated: _Count = 0
    tokens: _Count = 0
    items: _Count = 0
    results: _Count = 0
    cut_at: _Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFrame:
    """An agent that is active, or that waits for the answer of the next one."""

    agent: str
    handler: str
    default_handler: str
    """The handler with which the agent began. If it is still active, a resumed run takes the agent's present
    default handler instead."""
    handler_override: bool = False
    turns: _Count = 0
    handoff_id: str | None = None
    source_prompt: str | None = None
    payload_note: str | None = None
    payload: Any = None
    scopes: _Count = 0
    """How many of the run's memory scopes are around the agent."""
    view: list[int]
    """The numbers of the items that the agent is shown: items of the transcript from 0 up, and
    ``RunDocument.shown_items`` below 0."""
    rendered: _Count = 0
    """How many items of the view a model was shown already, so that no repair is reported twice."""
    size: StoredSize | None = None
    """The size of the view; None if the view is not compacted."""
    call: _Call | None = None
    """The call that the next agent answers; None for the active agent."""
    seconds: float | None = None
    """How many seconds the agent waits for that answer; None for no limit."""
    is_standby: bool = False
    """True if the call is answered, and the agent goes on only if the next one is too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScope:
    """A memory scope, see `routelock.context.MemoryScope`."""

    keys: list[str] | None = None
    same: list[str]
    """Keys whose values are those of the outer memory."""
    own: dict[str, Any]
    """The entries that differ from the outer memory."""
    given: list[str]
    """Keys that were in the scope when it was made."""
    unchanged: list[str]
    """The keys of ``given`` that still have their first value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgress:
    """The counts of the loop guard, see `routelock.run.progress`."""

    answers: dict[str, str]
    times: dict[str, _Count]
    edges: list[tuple[str, str]]
    refused: _Count
    idle: _Count
    names: list[str]
    told: _Count | None = None
    mistakes: _Count = 0
    empty_replies: _Count = 0
    over_limit: _Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A decision on one call, or on all calls of a tool."""

    on: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """The subject of the decision: the path and the id of a call, or an agent and the name of its tool."""
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """The data of a run that outlives its process. Do not change it."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = {"arbitrary_types_allowed": True}

    format_version: int
    run_id: Annotated[str, pydantic.Field(min_length=1)]
    stop_reason: StopReason
    error: str | None = None
    first_agent: str
    announced_agent: str | None = None
    started: bool
    frames: Annotated[list[StoredFrame], pydantic.Field(min_length=1)]
    """The agents that wait, and the active one at the end."""
    turn: _Count
    first_of_turn: _Count
    sub_run_turns: _Count
    warned_of_many: bool
    input_count: _Count
    items: Annotated[list[RunItem], pydantic.Field(min_length=1)]
    """The transcript."""
    shown_items: list[ShownItem] = field(default_factory=lambda: [])
    summary: int | None = None
    """The newest summary of a compaction, by number."""
    compactions: list[Compaction] = field(default_factory=lambda: [])
    accepted: dict[str, _Count] = field(default_factory=lambda: {})
    """Tokens of each agent's last request that a provider took, for a run with a compaction."""
    pending: list[_Call]
    begun: list[str]
    """Ids of calls that were begun and have no answer."""
    usage: _Usage
    usage_by_agent: dict[str, _Usage]
    usage_by_handoff: dict[str, _Usage]
    handoffs: list[_Record]
    errors: list[Problem]
    """Problems that did not end the run, without the exception objects of the process that had them."""
    guardrails: list[_Guardrail] = field(default_factory=lambda: [])
    """The records of guardrails, with ``output_info`` as JSON data."""
    repairs: list[str]
    warnings: list[str]
    failed: list[tuple[str, str]]
    """Handlers that failed, each as the name of its agent and its own name."""
    progress: StoredProgress
    shared_memory: dict[str, Any] = field(default_factory=lambda: {})
    """The outermost memory, without the payload of a handoff."""
    memory_scopes: list[StoredScope]
    tool_calls: _Count = 0
    deleted_keys: list[str] = field(default_factory=lambda: [])
    """Keys of the shared memory that the app gave and the run deleted."""
    claims: _Count = 0
    """How many times a session has stored that a saved state of the run is resumed."""
    answered: bool = False
    """True if the caller has answered calls since the run stopped."""
    interruptions: list[Interruption] = field(default_factory=lambda: [])
    """Calls without a decision, here and in sub-runs."""
    decisions: list[StoredDecision] = field(default_factory=lambda: [])
    sub_runs: dict[str, RunDocument] = field(default_factory=lambda: {})
    """Runs within this one that were stopped, by the id of the call that they answer."""

    @property
    def active(self) -> StoredFrame:
        """The active agent."""
        return self.frames[-1]

    @property
    def waiting(self) -> Sequence[StoredFrame]:
        """The agents that wait for an answer, the innermost last."""
        return self.frames[:-1]

    @property
    def awaited_calls(self) -> set[str]:
        """The ids of the calls for which agents wait."""
        return {frame.call["id"] for frame in self.waiting if frame.call is not None}

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the last turn that were not begun and have no answer."""
        left = left_over(self.items, self.first_of_turn, self.turn, self.awaited_calls)
        return [call for call in left.calls if call["id"] not in self.begun]


# -- JSON --


@functools.cache
def _adapter() -> pydantic.TypeAdapter[RunDocument]:
    # built with the first state: it takes longer than importing all of routelock
    return pydantic.TypeAdapter(RunDocument)


def write_document(document: RunDocument) -> dict[str, Any]:
    """Return a document as JSON data, without fields that have their default value."""
    return cast("dict[str, Any]", _adapter().dump_python(document, mode="json", exclude_defaults=True))


def copy_document(document: RunDocument) -> RunDocument:
    """Return a copy of a document that shares nothing with the run of which it was made.

    Half a surrogate pair, which models and tools sometimes write, becomes U+FFFD: UTF-8 cannot encode it.

    Raises:
        ValueError: a value is not JSON, or the parts of the document contradict one another; the message
            says where.
    """
    free = _free_data(document)
    try:
        check_json(free)
    except ValueError as error:
        if "surrogate" not in str(error):
            raise
        check_json(sendable(free))
    data = _adapter().dump_python(document, exclude_defaults=True)
    return _validated(sendable_json(json.dumps(data, allow_nan=False)))


def _free_data(document: RunDocument) -> dict[str, Any]:
    """Return the data of the app in a document, each value under its place.

    The caller checks it, because pydantic would write a set as a list.
    """
    shown = [one.item for one in document.shown_items]
    return {
        "items": [{"message": item.message} for item in document.items],
        "shown_items": [{"item": {"message": item.message, "whole": [*item.whole]}} for item in shown],
        "frames": [{"payload": frame.payload, "call": frame.call} for frame in document.frames],
        "pending": document.pending,
        "shared_memory": document.shared_memory,
        "memory_scopes": [{"own": scope.own} for scope in document.memory_scopes],
        "sub_runs": {call_id: _free_data(inner) for call_id, inner in document.sub_runs.items()},
    }


def parse_document(text: str) -> RunDocument:
    """Return the document that `routelock.state.RunState.to_json` wrote."""
    return read_document(json.loads(text))


def read_document(data: object) -> RunDocument:
    """Return JSON data from anywhere as the document of a run.

    Raises:
        ValueError: the data is no document, or has a newer format. The message says where, and no value.
    """
    if not isinstance(data, dict):
        raise ValueError("it is no object")
    check_version(cast("dict[str, Any]", data), FORMAT_VERSION)
    return _checked(_validated(json.dumps(data)))


def _validated(text: str) -> RunDocument:
    try:
        return _adapter().validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        raise ValueError(misfit_text(error)) from None  # pydantic's error shows values


# -- checks beyond the types --


def _checked(document: RunDocument) -> RunDocument:
    """Return a document with its messages in the form that a run takes.

    Raises:
        ValueError: a number, an id or a name in it refers to something that is not there.
    """
    document = _with_checked_items(document)
    _check_frames(document)
    _check_calls(document)
    for one in document.decisions:
        if not one.decision.fingerprint and len(one.on) != 2:
            raise ValueError("decisions: one on a tool names its agent and its tool")
    inner = {call_id: _checked(each) for call_id, each in document.sub_runs.items()}
    return replace(document, sub_runs=inner)


def _with_checked_items(document: RunDocument) -> RunDocument:
    for place, item in enumerate(document.items):
        if item.id != place:
            raise ValueError(f"items[{place}] must have the id {place}")
        if item.covers or item.whole:
            raise ValueError(f"items[{place}] is a summary: summaries are in shown_items only")
    for name, count in (("input_count", document.input_count), ("first_of_turn", document.first_of_turn)):
        if count > len(document.items):
            raise ValueError(f"{name} is beyond the last item")
    items = [_item(f"items[{place}]", place, item) for place, item in enumerate(document.items)]
    shown: list[ShownItem] = []
    levels: list[int] = []
    for place, one in enumerate(document.shown_items):
        where = f"shown_items[{place}]"
        if one.item.covers:
            raise ValueError(f"{where}.item.covers must be empty, because {where}.covers has the numbers")
        # a summary covers nothing that comes after it, or it could cover itself
        _check_numbers(f"{where}.covers", one.covers, len(items), place)
        levels.append(1 + max((levels[-1 - number] for number in one.covers if number < 0), default=0))
        if levels[-1] > _MOST_LEVELS:
            raise ValueError(f"{where} covers summaries of more than {_MOST_LEVELS} levels")
        shown.append(replace(one, item=_item(where, place, one.item)))
    if document.summary is not None:
        _check_numbers("summary", [document.summary], len(items), len(shown))
    return replace(document, items=items, shown_items=shown)


def _item(where: str, place: int, item: RunItem) -> RunItem:
    try:
        whole = tuple(checked_message(place, each) for place, each in enumerate(item.whole))
        return replace(item, message=checked_message(place, item.message), whole=whole)
    except ConfigError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}") from error


def _check_frames(document: RunDocument) -> None:
    handoffs = {record.id for record in document.handoffs} & document.usage_by_handoff.keys()
    for place, frame in enumerate(document.frames):
        is_active = frame is document.active
        if (frame.call is None) is not is_active:
            raise ValueError(f"frames[{place}]: each agent but the last waits for the answer to a call")
        _check_numbers(f"frames[{place}].view", frame.view, len(document.items), len(document.shown_items))
        counted = 0 if frame.size is None else frame.size.items
        for name, count in (("rendered", frame.rendered), ("size.items", counted)):
            if count > len(frame.view):
                raise ValueError(f"frames[{place}].{name} is beyond the last item of the view")
        if frame.scopes > len(document.memory_scopes):
            raise ValueError(f"frames[{place}].scopes: there are fewer memory_scopes")
        if frame.handoff_id is not None and frame.handoff_id not in handoffs:
            raise ValueError(f"handoff_id {frame.handoff_id!r:.60} is no handoff of the run")


def _check_numbers(where: str, numbers: Iterable[int], items: int, shown: int) -> None:
    for place, number in enumerate(numbers):
        if not -shown <= number < items:
            raise ValueError(f"{where}[{place}]: there is no item {number}")


def _check_calls(document: RunDocument) -> None:
    made = _call_ids(document.items)
    if strangers := [call["id"] for call in document.pending if call["id"] not in made]:
        raise ValueError(f"pending: there is no call {strangers[0]!r:.60} in the items")


def _call_ids(items: Iterable[RunItem]) -> Collection[str]:
    """Return the ids of all calls, after a check that each call of a model has an id of its own.

    Decisions find their calls by these ids.
    """
    made: set[str] = set()
    of_models: set[str] = set()
    for item in items:
        for call in calls_of(item.message):
            call_id = cast("dict[str, Any]", call).get("id") or ""
            made.add(call_id)
            if item.kind != "model":
                continue
            if not call_id:
                raise ValueError(f"items[{item.id}]: a call of the run has no id")
            if call_id in of_models:
                raise ValueError(f"items[{item.id}]: two calls of the run have the id {call_id!r:.60}")
            of_models.add(call_id)
    return made
