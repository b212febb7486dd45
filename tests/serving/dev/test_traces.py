"""The graph of a run, from its trace."""

from __future__ import annotations

from typing import Any

from dev_page import dev_page, shop

from routelock import Agent, Runner, function_handler, handoff
from routelock.agents.graph import outline_of
from routelock.run.config import RunConfig
from routelock.serving.dev.routes import outline_of_trace
from routelock.testing import ScriptedHandler
from routelock.tracing.records import RunStarted


class _First:
    """Keeps the first record of the run that is not within another."""

    def __init__(self) -> None:
        self.start: RunStarted | None = None

    def begin(self, start: RunStarted, parent: Any, /) -> _First:
        self.start = self.start or start
        return self

    def write(self, record: Any, /) -> None:
        """Ignore the rest."""


def _start(agent: Agent[Any]) -> RunStarted:
    trace = _First()
    Runner.run_sync(agent, "Hi", run_config=RunConfig(trace=trace))
    assert trace.start is not None
    return trace.start


def test_it_is_the_graph_of_the_agents() -> None:
    agent = shop()
    found, known = outline_of_trace(_start(agent)), outline_of(agent)
    assert found.start == known.start
    assert {(each.source, each.target, each.kind, each.tool) for each in found.links} == {
        (each.source, each.target, each.kind, each.tool) for each in known.links
    }
    assert {each.name for each in found.nodes} == {each.name for each in known.nodes}


def test_handlers_and_returns_are_known() -> None:
    async def sms(request: object) -> str:
        return ""

    edges = [function_handler(sms), handoff(Agent("b", model=ScriptedHandler([])), return_to_caller=True)]
    found = outline_of_trace(_start(Agent("a", model=ScriptedHandler(["Hi."]), handoffs=edges)))
    assert {each.name: each.kind for each in found.nodes} == {"a": "agent", "b": "agent", "sms": "handler"}
    assert {each.target: each.returns for each in found.links} == {"sms": False, "b": True}


def test_a_trace_without_agents_has_its_first_agent() -> None:
    found = outline_of_trace(RunStarted(run="r", time=0, agent="a"))
    assert [each.name for each in found.nodes] == ["a"]


class Small(ScriptedHandler):
    """A handler that is named after its model."""

    model, provider = "openai/small", "openai"

    def __init__(self) -> None:
        super().__init__(["Hi."], name="litellm_openai_small")


def test_models_are_shown_as_they_were_written() -> None:
    start = _start(Agent("a", model=Small()))
    assert start.agents[0].models == {"litellm_openai_small": "openai/small"}
    assert outline_of_trace(start).nodes[0].handlers == ("openai/small",)


def test_the_first_picture_shows_the_model_of_the_settings() -> None:
    agent = Agent("a", model=ScriptedHandler([]))
    with dev_page(agent, run_config=RunConfig(model="openai/small")) as page:
        picture = page.post("/talks", {"agent": None}).json()["graph"]
    assert ">openai/small<" in picture
    assert "scripted" not in picture


def test_the_picture_of_a_trace_is_drawn() -> None:
    agent = shop()
    with dev_page(agent) as page:
        start = page.say(page.begin(), "Hi")[0]
        response = page.post("/graph", start)
    assert response.status_code == 200
    for name in ("triage", "refunds", "technician", "lawyer"):
        assert f'data-node="{name}"' in response.json()["graph"]
