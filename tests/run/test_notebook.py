"""What a notebook shows of results and agents."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from routelock import Agent, MaxTurnsExceeded, Runner, RunResult, function_tool
from routelock.agents.svg import graph_svg
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

MARKUP = "</td></table><script>alert(1)</script><img src=x onerror=alert(1)> &"
HOSTILE = f"{MARKUP} \u202e\x1b[2J"
SVG = {"svg", "g", "title", "path", "rect", "text"}


class Page(HTMLParser):
    """The elements and the text of a piece of HTML, which has to be well-formed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [tag] if tag != "br" else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)


def shown(result: RunResult[Any]) -> Page:
    return Page(result._repr_html_())


@function_tool
def echo(text: str) -> str:
    return text


def team(*replies: Any) -> Agent[Any]:
    model = ScriptedHandler(list(replies))
    return Agent("front", model=model, handoffs=[Agent("back", model=model, tools=[echo])])


def test_a_refusal_is_shown() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert "I will not." in shown(Runner.run_sync(Agent("A", model=ScriptedHandler([refused])), "Hi")).text


def test_a_cost_of_less_than_a_cent_is_shown() -> None:
    model = ScriptedHandler([reply("Hi.", usage=Usage(1, 30, 10, cost=0.0000102))])
    assert (
        "1 turn, 30 tokens in, 10 out, $0.000010"
        in shown(Runner.run_sync(Agent("A", model=model), "Hi")).text
    )


def test_messages_and_calls_are_shown_by_agent() -> None:
    result = Runner.run_sync(team(call("transfer_to_back"), call("echo", {"text": "hm"}), "Done."), "Go!")
    page = shown(result)
    for text in (
        "done",
        ": back, 3 turns, 30 tokens in, 15 out, cost unknown",
        'echo({"text": "hm"})',
        "Done.",
    ):
        assert text in page.words
    assert [page.words.index(text) for text in ("Go!", "transfer_to_back({})", "hm", "Done.")] == sorted(
        page.words.index(text) for text in ("Go!", "transfer_to_back({})", "hm", "Done.")
    )


def test_graph_marks_the_active_agent_and_used_handoffs() -> None:
    agent = team(call("transfer_to_back"), "Done.")
    html = Runner.run_sync(agent, "Go!")._repr_html_()
    assert graph_svg(agent, active="back", used=[("front", "back")]) in html


def test_one_agent_alone_is_not_drawn() -> None:
    assert "svg" not in shown(Runner.run_sync(Agent("a", model=ScriptedHandler(["Hi."])), "Hi")).names


def test_hostile_text_is_text() -> None:
    """Texts of users, models and tools, and names of agents."""
    model = ScriptedHandler([call("echo", {"text": HOSTILE}), call(HOSTILE), HOSTILE])
    agent = Agent(MARKUP, model=model, tools=[echo], handoffs=[Agent("b", model=model)])
    result = Runner.run_sync(agent, HOSTILE)
    page = shown(result)
    assert page.names <= {"div", "p", "b", "table", "tr", "th", "td", "small", "br"} | SVG
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href")}
    assert page.text.count(MARKUP) > 4
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text


def test_a_history_is_not_shown_again() -> None:
    agent = Agent("a", model=ScriptedHandler(["One.", "Two."]))
    first = Runner.run_sync(agent, "one?")
    second = Runner.run_sync(agent, [*first.to_input_list(), {"role": "user", "content": "two?"}])
    page = shown(second)
    assert "two?" in page.words
    assert "One." not in page.words


def test_long_texts_and_long_runs_are_cut() -> None:
    replies = [call("echo", {"text": f"{number} " + "x" * 9000}) for number in range(120)]
    model = ScriptedHandler([*replies, "Done."])
    result = Runner.run_sync(Agent("a", model=model, tools=[echo]), "Go!", max_turns=None)
    page = shown(result)
    assert len(page.text) < 500_000
    assert "(42 items before)" in page.words
    assert "Done." in page.words


def test_problems_and_partial_results_are_shown() -> None:
    with pytest.raises(MaxTurnsExceeded) as caught:
        Runner.run_sync(Agent("a", model=ScriptedHandler([call("nothing")])), "Go!", max_turns=1)
    assert caught.value.result is not None
    page = shown(caught.value.result)
    assert "error" in page.words
    assert any("There is no tool named 'nothing'" in text for text in page.words[-1:])


def test_calls_that_wait_for_approval_are_shown() -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return "paid"

    agent = Agent("clerk", model=ScriptedHandler([call("pay", {"amount": 40})]), tools=[pay])
    assert 'for approval of pay({"amount": 40}) by clerk' in shown(Runner.run_sync(agent, "Pay!")).words


def test_images_are_named_and_not_shown() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://elsewhere.invalid/x.png"}}
    question: Any = {"role": "user", "content": [{"type": "text", "text": "This?"}, image]}
    page = shown(Runner.run_sync(Agent("a", model=ScriptedHandler(["A cat."])), [question]))
    assert "This?\n(image_url)" in page.words
    assert "img" not in page.names


def test_an_agent_is_shown_as_its_graph() -> None:
    agent = team()
    assert agent._repr_svg_() == graph_svg(agent)
