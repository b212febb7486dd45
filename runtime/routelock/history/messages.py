"""Messages as every provider's chat API knows them, and the record the run keeps of each.

A message is a chat-completions dict. Keys that routelock does not know survive: what a provider
sent is what that provider gets back. A key that starts with an underscore is routelock's own and
is never sent to anyone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required, TypedDict, TypeVar, cast

from routelock._json import AnyObject, detached, finite
from routelock.errors import ConfigError
from routelock.history.content import chat_part

__all__ = [
    "FunctionCall",
    "ItemKind",
    "Message",
    "Role",
    "RunInput",
    "RunItem",
    "ToolCall",
    "call_ids",
    "calls_of",
    "checked_message",
    "is_note",
    "is_of_user",
    "item_of",
    "last_user_text",
    "marked",
    "portable",
    "refusal_of",
    "shown_later",
    "stored",
    "text_of",
    "to_messages",
]


ORIGIN = "_origin"
"""Private key on an assistant message from `RunResult.to_input_list`: which family wrote it."""

KIND = "_kind"
"""Private key from `RunResult.to_input_list`: on a nudge or a note, which are not the user's own words, and
on the answer to a transfer."""

AGENT = "_agent"
"""Private key from `RunResult.to_input_list`: which agent made the calls of an assistant message."""

_PRIVATE = (ORIGIN, KIND, AGENT)

NOTE = "Note of the runtime, not of the user"
"""How each note begins that tells an agent what others did. A user's message that has it is shown quoted."""

T = TypeVar("T")

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""Who a message is from, as chat APIs say it."""


class FunctionCall(TypedDict):
    """The function half of a tool call; ``arguments`` is JSON text exactly as the model wrote it."""

    name: str
    arguments: str


class ToolCall(TypedDict, total=False):
    """One call in an assistant message. Providers add keys of their own; they are kept."""

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


RunInput = str | Sequence[Message | Mapping[str, Any]]
"""What a run starts from: the user's text, or a list of messages such as an earlier result's."""

ItemKind = Literal["input", "model", "tool", "handoff", "nudge", "note", "summary", "filter"]
"""Where a message came from: the caller, a model, a tool's answer, a transfer's answer, a nudge of the
runtime's, a note about what other agents did (in views, and in inputs that were made of one), a
nested-history summary, or an input filter that wrote a message of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunItem:
    """One message of a run and where it came from.

    ``id`` counts up in the order in which things happened and is unique within the run. ``origin``
    is the family of the handler that wrote a model message, such as ``"anthropic"``: its thinking
    blocks and signatures go back to that family and to no other. ``covers`` is what a summary
    stands for, and ``whole`` copies of all the messages of that summary. A filter that edits a message keeps
    the id: ``dataclasses.replace(item, message=...)``. ``asked_by`` is the call that waits for the
    answer that the item is a part of, see ``Handoff.return_to_caller``.
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
    """The message as a line of a summary, once it was in one: the next summary has it again."""


def to_messages(value: RunInput) -> list[Message]:
    """Turn what a caller passed as input into messages, and say what is wrong with it if it cannot.

    Raises:
        ConfigError: the input is neither text nor a sequence of messages with a known role.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(cast(object, value), Iterable) or isinstance(value, Mapping | bytes):
        raise ConfigError(f"Input must be text or a list of messages, not {type(value).__name__}.")
    return [checked_message(index, message) for index, message in enumerate(value)]


def checked_message(index: int, message: object) -> Message:
    """Return a copy of one message of an input, with the private keys that routelock knows.

    A number that is none, such as NaN, is null in it: it is no JSON, so nobody could send it.

    Raises:
        ConfigError: no provider could read it; the error names ``index`` and the key.
    """
    if not isinstance(message, Mapping):
        raise ConfigError(f"Input message {index} must be a dict with a role, not {type(message).__name__}.")
    known = cast("Mapping[str, Any]", message)
    role = known.get("role")
    if role not in ("user", "assistant", "tool", "system", "developer"):
        hint = " Items of the Responses API are read by a session: Session(...).add(items)."
        raise ConfigError(
            f"Input message {index} has role {role!r}; use user, assistant, tool, system or developer."
            f"{hint if role is None and 'type' in known else ''}"
        )
    if wrong := _misshapen(known) or _bad_calls(known):
        raise ConfigError(f"Input message {index}: {wrong}.")
    kept = cast(Message, {key: detached(value) for key, value in known.items() if _is_kept(key, value)})
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [dict(chat_part(part)) for part in content]
    for call in calls_of(kept):
        call["function"]["arguments"] = _arguments(call)
    return finite(kept)


def _is_kept(key: str, value: object) -> bool:
    if key in (ORIGIN, AGENT):
        return isinstance(value, str)
    return value in ("nudge", "handoff", "note") if key == KIND else not key.startswith("_")


def _misshapen(message: Mapping[str, Any]) -> str | None:
    """Say what no provider could read; what `repair` sets right, such as a missing id, is fine."""
    content, role = message.get("content"), message["role"]
    if not isinstance(content, str | None) and not _are_dicts(content):
        return f"content must be text, a list of parts or None, not {content!r:.80}"
    if content is None and role in ("user", "system", "developer"):
        return f"content of a {role} message must be text or a list of parts, not None"
    for key in ("name", "tool_call_id"):
        if not isinstance(message.get(key), str | None):
            return f"{key} must be text, not {message[key]!r:.80}"
    return None


