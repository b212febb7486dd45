"""The last step before a request leaves: what one vendor alone refuses, made acceptable to it.

The core hands over messages that every chat API understands. Vendors differ in smaller things: the
alphabet of call ids, whether a request may end on an assistant turn, what they do with a blank text.
`prepare` repairs those on the wire only. Messages that are fine go out as the very same objects, and
preparing twice is preparing once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any, Final, NoReturn, cast

from pydantic_core import from_json

from routelock._json import sendable, sendable_json
from routelock.handlers.port import ToolChoice, ToolSpec
from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.repair import says_nothing
from routelock_providers.vendors import Shape

__all__ = [
    "NOT_SHOWN",
    "Outgoing",
    "WireIds",
    "fit_calls",
    "fit_speaker",
    "not_again",
    "only",
    "opens",
    "prepare",
    "tool_choice",
    "tools_for",
    "without_repeated",
]


NOT_SHOWN: Final = {"type": "text", "text": "(Something other than text, which is not shown again.)"}
"""Stands for an image or a sound that a model made: no chat API takes one back from the assistant."""

_NAMES: Final = {
    "image_url": "An image",
    "input_audio": "A sound",
    "file": "A file",
    "video_url": "A video",
}


def not_again(parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return what an assistant said without what cannot go back to one; the same object where that is all."""
    return _same([NOT_SHOWN if part.get("type") in _NAMES else part for part in parts], parts)


def only(parts: Sequence[dict[str, Any]], taken: Collection[str]) -> Sequence[dict[str, Any]]:
    """Return the parts with a note for each whose kind is not ``taken``; the same object where all are."""
    return _same([_noted(part, taken) for part in parts], parts)


def _noted(part: dict[str, Any], taken: Collection[str]) -> dict[str, Any]:
    kind: Any = part.get("type")
    if kind in taken or kind == "text" or (taken and kind not in _NAMES):
        return part
    what = _NAMES.get(kind, "Something")  # to who takes text alone, nothing else is sent, known or not
    return {"type": "text", "text": f"({what} that this model cannot be shown{_named(part)}.)"}


def _named(part: Mapping[str, Any]) -> str:
    match part:
        case {"file": {"filename": str(name)}}:
            return f": {name[:80]!r}"
        case _:
            return ""


