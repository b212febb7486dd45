"""The context of a conversation as a value, and as bytes that another process reads.

A snapshot holds all that an agent needs to continue: the history, the state of its tools, and metadata of the
handoff. The bytes are JSON: they name no classes, and reading them runs no code.

Decisions:

* **Format.** The bytes hold the three fields and ``"format_version": 1``. Bytes without a version are read as
  version 1: other programs write the same three fields, and ignore the key. A newer version is refused,
  other unknown keys are ignored.
* **Secrets** are redacted in ``tool_state``, in ``metadata`` and in the ``metadata`` of messages. The texts
  of messages and of tool results stay unchanged: a changed word would be a changed conversation. Redact them
  with `routelock.tracing.redact` if that matters more.
* **Mistakes** are a `ValueError` that says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, cast

from routelock._copies import detached
from routelock._json_document import (
    MAX_BYTES,
    MAX_DEPTH,
    VERSION_KEY,
    Compress,
    check_json,
    check_version,
    decode,
    encode,
    prefix_errors,
)
from routelock._redaction import redact
from routelock._sendable import sendable
from routelock.handoffs.context_fields import (
    FIELDS,
    FORMAT_VERSION,
    check_fields,
    check_history,
    context_schema,
    kind_of,
    utc_text,
)
from routelock.history.marked import ORIGIN
from routelock.history.messages import Message
from routelock.history.portable import portable
from routelock.history.trim import newest, with_pairs

__all__ = [
    "TOOL_STATE_KEY",
    "HandoffContext",
    "ToolState",
    "deserialize_context",
    "prepare_handoff_context",
    "serialize_context",
]


TOOL_STATE_KEY = "tool_state"
"""The key of a run's shared memory under which tools keep their state for the snapshot of a handoff."""

_BESIDE_MESSAGE = frozenset(("timestamp", "metadata"))
"""Keys of an entry of the history that describe the message, and that providers refuse."""

_Entry = Message | Mapping[str, Any]


class ToolState(TypedDict, total=False):
    """The usual keys of ``tool_state``; other keys are kept as well."""

    active_calls: list[dict[str, Any]]
    """Calls in progress, such as ``{"call_id": ..., "tool": ..., "started_at": ...}``."""
    cached_results: dict[str, Any]
    """Results by call id."""
    configurations: dict[str, Any]
    """Settings by tool. Secrets in them are redacted."""
    pending_approvals: list[dict[str, Any]]
    """Calls that wait for an approval."""


