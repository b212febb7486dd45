"""Fits the messages and tools of a request to the rules of its vendor.

The run passes messages that every chat API understands. Vendors differ in smaller things: the alphabet of
call ids, whether a request may end on an assistant turn, whether a text may be blank. `prepare` adapts the
request only; the transcript does not change. Messages that already fit are sent as the same objects, and
preparing twice gives the same as preparing once.
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

from routelock._sendable import sendable, sendable_json
from routelock.handlers.port import ToolChoice, ToolSpec
from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.validity import says_nothing
from routelock.history.vendor_calls import VENDOR_KEYS
from routelock_providers.vendors import VendorRules

__all__ = [
    "OutgoingMessages",
    "fit_speaker",
    "prepare",
    "tool_choice",
    "tools_for",
]


_NOT_SENT_BACK: Final = {"type": "text", "text": "(Something other than text, which is not shown again.)"}
"""Replaces an image or a sound that a model made: no chat API takes one back from the assistant."""

_NAMES: Final = {
    "image_url": "An image",
    "input_audio": "A sound",
    "file": "A file",
    "video_url": "A video",
}


def _without_media(parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Replace images, sound and files in an assistant's parts by notes; the same object if there are none."""
    return _same([_NOT_SENT_BACK if part.get("type") in _NAMES else part for part in parts], parts)


def _with_notes(parts: Sequence[dict[str, Any]], taken: Collection[str]) -> Sequence[dict[str, Any]]:
    """Replace the parts whose type is not in ``taken`` by notes; the same object if there are none."""
    return _same([_noted(part, taken) for part in parts], parts)


def _noted(part: dict[str, Any], taken: Collection[str]) -> dict[str, Any]:
    kind: Any = part.get("type")
    if kind in taken or kind == "text" or (taken and kind not in _NAMES):
        return part
    what = _NAMES.get(kind, "Something")  # a vendor that takes text alone is sent no unknown part either
    return {"type": "text", "text": f"({what} that this model cannot be shown{_named(part)}.)"}


def _named(part: Mapping[str, Any]) -> str:
    match part:
        case {"file": {"filename": str(name)}}:
            return f": {name[:80]!r}"
        case _:
            return ""


