"""Take the pictures of docs/images that are pages, in Chromium; a script plays the model.

usage: PYTHONPATH=tests/support python scripts/take_pictures.py

Needs Chromium, which scripts/services installs, and for the notebook nbconvert and ipykernel.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import nbformat
from browser_tabs import opened, say
from browsers import launched
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor

from routelock import Agent, Request, function_tool, handoff
from routelock.handlers.events import HandlerEvent
from routelock.history.filters import remove_all_tools
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

DOCS = Path(__file__).parent.parent / "docs"
USED = Usage(requests=1, input_tokens=812, output_tokens=64, cached_tokens=512, cost=0.00031)


class Unhurried(ScriptedHandler):
    """Takes as long as a model does, and has the name of one."""

    model, provider = "openai/gpt-4o-mini", "openai"

    def __init__(self, *replies: Any) -> None:
        super().__init__(replies, name="litellm_openai_gpt-4o-mini")

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Yield the next reply after a moment."""
        await anyio.sleep(0.3)
        async for event in super().stream(request):
            yield event


def says(text: str = "", tool: str = "", **arguments: object) -> Any:
    """Return what a model says and calls."""
    return reply(text, calls=[call(tool, arguments)] if tool else [], usage=USED)


@function_tool
def find_order(order: int) -> dict[str, object]:
    """Find an order."""
    return {"order": order, "item": "desk lamp", "paid": 49.0}


@function_tool
def refund(order: int) -> str:
    """Pay an order back."""
    return f"refunded order {order}"


def desk() -> Agent[Any]:
    """The agents of the dev page."""
    lawyer = Agent("lawyer", "You know the law.", model=Unhurried(says("Yes: it broke within 14 days.")))
    script = [
        says("Let me see what the law says.", "lawyer", input="Is a refund owed?"),
        says("", "refund", order=7),
        says("Done: order 7 is refunded. The 49.00 will be on your card within three days."),
    ]
    refunds = Agent(
        "refunds",
        "You pay back.",
        model=Unhurried(*script),
        tools=[refund, lawyer.as_tool("lawyer")],
        handoffs=["triage"],
    )
    technician = Agent("technician", "You repair.", model=Unhurried(), handoffs=["triage"])
    return Agent(
        "triage",
        "You route.",
        model=Unhurried(says("I will look.", "find_order", order=7), says("", "transfer_to_refunds")),
        tools=[find_order],
        handoffs=[handoff(refunds, input_filter=remove_all_tools), technician],
    )


def notebook() -> str:
    """Return a notebook with the first cell of docs/notebooks.md, as Jupyter shows it after it has run."""
    found = re.search(r"```python\n(.*?)```", (DOCS / "notebooks.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(found[1].strip())])
    ExecutePreprocessor(kernel_name="python3").preprocess(book)
    return str(HTMLExporter().from_notebook_node(book)[0])


def main() -> None:
    """Take the pictures."""
    book = notebook()
    with launched() as browser:
        with opened(browser, desk(), {"width": 1280, "height": 780}) as tab:
            say(tab, "The lamp of order 7 arrived broken. I would like my money back.")
            tab.get_by_label("Your message").fill("Thank you!")
            take(tab, "dev-page")
            tab.locator(".event.model .row").nth(2).click()
            tab.set_viewport_size({"width": 1280, "height": 640})
            take(tab, "dev-page-detail")
        tab = browser.new_page(viewport={"width": 1060, "height": 100}, offline=True)
        tab.set_content(book)
        tab.set_viewport_size({"width": 1060, "height": tab.evaluate("document.body.scrollHeight")})
        take(tab, "notebook")


def take(tab: Any, name: str) -> None:
    """Write what a tab shows, a third of the size that a PNG would have."""
    chromium = tab.context.new_cdp_session(tab)
    taken = chromium.send("Page.captureScreenshot", {"format": "webp", "quality": 85})
    path = DOCS / "images" / f"{name}.webp"
    path.write_bytes(base64.b64decode(taken["data"]))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
