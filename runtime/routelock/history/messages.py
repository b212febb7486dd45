"""Messages in chat-completions form, and the item in which a run keeps each message.

A message is a dict. Keys that routelock does not know stay in it, so a provider gets back what it sent. Keys
that start with an underscore are routelock's own and are never sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required, TypedDict, TypeVar, cast

from routelock._json import AnyObject, detached
from routelock.history.vendor_calls import (
    VENDOR_KEYS,
    Citation,
    VendorCall,
    citations_of,
    told_calls,
    vendor_calls_of,
)

__all__ = [
    "FunctionCall",
    "ItemKind",
    "Message",
    "Role",
    "RunInput",
    "RunItem",
    "ToolCall",
    "arguments_of",
    "call_ids",
    "calls_of",
    "drop_unknown_keys",
    "is_note",
    "is_of_user",
    "item_of",
    "last_user_text",
    "marked",
    "portable",
    "refusal_of",
    "shown_later",
    "text_of",
]


ORIGIN = "_origin"
"""Private key of an assistant message from `RunResult.to_input_list`: the family that wrote it."""

KIND = "_kind"
"""Private key from `RunResult.to_input_list`: the kind of a nudge, a note or the result of a handoff call."""

AGENT = "_agent"
"""Private key from `RunResult.to_input_list`: the agent that made the calls of an assistant message."""

_PRIVATE = (ORIGIN, KIND, AGENT)

NOTE = "Note of the runtime, not of the user"
"""The beginning of each note to an agent about other agents. In a user message it is shown in quotes."""

T = TypeVar("T")

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""The role of a message's author in chat APIs."""


class FunctionCall(TypedDict):
    """The function of a tool call; ``arguments`` is JSON text exactly as the model wrote it."""

    name: str
    arguments: str


class ToolCall(TypedDict, total=False):
    """One call in an assistant message. Keys that providers add are kept."""

    id: Required[str]
    type: Required[Literal["function"]]
    function: Required[FunctionCall]
    provider_specific_fields: dict[str, Any]


class Message(TypedDict, total=False):
    """One chat-completions message (OpenAI API reference, "Chat")."""

    role: Required[Role]
    content: str | list[dict[str, Any]] | None
    name: str
    tool_calls: list[ToolCall]
    tool_call_id: str
    refusal: str | None
    reasoning_content: str
    thinking_blocks: list[dict[str, Any]]
    reasoning_items: list[dict[str, Any]]
    provider_specific_fields: dict[str, Any]
    annotations: list[dict[str, Any]]
    vendor_calls: list[dict[str, Any]]
    vendor_items: dict[str, Any]


RunInput = str | Sequence[Message | Mapping[str, Any]]
"""The input of a run: the user's text, or a list of messages such as those of an earlier result."""

ItemKind = Literal["input", "model", "tool", "handoff", "nudge", "note", "summary", "filter"]
"""The source of a message. ``"input"``: the caller. ``"model"``: a model. ``"tool"`` and ``"handoff"``: the
result of a tool call or of a handoff call. ``"nudge"``: the runtime. ``"note"``: a note about other agents,
in views and in inputs made from a view. ``"summary"``: a nested history. ``"filter"``: an input filter."""


