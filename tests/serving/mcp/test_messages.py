"""Messages of MCP clients that the SDK would not answer, or not read."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.serving.errors import Refusal
from routelock.serving.mcp.messages import check_id, line_problem, refused_line, request_id_of

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")

IDS: list[tuple[Any, Any]] = [
    (7, 7),
    ("7", "7"),
    ("", ""),
    (None, None),
    (True, None),
    (1.5, None),
    ({}, None),
    ("\ud83d", None),
]


@pytest.mark.parametrize(("given", "found"), IDS)
def test_an_id_is_text_or_an_integer(given: Any, found: Any) -> None:
    assert request_id_of({"method": "ping", "id": given}) == found


@pytest.mark.parametrize("said", [None, [], "x", {"id": 7, "result": {}}, {"method": "x"}])
def test_only_requests_have_an_id(said: Any) -> None:
    check_id(said)
    assert request_id_of(said) is None


def test_a_request_with_an_id_of_another_type_is_refused() -> None:
    with pytest.raises(Refusal, match="id: must be text or an integer"):
        check_id({"method": "ping", "id": None})


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n',
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        '{"jsonrpc": "2.0", "id": 7, "result": {}}',
        '{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}',
    ],
)
def test_every_kind_of_message_is_one(line: str) -> None:
    assert line_problem(line) is None


def test_a_line_without_an_id_that_can_be_read_is_answered_without_one() -> None:
    line = '{"id": 7, "method": "ping"'
    refusal = line_problem(line)
    assert refusal is not None
    assert refused_line(line, refusal, "req_1")["id"] is None
