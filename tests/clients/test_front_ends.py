"""Front ends that speak AG-UI, unmodified and in Chromium, against a true socket."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import pytest
from clients.ag_ui_cast import ag_ui_agents
from clients.cast import ASIDES, FORECAST, ORDER, Log, Plays
from clients.front_ends import FRONT_ENDS
from clients.served import PATIENCE, comes_true

from routelock import Agent, Request
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.serving import AGUI, ServeConfig, create_app


@dataclass
class Site:
    """A front end and the agents that it asks, for a user with a browser."""

    browser: Any
    url: str = ""
    log: Log = field(default_factory=Log)
    paid: list[int] = field(default_factory=list[int])
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def ask(self, agent: str, text: str = "Weather, please?") -> Any:
        """Open the page of an agent and say something; returns the tab."""
        tab = self.browser.new_page()
        tab.set_default_timeout(1000 * PATIENCE)
        tab.goto(f"{self.url}?agent={agent}")
        tab.get_by_role("textbox").fill(text)
        tab.get_by_role("textbox").press("Enter")
        return tab


def _hesitant(may_go_on: threading.Event) -> Agent[Any]:
    """It says its first word at once, and the rest when it may."""

    async def part(request: Request) -> AsyncIterator[HandlerEvent]:
        yield TextDelta("First ")
        await anyio.to_thread.run_sync(may_go_on.wait, abandon_on_cancel=True)
        yield TextDelta("and last.")
        yield MessageDone(message={"role": "assistant", "content": "First and last."})

    return Agent("hesitant", model=Plays("hesitant", part))


@pytest.fixture(scope="module", params=list(FRONT_ENDS))
def site(
    request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    made = Site(browser)
    agents = [*ag_ui_agents(made.log, made.paid), _hesitant(made.may_go_on)]
    settings = ServeConfig(timeout=PATIENCE / 2, ag_ui=AGUI(approvals=True))
    app = create_app(agents, settings)
    names = [agent.name for agent in agents]
    with FRONT_ENDS[request.param](app, names, tmp_path_factory.mktemp("page")) as made.url:
        yield made


def test_a_text_streams_in(site: Site) -> None:
    tab = site.ask("hesitant")
    tab.get_by_text("First", exact=True).wait_for()
    site.may_go_on.set()
    tab.get_by_text("First and last.").wait_for()
    tab.close()


def test_a_call_and_its_result_are_shown_between_the_texts(site: Site) -> None:
    tab = site.ask("desk", "Where is my lamp?")
    tab.get_by_text(ORDER).wait_for()
    shown = tab.locator("main").inner_text()
    expected = ("Where is my lamp?", ASIDES[0], "look_up(", "-> left on Monday", ASIDES[1], ORDER)
    places = [shown.find(text) for text in expected]
    assert -1 not in places
    assert places == sorted(places)
    tab.close()


def test_a_tool_of_the_page_runs_in_the_page(site: Site) -> None:
    tab = site.ask("forecaster")
    tab.get_by_text(FORECAST).wait_for()
    assert tab.locator(".call", has_text="21 degrees in Rome").count() == 1
    tab.close()


def test_an_approval_is_answered_by_a_click_and_the_run_goes_on(site: Site) -> None:
    tab = site.ask("payer")
    question = tab.get_by_role("group", name='May payer make this call? pay({"amount": 40})')
    question.wait_for()
    assert site.paid == []
    tab.get_by_role("button", name="Approve").click()
    tab.get_by_text("Then: paid").wait_for()
    tab.locator(".call", has_text="-> paid").wait_for()
    assert site.paid == [40]
    assert question.count() == 0
    tab.close()


def test_a_cancel_ends_the_run(site: Site) -> None:
    tab = site.ask("endless", "Until I stop you.")
    tab.get_by_text("Tick").wait_for()
    assert "Until I stop you." not in site.log.cancelled
    tab.get_by_role("button", name="Stop").or_(tab.get_by_test_id("copilot-send-button")).click()
    assert comes_true(lambda: "Until I stop you." in site.log.cancelled)
    tab.close()


@pytest.mark.parametrize("site", ["assistant-ui"], indirect=True)
def test_a_page_that_leaves_ends_its_run(site: Site) -> None:
    """CopilotKit's page leaves its runtime, which reads on."""
    tab = site.ask("endless", "Until I leave.")
    tab.get_by_text("Tick").wait_for()
    tab.close()
    assert comes_true(lambda: "Until I leave." in site.log.cancelled)


def test_an_error_is_shown(site: Site) -> None:
    tab = site.ask("broken")
    tab.get_by_text("The model behind this agent failed.").wait_for()
    tab.get_by_text("Half an").wait_for()
    tab.close()
