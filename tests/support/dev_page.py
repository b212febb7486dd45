"""The dev page on a true socket, and what its script would ask."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
from served_apps import listening
from waiting import PATIENCE

from routelock import Agent, function_tool, handoff
from routelock.history.filters import remove_all_tools
from routelock.serving.dev import create_dev_app
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

USED = Usage(requests=1, input_tokens=100, output_tokens=20, cached_tokens=50, cost=0.002)


@function_tool
def find_order(order: int) -> str:
    """Find an order."""
    return f"order {order}: a lamp"


@function_tool
def refund(order: int) -> str:
    """Pay an order back."""
    return f"refunded order {order}"


def shop(*last: Any) -> Agent[Any]:
    """A triage that looks something up and hands over, with a filter, to refunds, which ask a lawyer."""
    lawyer = Agent("lawyer", model=ScriptedHandler([reply("It is owed.", usage=USED)] * 9))
    ask = reply("I ask first.", calls=[call("lawyer", {"input": "Is it owed?"})], usage=USED)
    said = last or (reply("Order 7 is refunded.", usage=USED),)
    refunds = Agent(
        "refunds",
        "You pay back.",
        model=ScriptedHandler([ask, reply(calls=[call("refund", {"order": 7})], usage=USED), *said] * 3),
        tools=[refund, lawyer.as_tool("lawyer")],
        handoffs=["triage"],
    )
    look = reply("I will look.", calls=[call("find_order", {"order": 7})], usage=USED)
    return Agent(
        "triage",
        "You route.",
        model=ScriptedHandler([look, reply(calls=[call("transfer_to_refunds")], usage=USED)] * 3),
        tools=[find_order],
        handoffs=[
            handoff(refunds, input_filter=remove_all_tools),
            Agent("technician", model=ScriptedHandler(["Turn it off."])),
        ],
    )


class Page:
    """Does what the page's script does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=PATIENCE, verify=False)  # no CA files to read
        self.settings = settings_of(self.client.get("/").text)
        self.headers = {"x-routelock-token": self.settings["token"]}

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Post as the page does; underscores in header names become dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json={} if body is None else body, headers={**self.headers, **named})

    def begin(self, agent: str | None = None) -> str:
        """Begin a conversation and return its id."""
        return str(self.post("/talks", {"agent": agent}).json()["id"])

    def test_of(self, lines: list[dict[str, Any]]) -> httpx.Response:
        """Ask for a test of the run that lines tell of."""
        records = [each for each in lines if each["type"] not in ("delta", "end")]
        return self.post("/test", {"records": records})

    def say(self, conversation: str, text: str) -> list[dict[str, Any]]:
        """Say something and return the lines of the answer."""
        return lines_of(self.post(f"/talks/{conversation}/messages", {"text": text}))

    def decide(self, conversation: str, *words: dict[str, Any]) -> list[dict[str, Any]]:
        """Say a word on each call that waits, and return the lines of the answer."""
        return lines_of(self.post(f"/talks/{conversation}/messages", {"words": words}))

    def is_busy(self, conversation: str) -> bool:
        """Tell whether a run of a conversation goes on; asking changes nothing."""
        response = self.post(f"/talks/{conversation}/messages", {"words": [{"approve": False}] * 99})
        return "Stop it first" in response.json()["error"]


def settings_of(index: str) -> dict[str, Any]:
    """The settings that the page gives its script."""
    found = re.search(r"name=\"routelock-settings\" content=(?:'(.*?)'|\"(.*?)\")>", index)
    assert found is not None
    return dict(json.loads(html.unescape(found[1] or found[2])))


def lines_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The lines of an answer, parsed."""
    assert response.status_code == 200, response.text
    events = response.text.split("\n\n")
    return [json.loads(event[6:]) for event in events if event.startswith("data: ")]


@contextmanager
def dev_page(agents: Any, **options: Any) -> Iterator[Page]:
    """Serve the page while the block lasts."""
    with listening(create_dev_app(agents, **options)) as url:
        page = Page(url)
        with closing(page.client):
            yield page
