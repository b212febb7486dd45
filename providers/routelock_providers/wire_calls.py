"""Calls as a vendor takes them: their ids, names and arguments. Part of `routelock_providers.wire`."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import re
from typing import Final, NoReturn, cast

from pydantic_core import from_json

from routelock._json import sendable, sendable_json
from routelock.history.messages import ToolCall
from routelock_providers.shapes import Shape

__all__ = ["WireIds", "fit_calls", "fit_speaker"]

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