@dataclass(frozen=True, init=False, kw_only=True)
class RunItem:
    """One message of a run, and its source.

    ``id`` is unique within the run and grows in the order of events. ``origin`` is the family of the handler
    that wrote a model message, such as ``"anthropic"``: thinking blocks and signatures are sent back to that
    family only. ``covers`` are the items that a summary replaces, and ``whole`` copies of all messages of the
    summary. A filter that edits a message keeps the id: ``dataclasses.replace(item, message=...)``.
    ``asked_by`` is the id of the call whose result this item belongs to, see ``Handoff.return_to_caller``.
    """

    id: int
    kind: ItemKind
    message: Annotated[Message, AnyObject()]
    agent: str | None = None
    origin: str | None = None
    covers: tuple[RunItem, ...] = ()
    whole: tuple[Annotated[Message, AnyObject()], ...] = ()
    asked_by: str | None = None
    line: str | None = field(default=None, init=False, repr=False, compare=False)
    """The message as a line of a summary, kept for the next summary."""

    def __init__(
        self,
        *,
        id: int,
        kind: ItemKind,
        message: Annotated[Message, AnyObject()],
        agent: str | None = None,
        origin: str | None = None,
        covers: tuple[RunItem, ...] = (),
        whole: tuple[Annotated[Message, AnyObject()], ...] = (),
        asked_by: str | None = None,
    ) -> None:
        # in one step: to set frozen fields one by one takes twice as long
        self.__dict__.update(
            id=id,
            kind=kind,
            message=message,
            agent=agent,
            origin=origin,
            covers=covers,
            whole=whole,
            asked_by=asked_by,
        )

    @property
    def vendor_calls(self) -> list[VendorCall]:
        """The calls of vendors' own tools in the message, in order."""
        return vendor_calls_of(self.message)

    @property
    def citations(self) -> list[Citation]:
        """The citations of the message, in order."""
        return citations_of(self.message)


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call; some libraries write null if there are none."""
    arguments: Any = cast("dict[str, Any]", call["function"]).get("arguments")
    return arguments if isinstance(arguments, str) else "{}"


def item_of(message: Message, place: int, kind: ItemKind) -> RunItem:
    """Return a message from `to_messages` as an item; its private keys become fields of the item."""
    known = cast("dict[str, Any]", message)
    if not known.keys().isdisjoint(_PRIVATE):
        message = cast(Message, {key: known[key] for key in known if key not in _PRIVATE})
    return RunItem(
        id=place,
        kind=known.get(KIND, kind),
        message=message,
        agent=known.get(AGENT),
        origin=known.get(ORIGIN),
    )


def marked(item: RunItem) -> Message:
    """Return a copy of an item's message with fields of the item as private keys; see `item_of`."""
    message = cast("dict[str, Any]", detached(item.message))
    if item.kind in ("nudge", "handoff", "note"):
        message[KIND] = item.kind
    if item.agent is not None and calls_of(item.message):
        message[AGENT] = item.agent
    if item.origin is not None and item.message != portable(item.message):
        message[ORIGIN] = item.origin
    return cast(Message, message)


def shown_later(items: Sequence[RunItem]) -> list[RunItem]:
    """Return the items of a transcript that later runs see.

    Items of an agent that returned its output to the caller are left out, because the result of the call has
    that output; see ``Handoff.return_to_caller``.
    """
    answered = {item.message.get("tool_call_id") for item in items}
    return [item for item in items if item.asked_by is None or item.asked_by not in answered]


def calls_of(message: Message) -> list[ToolCall]:
    """Return the tool calls of a message; an empty list if there are none."""
    return message.get("tool_calls") or []


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls in messages, and the ids that tool results refer to."""
    found: set[str] = set()
    for message in messages:
        if "tool_call_id" in message:
            found.add(message["tool_call_id"])
        for call in message.get("tool_calls") or ():
            found.add(call.get("id") or "")
    return found


def text_of(message: Message) -> str:
    """Return the text of a message, joining the text parts of multi-part content."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in content or () if part.get("type") == "text")


def refusal_of(message: Message) -> str:
    """Return the refusal of a message, from its field or from its content; empty if there is none."""
    if refusal := message.get("refusal"):
        return str(refusal)
    content = message.get("content")
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("refusal") or "") for part in content if part.get("type") == "refusal")


def is_of_user(item: RunItem) -> bool:
    """Return whether the user wrote an item: a user message that is not a nudge, note or summary."""
    return item.message["role"] == "user" and item.kind not in ("nudge", "note", "summary")


