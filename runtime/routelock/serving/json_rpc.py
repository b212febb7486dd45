"""Errors of JSON-RPC, for requests that are refused before the SDK of their protocol reads them.

See https://www.jsonrpc.org/specification#error_object. This module does no input or output.
"""

from __future__ import annotations

from typing import Any

from routelock.serving.errors import Refusal

__all__ = ["INTERNAL_ERROR", "INVALID_PARAMS", "INVALID_REQUEST", "json_rpc_error"]


INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32602, -32603

_PARSE_ERROR, _SERVER_ERROR = -32700, -32000


def json_rpc_error(
    refusal: Refusal, data: object, *, code: int | None = None, call_id: object = None
) -> dict[str, Any]:
    """Return the error for a refused request.

    Args:
        refusal: the refusal.
        data: more about the error, in the form of the protocol.
        code: an error code of the protocol; None for the one of JSON-RPC.
        call_id: the id of the request; None if it is not known, because the body may be unread, or not JSON.
    """
    error = {"code": _code_of(refusal) if code is None else code, "message": refusal.message, "data": data}
    return {"jsonrpc": "2.0", "id": call_id, "error": error}


def _code_of(refusal: Refusal) -> int:
    if refusal.code == "invalid_json":
        return _PARSE_ERROR
    if refusal.status >= 500:
        return INTERNAL_ERROR
    if refusal.status in (401, 403, 404, 429):  # the request itself is valid
        return _SERVER_ERROR
    return INVALID_REQUEST