def _bad_calls(message: Mapping[str, Any]) -> str | None:
    calls: Any = message.get("tool_calls")
    if not calls:
        return None
    if not (_are_dicts(calls) and all(_has_name(call.get("function")) for call in calls)):
        return f"tool_calls must be a list of calls with a function that has a name, not {calls!r:.80}"
    if message["role"] != "assistant":
        return f"tool_calls belong to an assistant message, not to a {message['role']} message"
    for call in calls:
        if not isinstance(call.get("id"), str | None):
            return f"the id in tool_calls must be text, not {call['id']!r:.80}"
        if not isinstance(call["function"].get("arguments") or "", str):
            return f"the arguments in tool_calls must be JSON text, not {call['function']['arguments']!r:.80}"
    return None


def _arguments(call: ToolCall) -> str:
    """Return the arguments of a call; where there are none, some tools write no text but null."""
    arguments: Any = cast("dict[str, Any]", call["function"]).get("arguments")
    return arguments if isinstance(arguments, str) else "{}"


def _are_dicts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in cast("list[object]", value))


def _has_name(function: object) -> bool:
    return isinstance(function, Mapping) and isinstance(cast("Mapping[str, Any]", function).get("name"), str)


def item_of(message: Message, place: int, kind: ItemKind) -> RunItem:
    """Make an item of a message from `to_messages`: what its private keys say is said by the item."""
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
    """Return a copy of an item's message, with private keys for what only the item says; see `item_of`."""
    message = cast("dict[str, Any]", detached(item.message))
    if item.kind in ("nudge", "handoff", "note"):
        message[KIND] = item.kind
    if item.agent is not None and calls_of(item.message):
        message[AGENT] = item.agent
    if item.origin is not None and item.message != portable(item.message):
        message[ORIGIN] = item.origin
    return cast(Message, message)


def shown_later(items: Sequence[RunItem]) -> list[RunItem]:
    """Return what later runs are shown of a transcript.

    How an agent that was asked came to its answer is left out: whoever asked has it, see
    ``Handoff.return_to_caller``.
    """
    answered = {item.message.get("tool_call_id") for item in items}
    return [item for item in items if item.asked_by is None or item.asked_by not in answered]


def calls_of(message: Message) -> list[ToolCall]:
    """Return the tool calls of a message; an empty or missing list is no calls."""
    return message.get("tool_calls") or []


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls in ``messages``, and those that answers in it name."""
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
    """Return what a message says in refusing, in a field of its own or in its content; empty if nothing."""
    if refusal := message.get("refusal"):
        return str(refusal)
    content = message.get("content")
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("refusal") or "") for part in content if part.get("type") == "refusal")


def is_of_user(item: RunItem) -> bool:
    """Return whether an item is the user's own: no nudge and no note of the runtime's, and no summary."""
    return item.message["role"] == "user" and item.kind not in ("nudge", "note", "summary")


def is_note(message: Message) -> bool:
    """Return whether a message that a model was shown is a note of the runtime, and not the user's words."""
    content = message.get("content")
    first = content[0].get("text") if isinstance(content, list) and content else content
    return message["role"] == "user" and isinstance(first, str) and first.startswith(NOTE)


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the text of the user's newest message; empty when there is none.

    An input guardrail finds what the user asked with it, and so does a handler function: the last message may
    be the answer of a tool. Notes of the runtime have the user's role as well, and are passed over.

    Args:
        messages: what a model, a handler function or an input guardrail is given.
    """
    for message in reversed(messages):
        if message["role"] == "user" and not is_note(message):
            return text_of(message)
    return ""


_STORED = frozenset(
    "role content name tool_calls tool_call_id refusal audio images function_call annotations citations "
    "prefix tool_plan cache_control reasoning reasoning_content reasoning_details reasoning_items thinking "
    "thinking_blocks provider_specific_fields extra_content".split()
)

_STORED_IN_CALLS = frozenset(("id", "type", "function", "provider_specific_fields", "extra_content"))

_STORED_IN_FUNCTIONS = frozenset(
    ("name", "arguments", "provider_specific_fields", "extra_content", "thought_signature")
)
"""What vendors are known to write into an assistant's message, into a call, and into the function of one."""


def stored(message: Message) -> Message:
    """Return an assistant's message of the caller's without what no vendor's API has: columns of a database.

    Of other messages the provider knows which fields leave.
    """
    if message["role"] != "assistant":
        return message
    calls = calls_of(message)
    if message.keys() <= _STORED and all(map(_is_stored, calls)):
        return message
    kept = _only(_STORED, message)
    if calls:
        kept["tool_calls"] = [_stored_call(call) for call in calls]
    return cast(Message, kept)


def _is_stored(call: ToolCall) -> bool:
    return call.keys() <= _STORED_IN_CALLS and call["function"].keys() <= _STORED_IN_FUNCTIONS


def _stored_call(call: ToolCall) -> dict[str, Any]:
    return {**_only(_STORED_IN_CALLS, call), "function": _only(_STORED_IN_FUNCTIONS, call["function"])}


def _only(keys: Collection[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in keys}


_PORTABLE = ("role", "content", "name", "tool_call_id", "refusal")

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")


def portable(message: Message) -> Message:
    """Return a message without what only the family that wrote it can read.

    Thinking blocks, signatures and reasoning items mean nothing to another vendor and make some of
    them refuse the request. Text, calls and answers stay. The input is not changed.
    """
    kept: dict[str, Any] = {key: value for key, value in message.items() if key in _PORTABLE}
    content = message.get("content")
    if isinstance(content, list) and message["role"] == "assistant":
        kept["content"] = [part for part in content if part.get("type") not in _THOUGHTS] or None
    if calls := calls_of(message):
        kept["tool_calls"] = [
            {
                "id": call.get("id") or "",
                "type": "function",
                "function": {"name": call["function"].get("name") or "", "arguments": _arguments(call)},
            }
            for call in calls
        ]
    return cast(Message, kept)
