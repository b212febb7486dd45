"""Finish reasons: whether a reply was cut short, and whether a content filter removed it."""

from __future__ import annotations

from typing import cast

from routelock.handlers.events import MessageDone
from routelock.handlers.replies import is_empty
from routelock.history.messages import Message

__all__ = ["filtered_out", "was_cut_short"]


_FILTER_REASONS = frozenset(
    "content_filter content_filtered refusal sensitive safety recitation blocklist prohibited_content spii "
    "image_safety model_armor guardrail_intervened error_toxic".split()
)
"""Finish reasons, in lower case, of replies that a vendor's content filter stopped: of OpenAI and compatible
vendors, Anthropic, Zhipu, Google (also as ``content_filter: SAFETY``), Bedrock and Cohere."""


def was_cut_short(reason: object) -> bool:
    """Whether a finish reason says that the reply broke off, by a length limit or a content filter."""
    return reason == "length" or _is_filter(reason)


def _is_filter(reason: object) -> bool:
    return isinstance(reason, str) and reason.partition(":")[0].strip().lower() in _FILTER_REASONS


def filtered_out(reply: MessageDone) -> str | None:
    """Return the reason if a vendor's content filter removed a reply, else None.

    The reply may have the vendor's explanation as its refusal, which is not an answer of the model.
    """
    if not _is_filter(reply.finish_reason):
        return None
    message = reply.message
    explanation: object = message.get("refusal")
    if not is_empty(cast(Message, {**message, "refusal": None})):
        return None
    added = f": {explanation.rstrip('.')}" if isinstance(explanation, str) and explanation else ""
    return f"finish reason {reply.finish_reason!r}{added}"
