"""The wire form of a `HandoffRequest`: a JSON object for another process.

Its names are those of the handoff protocol of other programs: ``preserve_context`` is ``preserve_history``,
and the snapshot is base64, as in the JSON mapping of protocol buffers
(https://protobuf.dev/programming-guides/json/).
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NotRequired, cast

import pydantic
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import TypedDict

from routelock._copies import detached
from routelock._json_document import check_json, misfits

__all__ = ["as_wire", "from_wire"]


_Name = Annotated[str, pydantic.Field(min_length=1)]

_DATA = ("input", "payload", "metadata")
"""The fields for any JSON data."""

_MOST_PROBLEMS = 20

_CANNOT_LEAVE = "This HandoffRequest cannot leave the process"

_NO_REQUEST = "This is no HandoffRequest"


@pydantic.with_config(pydantic.ConfigDict(extra="forbid", strict=True))
class _Wire(TypedDict):
    from_agent: _Name
    to_agent: _Name
    reason: NotRequired[str | None]
    message: NotRequired[str | None]
    request_id: NotRequired[str]
    preserve_history: NotRequired[bool]
    preserve_context: NotRequired[bool]
    capabilities_required: NotRequired[list[_Name]]
    timeout: NotRequired[Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None]
    priority: NotRequired[int]
    context_snapshot: NotRequired[Any]
    input: NotRequired[Any]
    payload: NotRequired[dict[str, Any] | None]
    metadata: NotRequired[dict[str, Any]]


@functools.cache
def _contract() -> pydantic.TypeAdapter[_Wire]:
    # built with the first request that is read: it takes as long as importing all of routelock
    return pydantic.TypeAdapter(_Wire)


def as_wire(wire: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request as JSON data; models, dataclasses and payloads become objects.

    Raises:
        ValueError: a value has no JSON form; the message says where.
    """
    wire["preserve_history"] = wire.pop("preserve_context")
    if (payload := getattr(wire["payload"], "to_dict", None)) is not None:
        wire["payload"] = payload()  # the form that `HandoffPayload.parse` reads
    for name in _DATA:
        wire[name] = _as_json(name, wire[name])
    try:
        check_json(wire)
    except ValueError as error:
        raise ValueError(f"{_CANNOT_LEAVE}: {error}.") from error
    return wire


def _as_json(name: str, value: object) -> object:
    """Return plain JSON data."""
    try:
        return cast(object, from_json(to_json(value)))
    except (PydanticSerializationError, ValueError) as error:
        raise ValueError(f"{_CANNOT_LEAVE}: {name}: {error}.") from error


def from_wire(data: object) -> dict[str, Any]:
    """Return the fields of a request that another program wrote, as copies.

    Raises:
        ValueError: the data is no request. The message names all mistakes, and shows no values.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{_NO_REQUEST}: expected a dict, not {type(data).__name__}.")
    given = dict(cast("Mapping[str, Any]", data))
    fields, problems = _validated(given)
    problems += [
        *_json_problems(given),
        *_contradictions(given),
        *_snapshot_problems(given.get("context_snapshot")),
    ]
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        shown = problems[:_MOST_PROBLEMS] + [f"and {more} more"] * (more > 0)
        raise ValueError(f"{_NO_REQUEST}: {'; '.join(shown)}.")
    if isinstance(snapshot := fields.get("context_snapshot"), str):
        fields["context_snapshot"] = base64.b64decode(snapshot)
    if "preserve_history" in fields:
        fields["preserve_context"] = fields.pop("preserve_history")
    return detached(fields)


def _validated(given: dict[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    try:
        checked = _contract().validate_python(given)
    except pydantic.ValidationError as error:
        return {}, misfits(error)
    return {**checked}, []


def _json_problems(given: Mapping[str, Any]) -> Iterator[str]:
    for name in _DATA:
        try:
            check_json({name: given.get(name)})
        except ValueError as error:
            yield str(error)


def _contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    both = [given[name] for name in ("preserve_history", "preserve_context") if name in given]
    if len(both) == 2 and both[0] is not both[1]:
        yield "preserve_history: it contradicts preserve_context, which means the same"


def _snapshot_problems(snapshot: object) -> Iterator[str]:
    """Yield what is wrong with a snapshot: it must be base64, or bytes in an object that was never JSON."""
    if isinstance(snapshot, str):
        try:
            base64.b64decode(snapshot, validate=True)
        except ValueError:
            yield "context_snapshot: it is no base64"
    elif not isinstance(snapshot, bytes | None):
        yield f"context_snapshot: it must be base64 or None, not {type(snapshot).__name__}"
