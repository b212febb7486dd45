"""Refusals as errors of JSON-RPC."""

from __future__ import annotations

import pytest

from routelock.serving.errors import Refusal
from routelock.serving.json_rpc import json_rpc_error


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (400, "invalid_json", -32700),
        (400, "invalid_request", -32600),
        (413, "body_too_large", -32600),
        (401, "invalid_api_key", -32000),
        (404, "model_not_found", -32000),
        (429, "too_many_requests", -32000),
        (503, "shutting_down", -32603),
    ],
)
def test_a_refusal_has_the_code_of_its_kind(status: int, reason: str, code: int) -> None:
    body = json_rpc_error(Refusal(status, "No.", reason), {"code": reason})
    assert body["error"] == {"code": code, "message": "No.", "data": {"code": reason}}


def test_an_error_has_the_id_of_its_request_and_a_code_of_the_protocol() -> None:
    body = json_rpc_error(Refusal(415, "No.", "unsupported_media_type"), None, code=-32005, call_id="a")
    assert (body["id"], body["error"]["code"]) == ("a", -32005)
