"""What was made of a conversation and its tools for the last request, kept for the next one.

A run asks again and again with the same messages and a few more. Repairing and encoding all of them each time
makes a long run cost the square of its length: with 400 calls of tools, a hundredfold. So both are done once
per message. Tools are the same in every request of an agent, so what is sent of them is made once.

Both are known by their identity: nobody edits what a model was shown, see `routelock.handlers.Request`.
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
from routelock_providers.request_shape import Outgoing, opens, tools_for
from routelock_providers.vendors import Shape

__all__ = ["Conversation", "Conversations", "Toolbox", "Toolboxes", "body_as_json"]


_MOST = 1000
"""Conversations that are kept at most, those that were asked last."""

_MOST_TOOLBOXES = 50
"""An agent whose tools depend on the moment has a new one for each request."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Conversation(list[Message]):
    """The messages of one request as the vendor takes them, and what later ones can go on from."""

    __slots__ = ("_encoded", "_ends", "_given", "_outgoing", "_sent")

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._outgoing = Outgoing(shape)
        self._given: list[Message] = []
        self._encoded: list[bytes] = []
        """Several messages each, as JSON, with commas in between."""
        self._ends: list[int] = []
        """How many messages there are up to the end of each."""
        self._sent: list[Message] = []
        """What the encoded messages were."""

    def goes_on_with(self, messages: Sequence[Message]) -> bool:
        """Whether these are the messages of the last request, and perhaps more.

        The first one is made anew for each request, because it holds the system prompt.
        """
        given = self._given
        if len(messages) < len(given) or not given or given[0] != messages[0]:
            return False
        return all(map(operator.is_, islice(given, 1, None), islice(messages, 1, None)))

    def extend_to(self, messages: Sequence[Message]) -> None:
        """Take in what is new."""
        for message in messages[len(self._given) :]:
            self._outgoing.add(message)
            self._given.append(message)
        self[:] = self._outgoing.messages()

    def json(self) -> bytes:
        """Return the messages as a JSON list."""
        known = self._unchanged()
        while self._ends and self._ends[-1] > known:
            del self._ends[-1], self._encoded[-1]
        start = self._ends[-1] if self._ends else 0
        # what may change again, such as a last message of ours, is not encoded with what will not
        for end in (known, len(self)):
            if end > start:
                self._encoded.append(_messages_as_json(self[start:end])[1:-1])
                self._ends.append(end)
                start = end
        self._sent = [*self]
        return b"[%s]" % b",".join(self._encoded)

    def _unchanged(self) -> int:
        """Return how many messages, from the first one on, are those that were encoded last."""
        same = [*map(operator.is_, self._sent, self)]
        return len(same) if all(same) else same.index(False)


class Conversations:
    """The conversations of one handler that may go on.

    Each belongs to one request at a time: it is taken out, and put back when the model has called a tool.
    A run has one at most, and what ends otherwise is forgotten, so nothing of a run stays behind.

    Args:
        shape: what the vendor demands of messages.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._kept: dict[str, Conversation] = {}

    def take(self, run_id: str, messages: Sequence[Message]) -> Conversation | None:
        """Return the conversation of a run's request with these messages, ready to be sent.

        None for one that only begins, and can be sent as it is: the next request will be the first that
        something is kept of.
        """
        kept = self._kept.pop(run_id, None)
        if kept is None and opens(messages):
            return None
        goes_on = kept is not None and kept.goes_on_with(messages)
        conversation = kept if kept is not None and goes_on else Conversation(self._shape)
        conversation.extend_to(messages)
        return conversation

    def put_back(self, run_id: str, conversation: Conversation) -> None:
        """Keep a conversation of a run that will go on."""
        while len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[run_id] = conversation


class Toolbox(list[ToolSpec]):
    """The tools of a request as the vendor takes them."""

    __slots__ = ("_encoded", "given")

    def __init__(self, given: Sequence[ToolSpec], fitted: Sequence[ToolSpec]) -> None:
        super().__init__(fitted)
        self.given = given
        self._encoded: bytes | None = None

    def json(self) -> bytes:
        """Return the tools as a JSON list."""
        if self._encoded is None:
            self._encoded = _encode(self).encode()
        return self._encoded


class Toolboxes:
    """The tools of all agents that a handler answers for.

    Args:
        shape: what the vendor demands of tools.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._known: dict[int, Toolbox] = {}

    def fitted(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return what `tools_for` does; the same object again for what can neither change nor be another."""
        if not tools or not isinstance(tools, tuple):
            return tools_for(messages, tools, self._shape)
        known = self._known.get(id(tools))
        if known is None or known.given is not tools:
            while len(self._known) >= _MOST_TOOLBOXES:
                del self._known[next(iter(self._known))]
            known = self._known[id(tools)] = Toolbox(tools, tools_for(messages, tools, self._shape))
        return known


def _messages_as_json(messages: Sequence[Message]) -> bytes:
    return to_json(messages, inf_nan_mode="null")


_ENCODED = (Conversation, Toolbox)


def body_as_json(body: Mapping[str, Any]) -> bytes:
    """Return a request's body as JSON, of which messages and tools may be encoded already."""
    rest: dict[str, Any] = {}
    pieces: list[bytes] = []
    for key, value in body.items():
        if isinstance(value, _ENCODED):
            pieces.append(b'"%b":%b' % (key.encode(), value.json()))
        elif key == "messages":
            pieces.append(b'"messages":%b' % _messages_as_json(value))
        elif isinstance(value, str):  # such as the model; of a text alone this is quick
            pieces.append(f"{_encode(key)}:{_encode(value)}".encode())
        else:
            rest[key] = value
    if rest:
        pieces.append(_encode(rest).encode()[1:-1])
    return b"{%b}" % b",".join(pieces)
