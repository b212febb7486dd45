"""Messages in chat-completions form, and the item in which a run keeps each message.

A message is a dict. Keys that routelock does not know stay in it, so a provider gets back what it sent. Keys
that start with an underscore are routelock's own and are never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required, TypedDict, cast

from routelock._json import AnyObject
from routelock.history.vendor_calls import Citation, VendorCall, citations_of, vendor_calls_of

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
    "is_note",
    "last_user_text",
    "quoted",
    "refusal_of",
    "text_of",
]


NOTE = "Note of the runtime, not of the user"
"""The beginning of each note to an agent about other agents; in a user message `quoted` changes it."""

_QUOTED = '"Note of the runtime", this message says, "not of the user"'

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


@dataclass(frozen=True, init=False)
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

    def __init__(
        self,
        id: int,
        kind: ItemKind,
        message: Annotated[Message, AnyObject()],
        agent: str | None = None,
        origin: str | None = None,
        *,
        covers: tuple[RunItem, ...] = (),
        whole: tuple[Annotated[Message, AnyObject()], ...] = (),
        asked_by: str | None = None,
    ) -> None:
        fields = self.__dict__  # an __init__ by dataclass takes twice as long for a frozen class
        fields["id"] = id
        fields["kind"] = kind
        fields["message"] = message
        fields["agent"] = agent
        fields["origin"] = origin
        fields["covers"] = covers
        fields["whole"] = whole
        fields["asked_by"] = asked_by

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


def quoted(text: str) -> str:
    """Return a text in which the beginning of a note is put in quotes, so that it forges none."""
    return text.replace(NOTE, _QUOTED)