@dataclass(frozen=True, slots=True)
class HandoffContext:
    """A snapshot of a conversation, for an agent in another process or at another time.

    The constructor checks nothing and keeps the lists and dicts that it is given; `of` and `from_dict` check
    and copy them. Every method that writes or reads the snapshot checks it.
    """

    conversation_history: list[dict[str, Any]] = field(default_factory=lambda: [])
    """Messages. An entry may also have a ``timestamp`` (text, ISO 8601) and ``metadata`` (a dict)."""
    tool_state: dict[str, Any] = field(default_factory=lambda: {})
    """See `ToolState`. For ``on_handoff_received`` it is the entry ``"tool_state"`` of the run's shared
    memory."""
    metadata: dict[str, Any] = field(default_factory=lambda: {})

    @classmethod
    def of(
        cls,
        messages: Sequence[_Entry],
        *,
        agent: str,
        run_id: str,
        handoff_id: str,
        created_at: datetime | str,
        tool_state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> HandoffContext:
        """Return a snapshot with the names of its run, handoff and agent. Everything is copied.

        Args:
            messages: the conversation, such as ``result.to_input_list()``. Half a surrogate pair, which
                models sometimes write, becomes U+FFFD.
            agent: name of the agent that hands over; ``metadata["agent_name"]``.
            run_id: id of the run; ``metadata["run_id"]``.
            handoff_id: id of the handoff; ``metadata["handoff_id"]``.
            created_at: the time, with a time zone; ``metadata["created_at"]``, as ISO 8601 in UTC.
            tool_state: see `ToolState`.
            metadata: other entries; the four above replace them.

        Raises:
            ValueError: a snapshot cannot hold one of the values, or the time has no zone.
        """
        about = {
            "agent_name": agent,
            "run_id": run_id,
            "handoff_id": handoff_id,
            "created_at": utc_text(created_at),
        }
        return cls.from_dict(
            {
                "conversation_history": sendable(list(messages)),
                "tool_state": tool_state or {},
                "metadata": {**(metadata or {}), **about},
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the three fields, in copies that share no list and no dict with this snapshot."""
        return {name: detached(getattr(self, name)) for name in FIELDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HandoffContext:
        """Return a snapshot of copies of the three fields; a missing one is empty, other keys are ignored.

        `deserialize_context` reads bytes, and checks their version too.

        Raises:
            ValueError: a field has the wrong type, a message is invalid, or a value is no JSON.
        """
        with prefix_errors("This is no HandoffContext"):
            if not isinstance(cast(object, data), Mapping):
                raise ValueError(f"expected a dict, not {type(data).__name__}")
            chosen: dict[str, Any] = {name: data[name] for name in FIELDS if data.get(name) is not None}
            check_json(chosen)
            return _checked(detached(chosen))

    def to_input_list(self) -> list[Message]:
        """Return copies of the messages as input for ``Runner.run``, without timestamps and metadata.

        The messages keep the private keys that a run reads. So thinking blocks go back to the provider family
        that wrote them, and to no other. The run repairs messages that providers would refuse;
        `routelock.history.problems` lists the problems.

        Raises:
            ValueError: a message is invalid; the error names its place and the key.
        """
        check_history(self.conversation_history)
        return [
            cast(Message, {key: detached(each) for key, each in entry.items() if key not in _BESIDE_MESSAGE})
            for entry in self.conversation_history
        ]

    def provider_messages(self) -> list[Message]:
        """Return copies of the messages for any provider: without private keys, timestamps and metadata.

        Parts that only the family that wrote a message can read are left out where the family is known.

        Raises:
            ValueError: a message is invalid; the error names its place and the key.
        """
        shared = [portable(each) if ORIGIN in each else each for each in self.to_input_list()]
        return [
            cast(Message, {key: value for key, value in message.items() if not key.startswith("_")})
            for message in shared
        ]

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON schema (draft-07) of `to_dict` and of the bytes."""
        return context_schema()


def prepare_handoff_context(
    full_history: Sequence[_Entry],
    tool_state: Mapping[str, Any] | None = None,
    max_history: int = 50,
    *,
    include_cached: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> HandoffContext:
    """Return a snapshot with the newest messages and the calls in progress. Everything is copied.

    Args:
        full_history: the whole conversation.
        tool_state: only its ``active_calls`` and ``pending_approvals`` are kept.
        max_history: the most messages to keep, system messages not counted. A message with calls and its
            results count as one message each, and stay together: if they do not fit, they are left out. The
            last such group is always kept. 0 keeps none.
        include_cached: whether ``cached_results`` are kept, too.
        metadata: other entries; ``original_history_length`` and ``trimmed`` are added.

    Raises:
        ValueError: ``max_history`` is negative, or a snapshot cannot hold one of the values.
    """
    if type(cast(object, max_history)) is not int or max_history < 0:
        raise ValueError(f"max_history must be 0 or more, not {max_history!r:.40}; 0 keeps no messages.")
    if not isinstance(cast(object, tool_state), Mapping | None):
        raise ValueError(f"tool_state must be a dict, not {type(tool_state).__name__}.")
    whole = HandoffContext.from_dict({"conversation_history": list(full_history)}).conversation_history
    messages = cast("list[Message]", whole)
    kept = with_pairs(messages, newest(messages, max_history))
    state: dict[str, Any] = {"active_calls": [], "pending_approvals": []}
    wanted = (*state, "cached_results") if include_cached else tuple(state)
    state |= {key: value for key, value in (tool_state or {}).items() if key in wanted}
    about = {"original_history_length": len(whole), "trimmed": len(kept) < len(whole)}
    history = [whole[place] for place in kept]
    return HandoffContext.from_dict(
        {"conversation_history": history, "tool_state": state, "metadata": {**(metadata or {}), **about}}
    )


def serialize_context(
    context: HandoffContext,
    *,
    compress: Compress = "auto",
    include_secrets: bool = False,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
) -> bytes:
    """Return a snapshot as compact JSON in UTF-8. The same snapshot gives the same bytes.

    Args:
        context: the snapshot; it is not changed.
        compress: ``"auto"`` gzips JSON of more than 102,400 bytes, True everything, False nothing.
        include_secrets: whether secrets in ``tool_state`` and ``metadata`` are kept; if not,
            ``"[redacted]"`` replaces them. `routelock.tracing.redact` says what counts as a secret.
        max_bytes: the largest size of the JSON; 64 MB, as `deserialize_context` reads it.
        max_depth: how many lists and dicts may be nested.

    Raises:
        ValueError: a value would come back as something else (a tuple, a number as a key, NaN, an object), a
            message is invalid, or the JSON is too large. The message says where.
    """
    with prefix_errors("Failed to serialize HandoffContext"):
        if not isinstance(cast(object, context), HandoffContext):
            raise ValueError(f"expected a HandoffContext, not {type(context).__name__}")
        fields = {name: getattr(context, name) for name in FIELDS}
        check_json(fields, max_depth)
        checked = _checked(fields)
        shown = fields if include_secrets else _redacted(checked)
        return encode({**shown, VERSION_KEY: FORMAT_VERSION}, compress=compress, max_bytes=max_bytes)


def deserialize_context(
    data: bytes | bytearray | memoryview,
    *,
    strict: bool = True,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
) -> HandoffContext:
    """Return the snapshot that `serialize_context` wrote.

    Bytes from anywhere are safe to read: they give a checked snapshot or a `ValueError`, in bounded memory.

    Args:
        data: JSON in UTF-8, plain or gzipped.
        strict: whether all three fields must be present, and no object may have a key twice.
        max_bytes: the largest size, both compressed and decompressed.
        max_depth: how many lists and dicts may be nested.

    Raises:
        ValueError: the data is no snapshot, or has a newer format; the message says what is wrong.
    """
    with prefix_errors("Failed to deserialize HandoffContext"):
        found = decode(data, max_bytes=max_bytes, max_depth=max_depth, unique_keys=strict)
        if not isinstance(found, dict):
            raise ValueError(f"expected an object with {', '.join(FIELDS)}, not {kind_of(found)}")
        fields = cast("dict[str, Any]", found)
        check_version(fields, FORMAT_VERSION)
        missing = ", ".join(name for name in FIELDS if name not in fields)
        if strict and missing:
            raise ValueError(f"{missing} missing; strict=False reads a missing field as empty")
        if not strict:
            fields = {name: each for name, each in fields.items() if each is not None}
        return _checked(fields)


def _checked(fields: Mapping[str, Any]) -> HandoffContext:
    """Return a snapshot of JSON data that is not copied."""
    check_fields(fields)
    return HandoffContext(**{name: fields[name] for name in FIELDS if name in fields})


def _redacted(context: HandoffContext) -> dict[str, Any]:
    history = [
        {**entry, "metadata": redact(entry["metadata"])} if "metadata" in entry else entry
        for entry in context.conversation_history
    ]
    return {
        "conversation_history": history,
        "tool_state": redact(context.tool_state),
        "metadata": redact(context.metadata),
    }
