"""Caches of fitted and encoded messages and tools, for the next request of the same run.

Each request of a run repeats the messages of the last one and adds a few. Fitting and encoding all of them
each time makes the cost of a run grow with the square of its length: a hundredfold with 400 tool calls. So
both are done once per message. The tools of an agent are the same in every request, so they are encoded once.

Messages and tools are recognised by identity, because those of a request are never edited, see
`routelock.handlers.Request`.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic_core import to_json

from routelock.handlers.port import ToolSpec
from routelock.history.messages import Message
from routelock_providers.request_shape import OutgoingMessages, tools_for
from routelock_providers.vendors import VendorRules

__all__ = ["CachedMessages", "CachedTools", "MessageCache", "ToolCache", "body_as_json"]


_MOST = 1000
"""The most runs whose messages are kept; those whose last request is the oldest are dropped."""

_MOST_TOOL_LISTS = 50
"""The largest number of tool lists that are kept: an agent may have new tools in each request."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class CachedMessages(list[Message]):
    """The messages of one request as the vendor takes them, with their JSON for the next request."""

    __slots__ = ("_encoded", "_ends", "_outgoing", "_sent", "_source")

    def __init__(self, rules: VendorRules) -> None:
        super().__init__()
        self._outgoing = OutgoingMessages(rules)
        self._source: list[Message] = []
        """The messages of the run that were added."""
        self._encoded: list[bytes] = []
        """Blocks of several messages, as JSON with commas in between."""
        self._ends: list[int] = []
        """The number of messages up to the end of each block."""
        self._sent: list[Message] = []
        """The messages that were encoded last."""

    def is_continued_by(self, messages: Sequence[Message]) -> bool:
        """Return whether these are the messages of the last request, and perhaps more.

        The first one is compared by value, because the system prompt is a new message in each request.
        """
        source = self._source
        if len(messages) < len(source) or not source or source[0] != messages[0]:
            return False
        return all(map(operator.is_, islice(source, 1, None), islice(messages, 1, None)))

    def extend_to(self, messages: Sequence[Message]) -> None:
        """Add the new messages."""
        for message in messages[len(self._source) :]:
            self._outgoing.add(message)
            self._source.append(message)
        self[:] = self._outgoing.messages()

    def json(self) -> bytes:
        """Return the messages as a JSON list."""
        known = self._unchanged()
        while self._ends and self._ends[-1] > known:
            del self._ends[-1], self._encoded[-1]
        start = self._ends[-1] if self._ends else 0
        # messages that may change again, such as an added last message, are in a separate block
        for end in (known, len(self)):
            if end > start:
                self._encoded.append(_messages_as_json(self[start:end])[1:-1])
                self._ends.append(end)
                start = end
        self._sent = [*self]
        return b"[%s]" % b",".join(self._encoded)

    def _unchanged(self) -> int:
        """Return how many messages at the beginning are the same as those that were encoded last."""
        same = [*map(operator.is_, self._sent, self)]
        return len(same) if all(same) else same.index(False)


class MessageCache:
    """Keeps the messages of the runs that continue after a tool call.

    An entry belongs to one request at a time: it is taken out, and put back when the model has called a tool.
    A run has at most one entry, and none after its last request.

    Args:
        rules: the rules of the vendor.
    """

    def __init__(self, rules: VendorRules) -> None:
        self._rules = rules
        self._kept: dict[str, CachedMessages] = {}

    def take(self, run_id: str, messages: Sequence[Message]) -> CachedMessages:
        """Return the messages of a run's request, fitted to the vendor's rules."""
        kept = self._kept.pop(run_id, None)
        if kept is None or not kept.is_continued_by(messages):
            kept = CachedMessages(self._rules)
        kept.extend_to(messages)
        return kept

    def put_back(self, run_id: str, messages: CachedMessages) -> None:
        """Keep the messages of a run that continues."""
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[run_id] = messages


class CachedTools(list[ToolSpec]):
    """The tools of a request as the vendor takes them.

    Args:
        source: the tools of the run.
        tools: the same as the vendor takes them.
    """

    __slots__ = ("_encoded", "source")

    def __init__(self, source: Sequence[ToolSpec], tools: Sequence[ToolSpec]) -> None:
        super().__init__(tools)
        self.source: Sequence[ToolSpec] = source
        self._encoded: bytes | None = None

    def json(self) -> bytes:
        """Return the tools as a JSON list."""
        if self._encoded is None:
            self._encoded = _encode(self).encode()
        return self._encoded


class ToolCache:
    """Keeps the tools of all agents that a handler answers for.

    Args:
        rules: the rules of the vendor.
    """

    def __init__(self, rules: VendorRules) -> None:
        self._rules = rules
        self._known: dict[int, CachedTools] = {}

    def take(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return what `tools_for` returns; the same object again for the same tuple of tools."""
        if not tools or not isinstance(tools, tuple):
            return tools_for(messages, tools, self._rules)
        known = self._known.get(id(tools))
        if known is None or known.source is not tools:
            while len(self._known) >= _MOST_TOOL_LISTS:
                del self._known[next(iter(self._known))]
            known = self._known[id(tools)] = CachedTools(tools, tools_for(messages, tools, self._rules))
        return known


def _messages_as_json(messages: Sequence[Message]) -> bytes:
    return to_json(messages, inf_nan_mode="null")


_ENCODED = (CachedMessages, CachedTools)


def body_as_json(body: Mapping[str, Any]) -> bytes:
    """Return the body of a request as JSON; its messages and tools may be encoded already."""
    rest: dict[str, Any] = {}
    pieces: list[bytes] = []
    for key, value in body.items():
        if isinstance(value, _ENCODED):
            pieces.append(b'"%b":%b' % (key.encode(), value.json()))
        elif key == "messages":
            pieces.append(b'"messages":%b' % _messages_as_json(value))
        elif isinstance(value, str):  # such as the model: json makes no encoder for a text alone
            pieces.append(f"{_encode(key)}:{_encode(value)}".encode())
        else:
            rest[key] = value
    if rest:
        pieces.append(_encode(rest).encode()[1:-1])
    return b"{%b}" % b",".join(pieces)
