"""Each protocol that answers a request with a run has the same checks, and the same refusals."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from served_apps import PATIENCE, served

from routelock import Agent
from routelock.serving import ServeConfig
from routelock.testing import ScriptedHandler

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi"},
}
TOOLS: dict[str, dict[str, Any]] = {
    "chat/completions": {"type": "function", "function": {"name": "open_door"}},
    "responses": {"type": "function", "name": "open_door"},
}
CONFIG = ServeConfig(api_keys=["mine"], max_body=2000, client_tools=False)


def refused(path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, str]:
    """The status and the code of the refusal of a request."""
    agent = Agent("A", model=ScriptedHandler([]))
    with served(agent, CONFIG) as url:
        sent = {"authorization": "Bearer mine", **headers}
        response = httpx.post(f"{url}/{path}", json={**BODIES[path], **body}, headers=sent, timeout=PATIENCE)
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"authorization": "Bearer yours"}, {}, (401, "invalid_api_key")),
        ({"content-type": "text/plain"}, {}, (415, "unsupported_media_type")),
        ({}, {"user": "x" * 3000}, (413, "body_too_large")),
        ({}, {"model": "B"}, (404, "model_not_found")),
        ({}, {"handoff_context": {"hops": 9}}, (508, "too_many_hops")),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_a_request_is_refused_before_its_run(
    path: str, headers: dict[str, str], body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert refused(path, headers, body) == expected


@pytest.mark.parametrize("path", BODIES)
def test_tools_of_clients_are_refused_if_the_app_says_so(path: str) -> None:
    assert refused(path, {}, {"tools": [TOOLS[path]]}) == (400, "client_tools_not_allowed")