def is_note(message: Message) -> bool:
    """Return whether a message with the user's role is a note of the runtime."""
    content = message.get("content")
    first = content[0].get("text") if isinstance(content, list) and content else content
    return message["role"] == "user" and isinstance(first, str) and first.startswith(NOTE)


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the text of the newest user message; empty if there is none.

    Use it in an input guardrail or a handler function to get the user's question: the last message may be a
    tool result. Notes of the runtime have the user's role too, and are skipped.

    Args:
        messages: the messages that a model, a handler function or an input guardrail gets.
    """
    for message in reversed(messages):
        if message["role"] == "user" and not is_note(message):
            return text_of(message)
    return ""


_ASSISTANT_KEYS = frozenset(
    "role content name tool_calls tool_call_id refusal audio images function_call annotations citations "
    "prefix tool_plan cache_control reasoning reasoning_content reasoning_details reasoning_items thinking "
    "thinking_blocks provider_specific_fields extra_content".split()
)

_CALL_KEYS = frozenset(("id", "type", "function", "provider_specific_fields", "extra_content"))

_FUNCTION_KEYS = frozenset(
    ("name", "arguments", "provider_specific_fields", "extra_content", "thought_signature")
)
"""The keys that vendors are known to write into an assistant message, a call, and the function of a call."""


def drop_unknown_keys(message: Message) -> Message:
    """Return an assistant message of the caller without unknown keys, such as columns of a database.

    Other messages stay as they are, because the provider chooses which of their keys it sends.
    """
    if message["role"] != "assistant":
        return message
    if not VENDOR_KEYS.isdisjoint(message):
        message = _told(message)
    calls = calls_of(message)
    if message.keys() <= _ASSISTANT_KEYS and all(map(_is_stored, calls)):
        return message
    kept = _only(_ASSISTANT_KEYS, message)
    if calls:
        kept["tool_calls"] = [_stored_call(call) for call in calls]
    return cast(Message, kept)


def _is_stored(call: ToolCall) -> bool:
    return call.keys() <= _CALL_KEYS and call["function"].keys() <= _FUNCTION_KEYS


def _stored_call(call: ToolCall) -> dict[str, Any]:
    return {**_only(_CALL_KEYS, call), "function": _only(_FUNCTION_KEYS, call["function"])}


def _only(keys: Collection[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in keys}


_TOLD_KEYS = VENDOR_KEYS | {"annotations", "executed_tools"}
"""Keys with what a vendor's own tools did; see `routelock.history.vendor_calls`."""


def _told(message: Message) -> Message:
    """Return a message in whose text stands what a vendor's own tools did for it, and not in keys."""
    told = told_calls(message)
    rest: dict[str, Any] = {key: value for key, value in message.items() if key not in _TOLD_KEYS}
    if told:
        content: Any = rest.get("content")
        if isinstance(content, list):
            rest["content"] = [*content, {"type": "text", "text": told}]
        else:
            rest["content"] = f"{content}\n\n{told}" if content else told
    return cast(Message, rest)


_PORTABLE_KEYS = ("role", "content", "name", "tool_call_id", "refusal")

_REASONING_TYPES = ("thinking", "redacted_thinking", "reasoning")


def portable(message: Message) -> Message:
    """Return a copy of a message without the fields that only its own provider family can read.

    Some vendors refuse a request with the thinking blocks, signatures or reasoning items of another vendor.
    Text, calls and results stay. What a vendor's own tools did is told in the text.
    """
    if message["role"] == "assistant" and not _TOLD_KEYS.isdisjoint(message):
        message = _told(message)
    kept: dict[str, Any] = {key: value for key, value in message.items() if key in _PORTABLE_KEYS}
    content = message.get("content")
    if isinstance(content, list) and message["role"] == "assistant":
        kept["content"] = [part for part in content if part.get("type") not in _REASONING_TYPES] or None
    if calls := calls_of(message):
        kept["tool_calls"] = [
            {
                "id": call.get("id") or "",
                "type": "function",
                "function": {"name": call["function"].get("name") or "", "arguments": arguments_of(call)},
            }
            for call in calls
        ]
    return cast(Message, kept)
