"""Calls that are made twice in one reply, for a vendor that sees one of them. A pure function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from routelock.history.messages import Message, ToolCall, calls_of

__all__ = ["without_repeated"]


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