def _same(made: list[dict[str, Any]], parts: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return parts if all(map(operator.is_, made, parts)) else made


def _without_repeated(message: Message) -> tuple[Message, Mapping[str, ToolCall]]:
    """Return the message with one of each call, and the repeated calls by their ids.

    Two calls are equal, as for litellm, if their names and the values of their arguments are equal.
    """
    seen: list[tuple[str, Any]] = []
    kept: list[ToolCall] = []
    repeated: dict[str, ToolCall] = {}
    for call in calls_of(message):
        key = (call["function"]["name"], json.loads(call["function"]["arguments"]))
        if key in seen:
            repeated[call["id"]] = call
        else:
            seen.append(key)
            kept.append(call)
    return ({**message, "tool_calls": kept}, repeated) if repeated else (message, repeated)


_CALL_KEYS: Final = frozenset(("id", "type", "function"))

_LONGEST_RAW_ARGUMENTS = 800

_SURELY_SHALLOW: Final = 150
"""JSON with at most this many brackets is not nested too deep."""

_LONGEST_NAME: Final = 64

_SPEAKER: Final = re.compile("[a-zA-Z0-9_-]{1,64}")


def _fit_calls(calls: list[ToolCall], rules: VendorRules, ids: _CallIds) -> list[ToolCall]:
    """Return the calls as the vendor takes them; the same object if they already fit."""
    fitted = [_fit_call(call, rules, ids) for call in calls]
    return calls if all(map(operator.is_, fitted, calls)) else fitted


def _fit_call(call: ToolCall, rules: VendorRules, ids: _CallIds) -> ToolCall:
    call_id = ids.sent(call.get("id") or "")
    has_more = not call.keys() <= _CALL_KEYS or len(call["function"]) > 2
    if has_more:  # keys that a vendor added
        call = sendable(call)
    function = call["function"]
    name = _fit_name(function["name"], rules)
    arguments = _fit_arguments(function["arguments"])
    if has_more and rules.message_keys is not None:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if name != function["name"] or arguments is not function["arguments"]:
        function = {**function, "name": name, "arguments": arguments}
    elif call_id == call.get("id") and call.get("type") == "function":
        return call
    return cast(ToolCall, {**call, "id": call_id, "type": "function", "function": function})


def _fit_name(name: str, rules: VendorRules) -> str:
    if rules.name_pattern.fullmatch(name):
        return name
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown_tool"
    return fit if rules.name_pattern.fullmatch(fit) else f"_{fit}"[:64]


def fit_speaker(name: str) -> str:
    """Return the name of a speaker as OpenAI takes it; different names stay different.

    OpenAI refuses spaces, for example (extended_openai_conversation 251, langchain 35054).
    """
    if _SPEAKER.fullmatch(name):
        return name
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if name.isascii() and len(name) <= _LONGEST_NAME:
        return fit
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{fit[: _LONGEST_NAME - 7]}_{digest}"


def _fit_arguments(arguments: str) -> str:
    """Return the arguments if they are a JSON object, else an object that quotes their beginning.

    Anthropic and Gemini refuse anything else in the history (claude-code 6696), and half a surrogate pair,
    which Python reads as an escape (claude-code 2108). The run has told the model what was wrong; the
    transcript keeps the original text.
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
            from_json(arguments)  # refuses more than 200 levels, as for tools; libraries fail on more
        return isinstance(_STRICT_JSON.decode(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, vendors refuse them


def _finite(number: str) -> float:
    if math.isinf(value := float(number)):
        raise ValueError(f"{number} is too large for a float")  # it would be sent as Infinity
    return value


_STRICT_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


class _CallIds:
    """The call ids of one request: deterministic, unique, and the same for a call and its result.

    Args:
        rules: the rules of the vendor.
    """

    def __init__(self, rules: VendorRules) -> None:
        self._rules = rules
        self._sent: dict[str, str] = {}
        """The ids that are sent, by the ids of the history."""
        self._taken: set[str] = set()

    def sent(self, call_id: str) -> str:
        """Return the id that is sent for a call, or for the call of a result."""
        if (known := self._sent.get(call_id)) is not None:
            return known
        fits = self._rules.id_pattern.fullmatch(call_id)
        sent, tries = call_id if fits else self._hashed(call_id), 0
        while sent in self._taken:
            tries += 1
            sent = self._hashed(f"{call_id} {tries}")
        self._sent[call_id] = sent
        self._taken.add(sent)
        return sent

    def _hashed(self, text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        made = self._rules.id_prefix + base64.b32encode(digest).decode().lower()
        return made[: self._rules.id_length]


NO_OUTPUT: Final = "(no output)"
"""Replaces an empty tool result, which half of the vendors refuse or drop."""

EMPTY_MESSAGE: Final = "(empty message)"

CONTINUE: Final[Message] = {"role": "user", "content": "Continue."}

EARLIER: Final[Message] = {"role": "user", "content": "(Earlier messages are not shown.)"}

NOTED: Final[Message] = {"role": "assistant", "content": "Noted."}

SHOWN_BELOW: Final = "(The result is shown below.)"

FROM_TOOLS: Final = {"type": "text", "text": "(From the tool results above:)"}

BLANK_REASONING: Final = " "
"""Replaces the reasoning of another model; litellm sends the same to DeepSeek."""

_SYSTEM: Final = ("system", "developer")


def prepare(messages: Sequence[Message], rules: VendorRules) -> Sequence[Message]:
    """Return ``messages`` as the vendor takes them; the same object if they already fit."""
    outgoing = OutgoingMessages(rules)
    for message in messages:
        outgoing.add(message)
    out = outgoing.messages()
    same = len(out) == len(messages) and all(map(operator.is_, out, messages))
    return messages if same else out


class OutgoingMessages:
    """A growing conversation, fitted message by message to the rules of a vendor.

    Args:
        rules: the rules of the vendor.
    """

    def __init__(self, rules: VendorRules) -> None:
        self._rules = rules
        self._ids = _CallIds(rules)
        self._out: list[Message] = []
        self._front = 0
        """The number of system messages at the beginning."""
        self._media: Sequence[dict[str, Any]] = ()
        """The parts of the last tool results that are not text, if a result may hold only text."""
        self._call_order: dict[str, int] = {}
        """The places of the last calls by their ids, if results have to come in their order."""
        self._repeated: Mapping[str, ToolCall] = {}
        """The last calls that equal an earlier one, if one turn may not hold both."""
        self._later: Sequence[Message] = ()
        """Repeated calls and their results, which follow in turns of their own."""

    def add(self, message: Message) -> None:
        """Add the next message."""
        ready = _fit(message, self._rules, self._ids)
        if ready is None:
            return
        role = ready["role"]
        if role == "tool":
            self._add_result(ready)
            return
        self._end_results()
        if role in _SYSTEM:
            self._add_system(ready)
            return
        if role == "user":
            self._separate_from_results()
        elif self._rules.starts_with_user and len(self._out) == self._front:
            self._out.append(EARLIER)
        self._out.append(self._arranged(ready))

    def messages(self) -> list[Message]:
        """Return the messages to send now, with a last one to answer; more may be added later."""
        if self._media or self._later:
            now = copy(self)
            now._out = [*self._out]
            now._end_results()
            return now.messages()
        out = [*self._out]
        last = self._last_turn()
        if last is None or (last == "assistant" and self._rules.ends_with_user):
            out.append(CONTINUE)
        return out

    def _last_turn(self) -> str | None:
        """Return the role of the last turn. Some vendors move a last system message to the front."""
        for message in reversed(self._out):
            role: str = message["role"]
            if role not in _SYSTEM:
                return role
        return None

    def _arranged(self, message: Message) -> Message:
        """Return a turn with the parts that it may hold; the others are sent before or after it."""
        if not self._rules.text_beside_calls and calls_of(message) and text_of(message):
            text: Message = {"role": "assistant", "content": message.get("content")}
            self._out += [text, CONTINUE]
            message = {**message, "content": None}
        if not self._rules.same_calls:
            message, self._repeated = _without_repeated(message)
        if self._rules.answers_in_order:
            self._call_order = {call["id"]: place for place, call in enumerate(calls_of(message))}
        return message

    def _add_result(self, message: Message) -> None:
        if (call := self._repeated.get(message.get("tool_call_id") or "")) is not None:
            again: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
            self._later = [*self._later, again, message]
            return
        content = message.get("content")
        if isinstance(content, list) and not self._rules.images_from_tools:
            texts = [part for part in content if part.get("type") == "text"]
            if len(texts) < len(content):
                self._media = [*self._media, *(part for part in content if part.get("type") != "text")]
                message = {**message, "content": texts or SHOWN_BELOW}
        self._out.insert(self._place_of(message), message)

    def _place_of(self, result: Message) -> int:
        """Return the place of a result among the messages: before the results of later calls."""
        place = len(self._out)
        if len(self._call_order) > 1:
            own = self._call_order.get(result.get("tool_call_id") or "", place)
            while self._out[place - 1]["role"] == "tool" and own < self._order_at(place - 1):
                place -= 1
        return place

    def _order_at(self, place: int) -> int:
        return self._call_order.get(self._out[place].get("tool_call_id") or "", -1)

    def _end_results(self) -> None:
        """Add what belongs to the last results and could not be among them."""
        if self._later:
            self._out += self._later
            self._later = ()
        if self._media:
            self._separate_from_results()
            self._out.append({"role": "user", "content": [FROM_TOOLS, *self._media]})
            self._media = ()

    def _separate_from_results(self) -> None:
        """Add an assistant turn after tool results if no user turn may follow them."""
        if not self._rules.user_after_tool and self._out and self._out[-1]["role"] == "tool":
            self._out.append(NOTED)

    def _add_system(self, message: Message) -> None:
        if len(self._out) == self._front:
            self._front += 1
            self._out.append(message)
        elif self._rules.late_system:
            self._out.append(message)
        else:  # at the front it keeps its authority, which a user message does not have
            self._out.insert(self._front, message)
            self._front += 1


def tools_for(
    messages: Sequence[Message], tools: Sequence[ToolSpec], rules: VendorRules
) -> Sequence[ToolSpec]:
    """Return ``tools`` as the vendor takes them.

    If the vendor needs tools and there are none, placeholders for the tools of the history are returned.

    Args:
        messages: the messages as `prepare` returned them.
        tools: the tools of the request.
        rules: the rules of the vendor.
    """
    if tools and not rules.strict_tools and any("strict" in tool.get("function", ()) for tool in tools):
        return [_not_strict(tool) for tool in tools]
    if tools or not rules.needs_tools:
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


def _fit(message: Message, rules: VendorRules, ids: _CallIds) -> Message | None:
    role = message["role"]
    if role == "tool":
        return _fit_result(_sent(message, rules), rules, ids)
    sent = _sent(message, rules)
    content = _fit_content(
        sent.get("content"), rules, keep_blank=not rules.refuses_blank, from_model=role == "assistant"
    )
    if calls := calls_of(sent):
        fitted = _fit_calls(calls, rules, ids)
        if fitted is not calls:
            sent = cast(Message, {**sent, "tool_calls": fitted})
        if not content:  # litellm makes an empty part of "" for Gemini
            content = None if rules.takes_null else ""
    elif not content:
        content = _for_empty(message, sent, rules)
        if content is None:
            return None
    fit = sent if content is sent.get("content") else cast(Message, {**sent, "content": content})
    return _as_role(fit, rules)


def _as_role(message: Message, rules: VendorRules) -> Message:
    """Return the message with the role and the keys that this vendor has for it."""
    role = message["role"]
    if role == "developer" and not rules.developer:
        return {**message, "role": "system"}
    if role != "assistant":
        return message
    content = message.get("content")
    if isinstance(content, list) and (shown := _without_media(content)) is not content:
        message = cast(Message, {**message, "content": shown})
    if rules.plan_key and calls_of(message) and (text := text_of(message)):
        message = cast(Message, {**message, "content": None, rules.plan_key: text})
    if rules.needs_reasoning and not message.get("reasoning_content"):
        return {**message, "reasoning_content": BLANK_REASONING}
    return message


def _fit_result(message: Message, rules: VendorRules, ids: _CallIds) -> Message:
    content = _fit_content(message.get("content"), rules, keep_blank=False, from_model=False) or NO_OUTPUT
    if rules.reads_results:
        content = _readable(content)
    call_id = ids.sent(message.get("tool_call_id") or "")
    if content is message.get("content") and call_id == message.get("tool_call_id"):
        return message
    return {**message, "content": content, "tool_call_id": call_id}


def _readable(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a tool result that libraries can read: any JSON in it is an object that can be sent."""
    if isinstance(content, str):
        return _readable_text(content)
    text = "".join(str(part["text"]) for part in content if part.get("type") == "text")
    if (fit := _readable_text(text)) == text:
        return content
    return [{"type": "text", "text": fit}, *(part for part in content if part.get("type") != "text")]


def _readable_text(text: str) -> str:
    """Return text as it is, unless it begins like JSON: then as an object, which may quote the text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    fit = sendable_json(text)
    return fit if _is_object(fit) else json.dumps({"content": text})


def _for_empty(message: Message, sent: Message, rules: VendorRules) -> str | None:
    """Return the content of a message without text or calls; None if the message is left out.

    A turn of thoughts alone is left out: vendors refuse a turn that ends with a thought (hermes-agent pull
    13010), and litellm adds words of its own.

    Args:
        message: the message.
        sent: the part of it that this vendor is sent.
        rules: the rules of the vendor.
    """
    if not rules.refuses_blank:
        return ""  # OpenAI takes null only beside calls
    if message["role"] == "user":
        return EMPTY_MESSAGE
    if message["role"] != "assistant":
        return None
    return sendable(message.get("refusal")) or (None if says_nothing({**sent, "content": None}) else "")


def _sent(message: Message, rules: VendorRules) -> Message:
    """Return the message with the keys that are sent: those that chat APIs know and this vendor takes.

    Keys of routelock and of the app are not sent (hermes-agent 47868). An assistant message keeps all others,
    because its provider wrote them. An empty list of calls is not sent: OpenAI refuses it (openai-node pull
    1341).
    """
    role = message["role"]
    fitted = _FITTED.get(role, _FITTED_OF_MODEL)
    if fitted.issuperset(message) and message.get("tool_calls", True):
        return message
    fit = {
        sendable(key): value if key in fitted else _fit_other(key, value)
        for key, value in message.items()
        if _is_sent(key, value, role, rules)
    }
    same = len(fit) == len(message) and all(map(operator.is_, fit.values(), message.values()))
    return message if same and all(map(operator.is_, fit, message)) else cast(Message, fit)


def _is_sent(key: str, value: object, role: str, rules: VendorRules) -> bool:
    known = _INPUT_KEYS.get(role)
    is_known = key in known if known else key[:1] != "_" and key not in _CONTEXT_KEYS
    is_taken = rules.message_keys is None or key in rules.message_keys
    return is_known and is_taken and (bool(value) or key not in _NEVER_EMPTY)


def _fit_other(key: str, value: Any) -> Any:
    return fit_speaker(value) if key == "name" else sendable(value)


def _known_texts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a message that no model wrote, with text parts that hold only known keys."""
    fit = [
        part
        if part.get("type") != "text" or part.keys() <= _TEXT_KEYS
        else {key: value for key, value in part.items() if key in _TEXT_KEYS}
        for part in parts
    ]
    return parts if all(map(operator.is_, fit, parts)) else fit


_NEVER_EMPTY: Final = ("name", "tool_calls")

_TEXT_KEYS: Final = frozenset(("type", "text", "cache_control"))

_INPUT: Final = frozenset(("role", "content", "name", "cache_control"))
"""The keys of an input message. ``cache_control`` is a key of Claude, in litellm's form."""

_INPUT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "system": _INPUT,
    "developer": _INPUT,
    "user": _INPUT,
    "tool": _INPUT | {"tool_call_id"},
}
"""The keys of messages that no model wrote, by role."""

