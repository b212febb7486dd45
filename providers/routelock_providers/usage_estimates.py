"""Estimates of the tokens of a call whose server sends no usage, or half of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from routelock.history.content import media_of
from routelock.history.messages import Message, calls_of, text_of
from routelock.usage import Usage

__all__ = ["completed_usage", "estimated_usage"]


_CHARACTERS = 4
"""Characters of English per token (OpenAI, "What are tokens and how to count them?")."""

_PER_MESSAGE = 4
"""Tokens of the role, as OpenAI's models count them."""

_PER_MEDIUM = 1000
"""Tokens of an image, a sound or a file: vendors count from 85 to some thousands."""

_THOUGHTS = ("reasoning_content", "reasoning")


def completed_usage(
    counted: Usage | None, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], reply: Message
) -> Usage:
    """Return the usage of one call with estimates for what the server did not count, or counted as zero.

    Args:
        counted: what the server counted; None for nothing.
        messages: the messages of the request.
        tools: the tools of the request.
        reply: the complete message of the model; an empty one has no output to estimate.

    Returns:
        ``counted`` itself if nothing is missing.
    """
    if counted is None:
        return estimated_usage(messages, tools, reply)
    if counted.input_tokens and (counted.output_tokens or _tokens(reply) == _PER_MESSAGE):
        return counted
    whole = estimated_usage(messages, tools, reply)
    return replace(
        counted,
        input_tokens=counted.input_tokens or whole.input_tokens,
        output_tokens=counted.output_tokens or whole.output_tokens,
        estimated=True,
    )


def estimated_usage(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], reply: Message) -> Usage:
    """Return the usage of one call as an estimate; its cost is unknown.

    Args:
        messages: the messages of the request.
        tools: the tools of the request.
        reply: the complete message of the model.
    """
    specs = len(json.dumps([*tools], default=str)) // _CHARACTERS if tools else 0
    return Usage(
        requests=1,
        input_tokens=specs + sum(map(_tokens, messages)),
        output_tokens=_tokens(reply),
        estimated=True,
    )


def _tokens(message: Message) -> int:
    texts = [text_of(message), *(str(message.get(key) or "") for key in _THOUGHTS)]
    for call in calls_of(message):
        texts += [call["function"]["name"], call["function"]["arguments"]]
    # in other scripts than Latin a token has fewer characters, and these take more bytes
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return _PER_MESSAGE + -(-size // _CHARACTERS) + _PER_MEDIUM * len(media_of(message.get("content")))