def _same(made: list[dict[str, Any]], parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return parts if all(map(operator.is_, made, parts)) else made


def without_repeated(message: Message) -> tuple[Message, Mapping[str, ToolCall]]:
    """Return the message with each of its calls once, and the others by their ids.

    Calls are the same as litellm compares them: by their names and by the values of their arguments.
    """
    seen: list[tuple[str, Any]] = []
    kept: list[ToolCall] = []
    repeated: dict[str, ToolCall] = {}
    for call in calls_of(message):
        said = (call["function"]["name"], json.loads(call["function"]["arguments"]))
        if said in seen:
            repeated[call["id"]] = call
        else:
            seen.append(said)
            kept.append(call)
    return ({**message, "tool_calls": kept}, repeated) if repeated else (message, repeated)


_CALL_KEYS: Final = frozenset(("id", "type", "function"))

_LONGEST_RAW_ARGUMENTS = 800

_SURELY_SHALLOW: Final = 150
"""Brackets in JSON that is not nested too deep."""

_LONGEST_NAME: Final = 64

_SPEAKER: Final = re.compile("[a-zA-Z0-9_-]{1,64}")


def fit_calls(calls: list[ToolCall], shape: Shape, ids: WireIds) -> list[ToolCall]:
    """Return calls as a vendor takes them; the same object when they are fine already."""
    fitted = [_fit_call(call, shape, ids) for call in calls]
    return calls if all(map(operator.is_, fitted, calls)) else fitted


def _fit_call(call: ToolCall, shape: Shape, ids: WireIds) -> ToolCall:
    call_id = ids.of(call.get("id") or "")
    has_more = not call.keys() <= _CALL_KEYS or len(call["function"]) > 2
    if has_more:  # what a vendor added
        call = sendable(call)
    function = call["function"]
    name = _fit_name(function["name"], shape)
    arguments = _fit_arguments(function["arguments"])
    if has_more and shape.message_keys is not None:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if name != function["name"] or arguments is not function["arguments"]:
        function = {**function, "name": name, "arguments": arguments}
    elif call_id == call.get("id") and call.get("type") == "function":
        return call
    return cast(ToolCall, {**call, "id": call_id, "type": "function", "function": function})


def _fit_name(name: str, shape: Shape) -> str:
    if shape.name_pattern.fullmatch(name):
        return name
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown_tool"
    return fit if shape.name_pattern.fullmatch(fit) else f"_{fit}"[:64]


def fit_speaker(name: str) -> str:
    """Return the name of a speaker as OpenAI takes it, different for different ones.

    Spaces, say, are refused (extended_openai_conversation 251, langchain 35054).
    """
    if _SPEAKER.fullmatch(name):
        return name
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if name.isascii() and len(name) <= _LONGEST_NAME:
        return fit
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{fit[: _LONGEST_NAME - 7]}_{digest}"


def _fit_arguments(arguments: str) -> str:
    """Return a JSON object: the same text if it is one, else one that quotes the beginning of it.

    Anthropic and Gemini refuse anything else in the history (claude-code 6696), and half a
    surrogate pair, which Python reads as an escape (claude-code 2108). The run has told the model what was
    wrong; the transcript keeps the text as it came.
    """
    if not arguments:
        return "{}"
    fit = sendable_json(arguments)
    if _is_object(fit):
        return fit
    return json.dumps({"_invalid_arguments": sendable(arguments)[:_LONGEST_RAW_ARGUMENTS]})


def _is_object(arguments: str) -> bool:
    try:
        if arguments.count("[") + arguments.count("{") > _SURELY_SHALLOW:
            from_json(arguments)  # goes 200 deep, as for tools; of what is deeper libraries fail
        return isinstance(_STRICT_JSON.decode(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, vendors do not


def _finite(number: str) -> float:
    if math.isinf(value := float(number)):
        raise ValueError(f"{number} is more than a float holds")  # it would be sent as Infinity
    return value


_STRICT_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


class WireIds:
    """The call ids of one request: deterministic, unique, and the same for a call and its answer.

    Args:
        shape: what the vendor demands.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._wire: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        """The other way round."""

    def of(self, call_id: str) -> str:
        """Return the id on the wire of a call, or of the call that a result answers."""
        if (known := self._wire.get(call_id)) is not None:
            return known
        wire, tries = call_id, 0
        if not self._shape.id_pattern.fullmatch(call_id):
            wire = self._made_from(call_id)
        while wire in self._taken:
            tries += 1
            wire = self._made_from(f"{call_id} {tries}")
        self._wire[call_id] = wire
        self._taken[wire] = call_id
        return wire

    def _made_from(self, text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        made = self._shape.id_prefix + base64.b32encode(digest).decode().lower()
        return made[: self._shape.id_length]


NO_OUTPUT: Final = "(no output)"
"""What a tool said that said nothing: an empty result is refused or dropped by half of the vendors."""

EMPTY_MESSAGE: Final = "(empty message)"

CONTINUE: Final[Message] = {"role": "user", "content": "Continue."}

EARLIER: Final[Message] = {"role": "user", "content": "(Earlier messages are not shown.)"}

NOTED: Final[Message] = {"role": "assistant", "content": "Noted."}

SHOWN_BELOW: Final = "(The result is shown below.)"

FROM_TOOLS: Final = {"type": "text", "text": "(From the tool results above:)"}

BLANK_REASONING: Final = " "
"""What stands in for the reasoning of another model; litellm takes the same for DeepSeek."""

_SYSTEM: Final = ("system", "developer")

_AS_THEY_ARE: Final = ("user", "system")
"""Roles that every vendor knows by these names."""


def prepare(messages: Sequence[Message], shape: Shape) -> Sequence[Message]:
    """Return ``messages`` as this vendor takes them; the same object when they are fine already."""
    if opens(messages):
        return messages
    outgoing = Outgoing(shape)
    for message in messages:
        outgoing.add(message)
    out = outgoing.messages()
    same = len(out) == len(messages) and all(map(operator.is_, out, messages))
    return messages if same else out


def opens(messages: Sequence[Message]) -> bool:
    """Whether this is how nearly all conversations begin, which every vendor takes as it is."""
    if len(messages) != 2:
        return False
    first, last = messages
    if first["role"] != "system" or last["role"] != "user" or len(first) != 2 or len(last) != 2:
        return False
    return _is_plain(first.get("content")) and _is_plain(last.get("content"))


class Outgoing:
    """The messages of a conversation as a vendor takes them, for as long as the conversation grows.

    Args:
        shape: what the vendor demands.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._ids = WireIds(shape)
        self._out: list[Message] = []
        self._front = 0
        """How many system messages stand before everything else."""
        self._aside: Sequence[dict[str, Any]] = ()
        """What the last tool results hold besides text, where a result cannot."""
        self._asked: dict[str, int] = {}
        """The places of the last calls by their ids, where results have to come in that order."""
        self._repeated: Mapping[str, ToolCall] = {}
        """Those of the last calls that are the same as an earlier one, where they may not stand beside it."""
        self._later: Sequence[Message] = ()
        """They and their results, each pair to follow in turns of its own."""

    def add(self, message: Message) -> None:
        """Take the next message."""
        ready = _fit(message, self._shape, self._ids)
        if ready is None:
            return
        role = ready["role"]
        if role == "tool":
            self._add_answer(ready)
            return
        self._end_answers()
        if role in _SYSTEM:
            self._add_system(ready)
            return
        if role == "user":
            self._note_what_tools_said()
        elif self._shape.starts_with_user and len(self._out) == self._front:
            self._out.append(EARLIER)
        self._out.append(self._arranged(ready))

    def messages(self) -> list[Message]:
        """Return the messages as they are to be sent now, with a last one to answer; more may be added."""
        if self._aside or self._later:
            now = copy(self)
            now._out = [*self._out]
            now._end_answers()
            return now.messages()
        out = [*self._out]
        # some vendors move what the system says last to the front, so it does not count as the end
        last = next((role for each in reversed(out) if (role := each["role"]) not in _SYSTEM), None)
        if last is None or (last == "assistant" and self._shape.ends_with_user):
            out.append(CONTINUE)
        return out

    def _arranged(self, message: Message) -> Message:
        """Return a turn with what may stand in it; the rest stands before it, or comes later."""
        if not self._shape.text_beside_calls and calls_of(message) and text_of(message):
            said: Message = {"role": "assistant", "content": message.get("content")}
            self._out += [said, CONTINUE]
            message = {**message, "content": None}
        if not self._shape.same_calls:
            message, self._repeated = without_repeated(message)
        if self._shape.answers_in_order:
            self._asked = {call["id"]: place for place, call in enumerate(calls_of(message))}
        return message

    def _add_answer(self, message: Message) -> None:
        if (call := self._repeated.get(message.get("tool_call_id") or "")) is not None:
            again: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
            self._later = [*self._later, again, message]
            return
        content = message.get("content")
        if isinstance(content, list) and not self._shape.images_from_tools:
            texts = [part for part in content if part.get("type") == "text"]
            if len(texts) < len(content):
                self._aside = [*self._aside, *(part for part in content if part.get("type") != "text")]
                message = {**message, "content": texts or SHOWN_BELOW}
        self._out.insert(self._place_of(message), message)

    def _place_of(self, answer: Message) -> int:
        """Return where among the messages a result belongs: before those of later calls."""
        place = len(self._out)
        if len(self._asked) > 1:
            own = self._asked.get(answer.get("tool_call_id") or "", place)
            while self._out[place - 1]["role"] == "tool" and own < self._asked_at(place - 1):
                place -= 1
        return place

    def _asked_at(self, place: int) -> int:
        return self._asked.get(self._out[place].get("tool_call_id") or "", -1)

    def _end_answers(self) -> None:
        """Show what belongs to the last results and could not stand among them."""
        if self._later:
            self._out += self._later
            self._later = ()
        if self._aside:
            self._note_what_tools_said()
            self._out.append({"role": "user", "content": [FROM_TOOLS, *self._aside]})
            self._aside = ()

    def _note_what_tools_said(self) -> None:
        if not self._shape.user_after_tool and self._out and self._out[-1]["role"] == "tool":
            self._out.append(NOTED)

    def _add_system(self, message: Message) -> None:
        if len(self._out) == self._front:
            self._front += 1
            self._out.append(message)
        elif self._shape.late_system:
            self._out.append(message)
        else:  # in front it keeps its authority; as a user's it would have none
            self._out.insert(self._front, message)
            self._front += 1


def tools_for(messages: Sequence[Message], tools: Sequence[ToolSpec], shape: Shape) -> Sequence[ToolSpec]:
    """Return ``tools`` as the vendor takes them, or stand-ins for those in the history where it wants some.

    Args:
        messages: the messages as `prepare` returned them.
        tools: the tools that the request offers.
        shape: what the vendor demands.
    """
    if tools and not shape.strict_tools and any("strict" in tool.get("function", ()) for tool in tools):
        return [_not_strict(tool) for tool in tools]
    if tools or not shape.needs_tools:
        return tools
    names = dict.fromkeys(call["function"]["name"] for message in messages for call in calls_of(message))
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "Was used before and is not available now: do not call it.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        for name in names
    ]


def _not_strict(tool: ToolSpec) -> ToolSpec:
    function = {key: value for key, value in tool.get("function", {}).items() if key != "strict"}
    return {**tool, "function": function} if function else tool


def _fit(message: Message, shape: Shape, ids: WireIds) -> Message | None:
    role = message["role"]
    if role == "tool":
        return _fit_answer(_sent(message, shape), shape, ids)
    if len(message) == 2 and role in _AS_THEY_ARE and _is_plain(message.get("content")):
        return message  # what most of a conversation is made of
    sent = _sent(message, shape)
    content = _fit_content(sent.get("content"), shape, keep_blank=not shape.refuses_blank)
    if calls := calls_of(sent):
        fitted = fit_calls(calls, shape, ids)
        if fitted is not calls:
            sent = cast(Message, {**sent, "tool_calls": fitted})
        if not content:  # of "" litellm makes an empty part for Gemini
            content = None if shape.takes_null else ""
    elif not content:
        content = _instead_of_nothing(message, sent, shape)
        if content is None:
            return None
    fit = sent if content is sent.get("content") else cast(Message, {**sent, "content": content})
    return _as_role(fit, shape)


def _is_plain(content: object) -> bool:
    return isinstance(content, str) and content.isascii() and bool(content) and not content.isspace()


def _as_role(message: Message, shape: Shape) -> Message:
    """Return the message as its role is spoken here."""
    role = message["role"]
    if role == "developer" and not shape.developer:
        return {**message, "role": "system"}
    if role != "assistant":
        return message
    content = message.get("content")
    if isinstance(content, list) and (shown := not_again(content)) is not content:
        message = cast(Message, {**message, "content": shown})
    if shape.plan_key and calls_of(message) and (text := text_of(message)):
        message = cast(Message, {**message, "content": None, shape.plan_key: text})
    if shape.needs_reasoning and not message.get("reasoning_content"):
        return {**message, "reasoning_content": BLANK_REASONING}
    return message


def _fit_answer(message: Message, shape: Shape, ids: WireIds) -> Message:
    content = _fit_content(message.get("content"), shape, keep_blank=False) or NO_OUTPUT
    call_id = ids.of(message.get("tool_call_id") or "")
    if content is message.get("content") and call_id == message.get("tool_call_id"):
        return message
    return {**message, "content": content, "tool_call_id": call_id}


def _instead_of_nothing(message: Message, sent: Message, shape: Shape) -> str | None:
    """Return what to send of a message without text or calls; None when it is no loss.

    As everywhere, thoughts alone are no turn: vendors refuse one that ends with a thought (hermes-agent pull
    13010), and litellm puts words of its own behind it.

    Args:
        message: the message.
        sent: what of it this vendor is sent.
        shape: what the vendor demands.
    """
    if not shape.refuses_blank:
        return ""  # OpenAI takes null only beside calls
    if message["role"] == "user":
        return EMPTY_MESSAGE
    if message["role"] != "assistant":
        return None
    return sendable(message.get("refusal")) or (None if says_nothing({**sent, "content": None}) else "")


def _sent(message: Message, shape: Shape) -> Message:
    """Return the message with the fields that leave: those that chat APIs know, and that this vendor takes.

    Fields of routelock's own and of the app's stay (hermes-agent 47868). An assistant's message may have any
    others: its provider wrote them. An empty list of calls goes as well: OpenAI takes none (openai-node pull
    1341).
    """
    allowed, known = shape.message_keys, _INPUT_KEYS.get(message["role"])
    fit = {
        sendable(key): _fit_field(key, value, is_said=known is None)
        for key, value in message.items()
        if (key in known if known else key[:1] != "_" and key not in _OF_A_CONTEXT)
        and (not allowed or key in allowed)
        and (value or key not in _NEVER_EMPTY)
    }
    same = len(fit) == len(message) and all(map(operator.is_, fit.values(), message.values()))
    return message if same and all(map(operator.is_, fit, message)) else cast(Message, fit)


def _fit_field(key: str, value: Any, *, is_said: bool) -> Any:
    if key == "content" and not is_said and isinstance(value, list):
        return _known_texts(cast("list[dict[str, Any]]", value))
    if key in _FITTED:
        return value
    return fit_speaker(value) if key == "name" else sendable(value)


def _known_texts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a message that no model wrote, their texts without fields of the app's own."""
    fit = [
        part
        if part.get("type") != "text" or part.keys() <= _TEXT_KEYS
        else {key: value for key, value in part.items() if key in _TEXT_KEYS}
        for part in parts
    ]
    return parts if all(map(operator.is_, fit, parts)) else fit


_NEVER_EMPTY: Final = ("name", "tool_calls")

_TEXT_KEYS: Final = frozenset(("type", "text", "cache_control"))

_SAID: Final = frozenset(("role", "content", "name", "cache_control"))
"""The last one is Claude's, as litellm takes it."""

_INPUT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "system": _SAID,
    "developer": _SAID,
    "user": _SAID,
    "tool": _SAID | {"tool_call_id"},
}
"""The keys that are sent of a message that no model wrote."""

_OF_A_CONTEXT: Final = ("timestamp", "metadata")
"""Keys of the messages of a `routelock.handoffs.HandoffContext`."""

_FITTED: Final = frozenset(("role", "content", "tool_calls", "tool_call_id"))
"""Keys of a message that every vendor takes, and whose values are made fit to be sent by themselves."""


def _fit_content(content: str | list[dict[str, Any]] | None, shape: Shape, *, keep_blank: bool) -> Any:
    """Return content that can be encoded and, unless ``keep_blank``, has nothing blank in it."""
    if isinstance(content, str):
        return "" if not keep_blank and content.isspace() else sendable(content)
    if content is None:
        return None
    shown = content if shape.media is None else only(content, shape.media)
    parts = [sendable(part) for part in shown if keep_blank or not _is_blank_text(part)]
    same = len(parts) == len(content) and all(map(operator.is_, parts, content))
    return content if same else parts


def _is_blank_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not str(part.get("text") or "").strip()


def tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """Return a tool choice as Chat Completions has it: a word, or the tool's name in an object."""
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
