"""Apps: agents that can be served, and an app mounted in another one."""

from __future__ import annotations

from typing import Any, cast

import anyio
import httpx
import pytest
from scripted_agents import agent
from served_apps import ask
from starlette.applications import Starlette
from starlette.routing import Mount

from routelock import Agent, ConfigError
from routelock.serving import ServeConfig, create_app
from routelock.testing import ScriptedHandler


def test_an_app_can_be_mounted_in_another() -> None:
    """Behind a prefix of the other app's, and with its own name for the host."""
    inner = create_app(agent("A", "Hi."), ServeConfig(allowed_hosts=["testserver"]))
    app = Starlette(routes=[Mount("/agents", inner)])

    async def visit() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver/agents/v1") as client:
            return await client.get("/models/A"), await client.post("/chat/completions", json=ask())

    models, chat = anyio.run(visit)
    assert models.json()["id"] == "A"
    assert chat.json()["choices"][0]["message"]["content"] == "Hi."


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ([], "the list is empty"),
        (["A"], "not 'A'"),
        ("shop:triage", "not 'shop:triage'"),
        (None, "not None"),
        ([Agent("A", model=ScriptedHandler([])), Agent("A", model=ScriptedHandler([]))], "the same name"),
        (Agent("A"), "has no model"),
    ],
)
def test_agents_that_cannot_be_served_are_an_error(agents: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create_app(agents)


def test_settings_that_are_a_dict_are_refused() -> None:
    with pytest.raises(ConfigError, match="config must be a ServeConfig, not dict"):
        create_app(agent("A"), cast("ServeConfig", {"api_keys": ["k"]}))
