"""A model server for long runs and many tools: it refuses what is longer than its window, and counts.

It answers one run, and depends on what it was asked before:

* a body without tools asks for a summary;
* ``[turns=N]`` in a body: N calls of ``read``, one after another;
* ``[find=NAME]``: a call of a tool that searches, if there is one, and one of NAME as soon as it is offered;
* an empty body: what was counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from speed.server import as_json, serve, whole

__all__ = ["WINDOW"]


WINDOW = 32_000
"""Tokens that the model takes; four bytes count as one."""

_TURNS = re.compile(rb"\[turns=(\d+)\]")
_FIND = re.compile(rb"\[find=(\w+)\]")
_SEARCHES = frozenset(("search_tools", "retrieve_tools"))
_TEXT = {"role": "assistant", "content": "Done."}
_TOO_LONG = {
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
    "message": f"This model's maximum context length is {WINDOW} tokens. Reduce the length of the messages.",
}


class _Model:
    """What it says next, and what it has seen."""

    def __init__(self) -> None:
        self.seen = {"requests": 0, "refused": 0, "longest": 0, "called": 0}

    def answer(self, body: bytes) -> tuple[tuple[bytes, ...], float, float]:
        """Return the answer to a request, in one piece and at once."""
        return (self._said(body),), 0.0, 0.0

    def _said(self, body: bytes) -> bytes:
        if not body:
            return as_json(self.seen)
        tokens = len(body) // 4
        if tokens > WINDOW and not _FIND.search(body):
            self.seen["refused"] += 1
            return as_json({"error": _TOO_LONG}, "400 Bad Request")
        self.seen["requests"] += 1
        self.seen["longest"] = max(self.seen["longest"], len(body))
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        return whole(self._message(body, json.loads(body)), usage)

    def _message(self, body: bytes, asked: dict[str, Any]) -> dict[str, Any]:
        offered = {
            tool["function"]["name"]: tool["function"]["parameters"] for tool in asked.get("tools") or ()
        }
        if not offered:
            return _TEXT
        if turns := _TURNS.search(body):
            return self._call("read", {"page": self.seen["called"]}, most=int(turns[1]))
        done = {
            call["function"]["name"] for each in asked["messages"] for call in each.get("tool_calls") or ()
        }
        found = _FIND.search(body)
        if found and (name := found[1].decode()) in offered.keys() - done:
            return self._call(name, {"text": "x"}, most=1)
        for name in offered.keys() & _SEARCHES - done:
            words = "change the invoice with the number 77"
            several = "queries" in offered[name]["properties"]
            return _calling(name, {"queries": [words]} if several else {"query": words}, "search")
        return _TEXT

    def _call(self, name: str, arguments: dict[str, Any], most: int) -> dict[str, Any]:
        if self.seen["called"] >= most:
            return _TEXT
        self.seen["called"] += 1
        return _calling(name, arguments, str(self.seen["called"]))


def _calling(name: str, arguments: dict[str, Any], number: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


if __name__ == "__main__":
    asyncio.run(serve(_Model().answer))