_CONTEXT_KEYS: Final = ("timestamp", "metadata", *VENDOR_KEYS)
"""Keys of the messages of a `routelock.handoffs.HandoffContext`, and keys that no chat API knows."""

_FITTED: Final[Mapping[str, frozenset[str]]] = {
    role: keys & frozenset(("role", "content", "tool_call_id")) for role, keys in _INPUT_KEYS.items()
}
"""Keys that every vendor takes, and whose values are fitted by functions of their own; by role."""

_FITTED_OF_MODEL: Final = frozenset(("role", "content", "tool_calls"))
"""The same for messages that a model wrote."""


def _fit_content(
    content: str | list[dict[str, Any]] | None, rules: VendorRules, *, keep_blank: bool, from_model: bool
) -> Any:
    """Return content that can be encoded and, unless ``keep_blank`` is true, has no blank text."""
    if isinstance(content, str):
        return "" if not keep_blank and content.isspace() else sendable(content)
    if content is None:
        return None
    shown: Sequence[dict[str, Any]] = content if from_model else _known_texts(content)
    shown = shown if rules.media is None else _with_notes(shown, rules.media)
    parts = [sendable(part) for part in shown if keep_blank or not _is_blank_text(part)]
    same = len(parts) == len(content) and all(map(operator.is_, parts, content))
    return content if same else parts


def _is_blank_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not str(part.get("text") or "").strip()


def tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """Return a tool choice in the form of Chat Completions: a word, or an object with the tool's name."""
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
