"""Agents under their names, and a request that came in for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from routelock import Agent, RunConfig
from routelock.errors import ConfigError
from routelock.serving.auth import Principal
from routelock.serving.catalog import Catalog, Incoming
from routelock.serving.errors import Refusal
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio


def agent(name: str, **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


def test_agents_are_found_by_name_and_the_first_is_the_default() -> None:
    catalog = Catalog([agent("A"), agent("B")], RunConfig())
    assert catalog.names == ["A", "B"]
    found = [catalog.find(model).agent.name for model in ("B", "", "default")]
    assert found == ["B", "A", "A"]


def test_a_name_that_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refusal, match="There is: 'A'") as caught:
        Catalog(agent("A"), RunConfig()).find("gpt-4o")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("agents", [[], ["A"], "A", [agent("A"), agent("A")], Agent("A")])
def test_what_cannot_be_served_is_said(agents: Any) -> None:
    with pytest.raises(ConfigError):
        Catalog(agents, RunConfig())


def test_a_clients_tool_is_not_named_like_one_of_the_graph() -> None:
    served = Catalog(agent("A", handoffs=[agent("B")]), RunConfig()).find("A")
    mine: Any = {"type": "function", "function": {"name": "mine", "parameters": {}}}
    served.check_tools([mine], allowed=True)
    with pytest.raises(Refusal, match="takes no tools"):
        served.check_tools([mine], allowed=False)
    taken: Any = {"type": "function", "function": {"name": "transfer_to_b", "parameters": {}}}
    with pytest.raises(Refusal, match="give it another name"):
        served.check_tools([mine, taken], allowed=True)


def incoming(receive: Any, headers: Mapping[str, str]) -> Incoming:
    async def send(message: Any) -> None: ...

    return Incoming(
        scope={},
        receive=receive,
        send=send,
        request_id="req_1",
        headers=headers,
        principal=Principal(name="ann", scopes=frozenset({"owner"})),
    )


def test_the_app_is_told_who_asks_and_no_secret() -> None:
    headers = {"authorization": "Bearer secret", "cookie": "secret", "traceparent": "00-1", "x-shop": "7"}
    about = incoming(None, headers).about("A", user="u", handoff_context={"page": 1})
    assert "secret" not in repr(about)
    assert (about.principal, about.scopes, about.user) == ("ann", {"owner"}, "u")
    assert about.handoff_context == {"page": 1, "traceparent": "00-1"}
    assert about.headers["x-shop"] == "7"


@pytest.mark.virtual_time
@pytest.mark.every_loop
async def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    with pytest.raises(Refusal, match="in time") as caught:
        await incoming(anyio.sleep_forever, {}).read(100, 5)
    assert caught.value.status == 408
