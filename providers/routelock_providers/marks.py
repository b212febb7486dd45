"""Where each vendor says in an event that a reply goes on, that it ended, and that its tokens were counted.

A mark counts at its own place only. Gemini and Ollama send the arguments of a call as an object, so the same
word further in is a model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["counts", "ends", "has_strange_calls", "is_whole", "talks", "why_ended"]

_Json = Mapping[str, Any]

_BEGINNINGS = ("message_start", "message-start", "response.", "content_", "content-")
_ENDINGS = frozenset(
    ("message_stop", "message-end", "response.completed", "response.incomplete", "response.failed")
)
_BEDROCK = "amazon-bedrock-invocationMetrics"
"""What Bedrock adds to the last event of a model that it lets speak in its own words (``invoke``)."""
_COUNTED = ("message", "response", "delta", "x_groq", "metadata")
"""What holds the usage of an event, where the event itself does not."""


def talks(event: _Json) -> bool:
    """Whether it is part of a reply whose way of ending is known."""
    if "choices" in event or "candidates" in event or event.get("done") is False:
        return True
    kind = event.get("type")
    return isinstance(kind, str) and kind.startswith(_BEGINNINGS)


def ends(event: _Json) -> bool:
    """Whether the reply is whole with it.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    for choice in event.get("choices") or event.get("candidates") or ():
        if choice.get("finish_reason") or choice.get("finishReason"):
            return True
    if event.get("done") is True or event.get("type") in _ENDINGS or _BEDROCK in event:
        return True
    delta = event.get("delta")  # Anthropic's; in the Responses API it is text
    if isinstance(delta, dict) and cast("_Json", delta).get("stop_reason"):
        return True
    feedback: _Json = event.get("promptFeedback") or {}
    return bool(feedback.get("blockReason"))


def why_ended(event: _Json) -> str:
    """Return why a reply ended, or a prompt was refused, in Google's and Cohere's words; litellm has fewer.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    feedback: _Json = event.get("promptFeedback") or {}
    for candidate in event.get("candidates") or ():
        if reason := candidate.get("finishReason"):
            return str(feedback.get("blockReason") or reason)
    return str(feedback.get("blockReason") or event.get("finish_reason") or "")


def counts(event: _Json) -> bool:
    """Whether the vendor says in it how many tokens there were.

    Raises:
        AttributeError, LookupError, TypeError: it has another shape than any vendor's.
    """
    if _usage_in(event) or event.get("usageMetadata"):
        return True
    if "eval_count" in event or "prompt_eval_count" in event:
        return True
    holders: list[Any] = [event[key] for key in _COUNTED if key in event]
    holders += event.get("choices") or ()
    return any(isinstance(each, dict) and _usage_in(cast("_Json", each)) for each in holders)


def _usage_in(holder: _Json) -> bool:
    return isinstance(holder.get("usage"), dict)


def is_whole(event: _Json) -> bool:
    """Whether it is a whole chat completion, such as nobody streams."""
    choices = event.get("choices")
    first: object = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and "message" in first and "delta" not in first


def has_strange_calls(event: _Json) -> bool:
    """Whether a call in it has a shape that litellm drops from a stream without a word.

    Raises:
        AttributeError, LookupError, TypeError: likewise.
    """
    for choice in event.get("choices") or ():
        said: _Json = choice.get("delta") or choice.get("message") or {}
        for call in said.get("tool_calls") or ():
            function: _Json = call.get("function") or {}
            if not all(isinstance(each or "", str) for each in (call.get("id"), function.get("name"))):
                return True
    return False
