"""The dev page in a browser, for tests that look at it as a person does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dev_page import dev_page

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@contextmanager
def opened(browser: Any, agents: Any, size: Any = WIDE, path: str = "", **options: Any) -> Iterator[Any]:
    """Open the page of some agents; whatever its console complains of fails the test."""
    with dev_page(agents, **options) as page:
        context = browser.new_context(viewport=size)
        tab = context.new_page()
        complaints: list[str] = []
        asked: list[str] = []
        tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(page.url + path)
        tab.locator("#picture svg").wait_for(state="attached")  # there is a conversation now, or a trace
        yield tab
        context.close()
    elsewhere = [url for url in asked if not url.startswith((page.url, "blob:", "data:"))]
    assert (complaints, elsewhere) == ([], [])


def say(tab: Any, text: str, *, wait: bool = True) -> None:
    """Type a message, send it with the keyboard, and wait for the end of the run."""
    ended = tab.locator(".event.end").count()
    tab.get_by_label("Your message").fill(text)
    tab.get_by_label("Your message").press("Enter")
    if wait:
        tab.locator(".event.end").nth(ended).wait_for(state="attached")
        tab.locator("#send").wait_for(state="attached")


_CONTRASTS = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const ratio = (node, part) => {
    const both = [light(rgb(getComputedStyle(node, part).color)), light(behind(node))];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  };
  const says = (node) => [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
  const seen = [...document.querySelectorAll("body *:not(svg *)")]
    .filter((node) => node.checkVisibility() && !node.disabled);
  const texts = seen.filter(says).map((node) => [ratio(node), node.className, node.textContent]);
  const hints = seen.filter((node) => node.placeholder)
    .map((node) => [ratio(node, "::placeholder"), node.id, node.placeholder]);
  return [...texts, ...hints].filter(([found]) => found < 4.5)
    .map(([found, name, text]) => `${found.toFixed(1)} ${name} ${text.slice(0, 30)}`);
}"""


def contrasts(tab: Any) -> list[str]:
    """Texts with less contrast than WCAG asks for (4.5), as they are painted."""
    return list(tab.evaluate(_CONTRASTS))
