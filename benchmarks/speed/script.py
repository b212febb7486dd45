"""What the server would say, for models that are functions: no bytes, no sockets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["Script"]

_NUMBERS = re.compile(r"\[turns=(\d+) chunks=(\d+)")


class Script:
    """Decides as the server does, from what a model is shown."""

    def __init__(self) -> None:
        self._made = 0
        self._read: dict[str, tuple[int, int]] = {}

    def chunks(self, text: str) -> int:
        """Return how many deltas an answer to this text has."""
        return self._numbers(text)[1]

    def next_call(self, messages: Sequence[Any], tools: Sequence[Any] | None) -> tuple[str, str, str] | None:
        """Return id, name and arguments of the next call, or None for text.

        Args:
            messages: what the model is shown: a system prompt, the user's text, and what came of it.
            tools: what it is offered.
        """
        if not tools:
            return None
        name: str = tools[0]["function"]["name"]
        self._made += 1
        if name != "lookup":
            return f"call_{self._made}", name, "{}"
        turn = _lookups(messages[-2])
        if turn >= self._numbers(messages[1]["content"])[0]:
            return None
        return f"call_{self._made}", name, f'{{"key": "k{turn}"}}'

    def _numbers(self, text: str) -> tuple[int, int]:
        if text not in self._read:
            found = _NUMBERS.search(text)
            self._read[text] = (int(found[1]), int(found[2])) if found else (1, 10)
        return self._read[text]


def _lookups(message: Any) -> int:
    """Return how many lookups were made up to this message, which made the last one if there was any."""
    calls = message.get("tool_calls")
    if not calls or calls[0]["function"]["name"] != "lookup":
        return 0
    return int(calls[0]["function"]["arguments"][10:-2]) + 1
