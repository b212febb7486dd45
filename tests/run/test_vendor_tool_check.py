"""A tool that the vendor runs is refused at the start of a run if no handler takes it."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, handoff
from routelock.errors import ConfigError
from routelock.run.start import run_graph
from routelock.testing import ScriptedHandler
from routelock.tools import VendorTool


def agent(name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


class Vendor(ScriptedHandler):
    """A handler of a vendor that has no tools of its own."""

    def check_vendor_tools(self, specs: Any, settings: Any, *, functions: bool) -> None:
        """Refuse every tool, and say what was asked."""
        kinds = [spec["type"] for spec in specs]
        raise ConfigError(f"no {kinds} with {settings}{' and functions' if functions else ''}")


def searching(*handlers: ScriptedHandler, tool: Any = None, **options: Any) -> Agent[Any]:
    return Agent("B", handlers=handlers, tools=[tool or VendorTool.web_search()], **options)


def test_a_tool_that_a_later_agents_vendor_does_not_have_is_refused() -> None:
    later = searching(Vendor([]), model_settings={"temperature": 1.0})
    with pytest.raises(ConfigError) as caught:
        run_graph(agent(handoffs=[later]), RunConfig())
    assert str(caught.value) == "Agent 'B': no ['web_search'] with {'temperature': 1.0}"


def test_a_vendors_tool_is_checked_beside_the_agents_handoffs() -> None:
    with pytest.raises(ConfigError, match="and functions"):
        run_graph(searching(Vendor([]), handoffs=[agent("C")]), RunConfig())


def test_agents_that_the_run_adds_are_checked_for_tools_of_vendors() -> None:
    with pytest.raises(ConfigError, match="Agent 'B'"):
        run_graph(agent(), RunConfig(agents=[searching(Vendor([]))]))


@pytest.mark.parametrize(
    "asked",
    [
        searching(Vendor([]), tool=VendorTool(spec={"type": "web_search"}, scope="premium")),
        searching(Vendor([]), tool=VendorTool(spec={"type": "web_search"}, is_enabled=lambda *_: False)),
        searching(Vendor([], name="one"), ScriptedHandler([], name="other")),
        searching(Vendor([]), handoffs=[handoff(ScriptedHandler([], name="other"))]),
    ],
    ids=["a scope", "a condition", "a fallback", "another handler"],
)
def test_a_vendors_tool_that_a_run_may_do_without_is_not_refused_early(asked: Agent[Any]) -> None:
    assert set(run_graph(asked, RunConfig())) == {"B"}


def test_the_model_of_the_run_is_asked_about_tools_of_vendors() -> None:
    assert set(run_graph(searching(Vendor([])), RunConfig(model=ScriptedHandler([])))) == {"B"}
