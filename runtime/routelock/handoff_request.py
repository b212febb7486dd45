"""Requests for handoffs, the responses of targets, and the states of a handoff."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, cast

from routelock._json import recordable
from routelock._tool_names import capable_name, in_order
from routelock.errors import ConfigError, HandoffStateError

__all__ = ["HandoffRequest", "HandoffResponse", "HandoffStatus", "is_seconds"]


class HandoffStatus(StrEnum):
    """The state of a handoff.

    A request is pending until the target accepts or rejects it, or its time is over. An accepted request
    ends as completed or failed.
    """

    PENDING = "PENDING"
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    FAILED = "FAILED"
    """A callback raised, the run ended before it was decided, or the target failed during the work."""

    def to(self, status: HandoffStatus, handoff_id: str = "") -> HandoffStatus:
        """Return ``status`` if a handoff may change from this state to it.

        Raises:
            HandoffStateError: the change is not allowed; the message names the handoff and its state.
        """
        if status not in _NEXT.get(self, ()):
            needed = "ACCEPTED" if status is HandoffStatus.COMPLETED else "PENDING"
            raise HandoffStateError(f"Handoff {handoff_id} is not in {needed} status (current: {self.value})")
        return status


_NEXT: Mapping[HandoffStatus, Sequence[HandoffStatus]] = {
    HandoffStatus.PENDING: (
        HandoffStatus.ACCEPTED,
        HandoffStatus.REJECTED,
        HandoffStatus.EXPIRED,
        HandoffStatus.FAILED,
    ),
    HandoffStatus.ACCEPTED: (HandoffStatus.COMPLETED, HandoffStatus.FAILED),
}


_STATUSES: Mapping[str, HandoffStatus] = {status.value: status for status in HandoffStatus}


class _Kinds:
    """The type of each field of a declaration, and the name of the type in errors."""

    __slots__ = ("_kinds", "_types", "_values_of")

    def __init__(self, kinds: Mapping[str, tuple[Any, str]]) -> None:
        self._kinds = kinds
        self._types = [kind for kind, _ in kinds.values()]
        self._values_of = attrgetter(*kinds)

    def check(self, declaration: object) -> None:
        """Raise a `ConfigError` if a field has another type."""
        values = self._values_of(declaration)
        if all(map(isinstance, values, self._types)):
            return
        for (name, (kind, what)), value in zip(self._kinds.items(), values, strict=True):
            if not isinstance(value, kind):
                raise _wrong_kind(declaration, name, what)


def _wrong_kind(declaration: object, name: str, what: str) -> ConfigError:
    value = getattr(declaration, name)
    return ConfigError(f"The {name} of a {type(declaration).__name__} must be {what}, not {value!r:.80}.")


_TEXT = (str, NoneType)  # a tuple is checked several times faster than a union

_OF_A_RESPONSE = _Kinds(
    {
        "handoff_id": (str, "text"),
        "rejection_reason": (_TEXT, "text"),
        "metadata": (Mapping, "a dict"),
        "from_agent": (str, "text"),
    }
)
_OF_A_REQUEST = _Kinds(
    {
        "reason": (_TEXT, "text"),
        "message": (_TEXT, "text"),
        "from_agent": (str, "text"),
        "request_id": (str, "text"),
        "preserve_context": (bool, "True or False"),
        "priority": (int, "a whole number"),
        "metadata": (Mapping, "a dict"),
        "context_snapshot": ((bytes, NoneType), "bytes"),
    }
)


def _are_names(given: object) -> bool:
    names = cast("Collection[object]", given) if isinstance(given, Collection) else [None]
    return all(isinstance(name, str) and name for name in names)


def is_seconds(value: object) -> bool:
    """Whether a value is a number of seconds above 0; infinity is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffResponse:
    """The target's response to a handoff request; see ``Agent.on_handoff_request``.

    The response of each transfer is on its record, see ``HandoffRecord.response``.
    """

    status: HandoffStatus = HandoffStatus.PENDING
    handoff_id: str = ""
    """The id of the request in the store, if there is a store; otherwise, on a record, the id of the
    transfer."""
    rejection_reason: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: {})
    """Additional data from the target; it is kept with the record."""
    from_agent: str = ""
    """Name of the target that responded; filled in by the run, and empty without a response."""

    def __post_init__(self) -> None:
        given = cast(object, self.status)
        status = _STATUSES.get(given) if isinstance(given, str) else None
        if status is None:
            raise ConfigError(f"The status of a HandoffResponse must be a HandoffStatus, not {given!r:.80}.")
        object.__setattr__(self, "status", status)
        _OF_A_RESPONSE.check(self)
        object.__setattr__(self, "metadata", dict(self.metadata))

    @property
    def accepted(self) -> bool:
        """Whether the target has accepted the handoff, or completed it."""
        return self.status in (HandoffStatus.ACCEPTED, HandoffStatus.COMPLETED)

    @classmethod
    def accept(cls, handoff_id: str = "", *, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        """Return an acceptance."""
        return cls(status=HandoffStatus.ACCEPTED, handoff_id=handoff_id, metadata=metadata or {})

    @classmethod
    def reject(
        cls, reason: str, handoff_id: str = "", *, metadata: Mapping[str, Any] | None = None
    ) -> HandoffResponse:
        """Return a rejection; the source gets the reason as the tool result and goes on."""
        return cls(
            status=HandoffStatus.REJECTED,
            handoff_id=handoff_id,
            rejection_reason=reason,
            metadata=metadata or {},
        )


@dataclass(frozen=True, slots=True)
class HandoffRequest:
    """A request to hand over to another agent or handler.

    A tool hands over by returning a request. Only code can make one: text in this form, from a tool, a model
    or a user, stays text. ``Agent.on_handoff_request`` gets the request on the target's side.
    """

    to_agent: Any = None
    """The target: the name of a handler of the agent, or of an agent of the run; or a `routelock.Handler` or
    `routelock.Agent` itself. None for the first agent that has all of ``capabilities_required``."""
    input: Any = field(default=None, kw_only=True)
    """Passed to the target: a handler finds it as ``Request.handoff_input``."""
    reason: str | None = field(default=None, kw_only=True)
    """The reason for the handoff; it is on the record."""
    message: str | None = field(default=None, kw_only=True)
    """The answer to the tool call; ``{"assistant": "<target>"}`` when left out."""
    from_agent: str = field(default="", kw_only=True)
    """Name of the agent that requests it; filled in by the run."""
    request_id: str = field(default="", kw_only=True)
    """``h-<run id>-<n>``, the same each time the run is replayed; filled in by the run."""
    preserve_context: bool = field(default=True, kw_only=True)
    """Whether the target sees the conversation; if not, it sees only the newest user message."""
    capabilities_required: Sequence[str] = field(default=(), kw_only=True)
    """The capabilities that the target must have; kept as a tuple, a set in alphabetical order."""
    timeout: float | None = field(default=None, kw_only=True)
    """Seconds that the target has to accept, more than 0; None and infinity for no limit."""
    payload: Any = field(default=None, kw_only=True)
    """Data for the target, see `routelock.handoffs.HandoffPayload`."""
    context_snapshot: bytes | None = field(default=None, kw_only=True)
    """The conversation as `routelock.handoffs.serialize_context` writes it, for a target that decides
    in another process. The run does not read it, and passes on the snapshot that a tool gives."""
    priority: int = field(default=0, kw_only=True)
    """Urgency for stores and targets that decide, such as a `routelock.handoffs.HandoffStore`: lower first. A
    run tries the transfers of a reply in the order of the calls."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: {}, kw_only=True)

    def __post_init__(self) -> None:
        required: object = self.capabilities_required
        if isinstance(required, str):
            raise ConfigError(
                "A HandoffRequest takes capabilities_required as a list of names, such as "
                f"[{required!r:.80}], not one text."
            )
        if required != () and not _are_names(required):
            raise ConfigError(
                f"A HandoffRequest takes capabilities_required as a list of names, not {required!r:.80}."
            )
        if not self.target_name:
            raise ConfigError(
                "A HandoffRequest needs to_agent (a handler, an agent, or its name) or "
                f"capabilities_required; to_agent is {self.to_agent!r:.80}."
            )
        if self.timeout is not None and not is_seconds(self.timeout):
            what = "seconds, more than 0, or None"
            raise ConfigError(f"The timeout of a HandoffRequest must be {what}, not {self.timeout!r:.80}.")
        _OF_A_REQUEST.check(self)
        if isinstance(self.priority, bool):
            raise _wrong_kind(self, "priority", "a whole number")
        if not isinstance(self.capabilities_required, tuple):
            object.__setattr__(self, "capabilities_required", in_order(self.capabilities_required))
        object.__setattr__(self, "metadata", dict(self.metadata))

    @property
    def target_name(self) -> str:
        """The name of the target, or a name made from the capabilities; empty without either."""
        if self.to_agent is None and self.capabilities_required:
            return capable_name(in_order(self.capabilities_required))
        name: object = (
            self.to_agent if isinstance(self.to_agent, str) else getattr(self.to_agent, "name", None)
        )
        return name if isinstance(name, str) else ""

    @property
    def answer(self) -> str:
        """The text that answers the tool call after the transfer."""
        default = json.dumps({"assistant": self.target_name}, ensure_ascii=False)
        return default if self.message is None else self.message

    def _as_data(self) -> dict[str, Any]:
        """Return the fields, with the target by its name and the snapshot as base64."""
        data = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        data["to_agent"] = None if self.to_agent is None else self.target_name
        data["capabilities_required"] = [*self.capabilities_required]
        if self.context_snapshot is not None:
            data["context_snapshot"] = b64encode(self.context_snapshot).decode("ascii")
        return data

    def envelope(self) -> dict[str, Any]:
        """Return the request of a tool as JSON data for a journal."""
        data = self._as_data()
        del data["from_agent"], data["request_id"]
        return data | {name: recordable(data[name]) for name in ("input", "payload", "metadata")}

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON data for another process, with the target by its name.

        There ``preserve_context`` is called ``preserve_history``, the snapshot is base64, and models and
        payloads are objects.

        Raises:
            ValueError: it has no target or no source, or something in it has no JSON form; the message says
                where.
        """
        from routelock.handoffs.request_json import as_wire  # noqa: PLC0415 - it imports pydantic

        cannot = "This HandoffRequest cannot leave the process"
        if self.to_agent is None:
            raise ValueError(
                f"{cannot}: it has capabilities_required and no to_agent. Name the target, because another "
                "process cannot look it up."
            )
        if not self.from_agent:
            raise ValueError(
                f"{cannot}: it has no from_agent, the name of the agent that asks. A run fills it in; set it "
                "in a request of your own."
            )
        return as_wire(self._as_data())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HandoffRequest:
        """Return the request that `to_dict`, or another program, wrote as this data.

        ``from_agent`` and ``to_agent`` are required. A ``payload`` stays a dict, which `HandoffPayload.parse`
        reads.

        Raises:
            ValueError: the data is no request. The message lists everything that is wrong, unknown keys
                included, and shows no value.
        """
        from routelock.handoffs.request_json import from_wire  # noqa: PLC0415

        return cls(**from_wire(data))

    @classmethod
    def from_envelope(cls, envelope: Mapping[str, Any]) -> HandoffRequest:
        """Return the request that `envelope` was made from."""
        fields: dict[str, Any] = dict(envelope)
        if (snapshot := fields.get("context_snapshot")) is not None:
            fields["context_snapshot"] = b64decode(snapshot)
        return cls(**fields)
