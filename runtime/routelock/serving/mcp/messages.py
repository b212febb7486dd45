"""Messages of MCP clients, checked before the SDK reads them. This module does no input or output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pydantic

from routelock._sendable import is_utf8
from routelock.serving.errors import Refusal
from routelock.serving.mcp.tools import json_rpc_refusal
from routelock.serving.requests import bad_request, read_json

__all__ = ["check_id", "line_problem", "refused_line", "request_id_of"]


def request_id_of(said: object) -> str | int | None:
    """Return the id of a request; None for a message of another kind, and for an id that cannot be one."""
    if not isinstance(said, Mapping) or "method" not in said:
        return None
    found: object = cast("Mapping[str, object]", said).get("id")
    if isinstance(found, str) and is_utf8(found):
        return found
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def check_id(said: object) -> None:
    """Refuse a request whose id is neither text nor an integer.

    The SDK takes it for a notification, which gets no answer, and its client would wait for ever.

    Raises:
        Refusal: 400.
    """
    if request_id_of(said) is not None or not isinstance(said, Mapping):
        return
    fields = cast("Mapping[str, object]", said)
    if "method" in fields and "id" in fields:
        raise bad_request("id: must be text or an integer.", "id")


def line_problem(line: str) -> Refusal | None:
    """Return the refusal of a line that is not a message of the protocol; None for a message."""
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - an extra

    try:
        said = read_json(line.encode(errors="replace"))
        check_id(said)
        jsonrpc_message_adapter.validate_python(said, by_name=False)
    except Refusal as refusal:
        return refusal
    except pydantic.ValidationError:
        return bad_request("The line is not a message of JSON-RPC 2.0.", None)
    return None


def refused_line(line: str, refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return the JSON-RPC error for a line, with the id of its request if that can be read.

    Args:
        line: the line.
        refusal: the reason why it is refused.
        request_id: the id in the log.
    """
    try:  # unlike `read_json`, this reads half of a character, NaN and Infinity
        said: object = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    return json_rpc_refusal(refusal, request_id, request_id_of(said))
