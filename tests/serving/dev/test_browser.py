"""The dev page in a real browser.

Needs Chromium: run ``scripts/services``, or name one in ``ROUTELOCK_CHROMIUM``.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from browser_tabs import NARROW, WIDE, contrasts, opened, say
from dev_page import PATIENCE, USED, dev_page, shop

from routelock import Agent, Retry, RunConfig, function_tool, handoff
from routelock.context import ToolContext
from routelock.errors import ConnectionFailed
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.handlers.port import Request
from routelock.history import Compact
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import ToolQuestion

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def told(browser: Any) -> Iterator[Any]:
    """The page after one run, for tests that only look."""
    with opened(browser, shop()) as tab:
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        assert tab.locator("#picture .node.active").get_attribute("data-node") == "triage"
        assert tab.locator("#picture .edge.used").count() == 0
        say(tab, "My money, please.")
        yield tab


def kinds(tab: Any) -> list[str]:
    return list(tab.locator("#rows .kind").all_inner_texts())


def test_a_conversation_shows_speakers_and_events(told: Any) -> None:
    said = told.locator(".message").all_inner_texts()
    assert [text.split("\n")[0] for text in said] == ["You", "triage", "refunds", "refunds"]
    assert "Order 7 is refunded." in said[-1]
    assert told.locator(".handover").all_inner_texts() == ["triage → refunds"]
    assert kinds(told) == [
        *("model", "tool", "model", "handoff", "filter", "model", "tool", "asked", "model"),
        *("model", "tool", "model", "end"),
    ]
    row = told.locator(".event.model").first.inner_text()
    assert "100 → 20 tokens, 50 cached" in row
    assert "$0.0020" in row
    assert "6 calls · 600 → 120 tokens · $0.0120" in told.locator("#totals").inner_text()
    assert "5 → 2 messages" in told.locator(".event.filter").inner_text()


def test_the_detail_of_a_tool_says_where_it_comes_from(told: Any) -> None:
    told.locator(".event.tool").nth(1).click()
    detail = told.get_by_role("dialog")
    assert "This tool comes from lawyer." in detail.inner_text()
    told.keyboard.press("Escape")


def test_the_graph_is_lit(told: Any) -> None:
    assert told.locator("#picture .node.default").get_attribute("data-node") == "triage"
    assert told.locator("#picture .node.active").get_attribute("data-node") == "refunds"
    used = told.locator("#picture .edge.used")
    ways = [(each.get_attribute("data-source"), each.get_attribute("data-target")) for each in used.all()]
    assert sorted(ways) == [("refunds", "lawyer"), ("triage", "refunds")]
    assert told.locator("#active").inner_text() == "refunds"


def test_the_detail_compares_shown_and_actual_messages(told: Any) -> None:
    told.locator(".event.model .row").nth(2).click()
    detail = told.get_by_role("dialog")
    assert "refunds, turn 3" in detail.get_by_role("heading").first.inner_text()
    assert "1 shown, 1 edited, 3 removed" in detail.locator(".tally").inner_text()
    happened = detail.get_by_label("Transcript").locator(".item")
    fates = happened.locator(".fate").all_inner_texts()
    assert fates == ["shown", "edited", "removed", "removed", "removed"]
    assert 'find_order({"order": 7})' in happened.nth(1).inner_text()
    shown = detail.get_by_label("Shown").locator(".item").all_inner_texts()
    expected = ("You pay back.", "My money", "I will look.")
    assert [text for text, found in zip(expected, shown, strict=True) if text not in found] == []
    assert "instead of #1" in shown[2]
    detail.get_by_role("tab", name="Request").click()
    assert '"content": "You pay back."' in detail.locator("pre").inner_text()
    assert "transfer_to_triage" in detail.locator("pre").inner_text()
    told.keyboard.press("Escape")
    assert not detail.is_visible()


def test_summaries_name_the_messages_they_replace(browser: Any) -> None:
    tech = Agent("tech", model=ScriptedHandler(["Turn it off."]))
    front = Agent(
        "front",
        model=ScriptedHandler([reply("Wait.", calls=[call("transfer_to_tech")])]),
        handoffs=[handoff(tech, nest_handoff_history=True)],
    )
    with opened(browser, front) as tab:
        say(tab, "It is broken.")
        assert kinds(tab) == ["model", "handoff", "summary", "model", "end"]
        tab.locator(".event.model .row").nth(1).click()
        fates = tab.get_by_label("Transcript").locator(".fate").all_inner_texts()
        assert fates == ["shown", "summarised", "summarised"]
        assert "summary of #1, #2" in tab.get_by_label("Shown").inner_text()


def test_hostile_text_is_inert_wherever_it_is_shown(browser: Any) -> None:
    @function_tool
    def look(what: str) -> str:
        """Look."""
        return HOSTILE

    model = ScriptedHandler([call("look", {"what": HOSTILE}), reply(HOSTILE, reasoning=HOSTILE)])
    agent = Agent(HOSTILE, HOSTILE, model=model, tools=[look], handoff_description=HOSTILE)
    with opened(browser, agent) as tab:
        say(tab, HOSTILE)
        for row in tab.locator("#rows .row").all():
            row.click()
            for view in tab.get_by_role("tab").all():
                view.click()
            assert tab.get_by_role("dialog").is_visible()
            tab.get_by_role("button", name="Close").click()
        tab.wait_for_timeout(100)
        assert tab.title() == "routelock dev"
        assert tab.locator("img, main script, dialog script").count() == 0
        assert HOSTILE in tab.locator(".message.agent .text").inner_text()


class _Slow:
    """Says a word, and the rest when it may."""

    name = "slow"

    def __init__(self) -> None:
        self.may = threading.Event()
        self.cancelled = threading.Event()

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        yield TextDelta("First ")
        try:
            await anyio.to_thread.run_sync(self.may.wait, abandon_on_cancel=True)
        except BaseException:
            self.cancelled.set()
            raise
        async for event in ScriptedHandler(["First second"]).stream(request):
            if not isinstance(event, TextDelta) or event.text != "First":
                yield event


def test_text_streams_and_stop_ends_it(browser: Any) -> None:
    model = _Slow()
    with opened(browser, Agent("a", model=model)) as tab:
        say(tab, "Hi", wait=False)
        tab.locator(".message.agent .text", has_text="First").wait_for()
        assert tab.locator(".event.model.running").count() == 1
        assert tab.locator("#text:focus").count() == 1, "a second Enter stops nothing"
        tab.keyboard.press("Tab")
        assert tab.locator("#stop:focus").count() == 1
        tab.keyboard.press("Enter")
        tab.locator(".note", has_text="Stopped.").wait_for()
        assert model.cancelled.wait(PATIENCE)
        assert tab.locator(".running").count() == 0
        model.may.set()
        say(tab, "Again")
        assert "First second" in tab.locator(".message.agent .text").last.inner_text()


def test_a_message_that_is_typed_during_a_run_stays_and_the_page_says_why(browser: Any) -> None:
    model = _Slow()
    with opened(browser, Agent("a", model=model)) as tab:
        say(tab, "Hi", wait=False)
        tab.locator(".message.agent .text", has_text="First").wait_for()
        tab.keyboard.type("Next")
        tab.keyboard.press("Enter")
        assert "Not sent: a run goes on." in tab.locator("#composer-status").inner_text()
        assert tab.get_by_label("Your message").input_value() == "Next"
        model.may.set()
        tab.locator("#send").wait_for()
        assert tab.locator("#composer-status").inner_text() == ""
        assert tab.get_by_label("Your message").input_value() == "Next"
        assert tab.locator(".message.user").count() == 1


def test_an_empty_page_offers_examples(browser: Any) -> None:
    with opened(browser, Agent("helper", model=ScriptedHandler(["Much."]))) as tab:
        assert "Write to helper below" in tab.locator("#start").inner_text()
        tab.get_by_role("button", name="What can you do for me?").click()
        tab.locator(".message.agent", has_text="Much.").wait_for()
        assert "What can you do for me?" in tab.locator(".message.user").inner_text()
        assert not tab.locator("#start").is_visible()
        tab.get_by_role("button", name="New conversation").click()
        tab.locator("#start").wait_for()


class _Small(ScriptedHandler):
    """Named after its model, as the handlers of vendors are."""

    model, provider = "openai/small", "openai"


def test_models_are_shown_as_they_were_written(browser: Any) -> None:
    with opened(browser, Agent("a", model=_Small(["Hi."], name="litellm_openai_small"))) as tab:
        say(tab, "Hi")
        assert tab.locator("#picture .handler").text_content() == "openai/small"
        assert "openai/small" in tab.locator(".event.model .what").inner_text()
        tab.locator(".event.model .row").click()
        assert tab.get_by_role("dialog").get_by_role("heading").first.inner_text().endswith(": openai/small")


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_names_in_a_wide_graph_stay_readable(browser: Any, size: Any) -> None:
    agent = Agent("agent number 9", model=ScriptedHandler([]))
    for number in range(8, 0, -1):
        agent = Agent(f"agent number {number}", model=ScriptedHandler([]), handoffs=[agent])
    with opened(browser, agent, size) as tab:
        if size == NARROW:
            tab.get_by_role("navigation").get_by_role("button", name="Graph").click()
        drawn, given = tab.locator("#picture svg").evaluate(
            "(svg) => [svg.getBoundingClientRect().width, svg.viewBox.baseVal.width]"
        )
        assert drawn >= 0.89 * given
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        left, right = tab.locator("#picture .node.active rect").first.evaluate(
            "(box) => [box.getBoundingClientRect().left, box.getBoundingClientRect().right]"
        )
        assert 0 <= left < right <= size["width"], "the active agent is in view"


def test_the_focus_stays_where_the_user_reads(browser: Any) -> None:
    model = _Slow()
    with opened(browser, Agent("a", model=model)) as tab:
        say(tab, "Hi", wait=False)
        tab.locator(".event.model .row").focus()
        model.may.set()
        tab.locator(".event.end").wait_for()
        tab.locator("#send").wait_for()
        assert tab.locator(".event.model .row:focus").count() == 1


def test_errors_are_shown_and_the_next_message_works(browser: Any) -> None:
    model = ScriptedHandler([ConnectionFailed("The line went dead."), "Back again."])
    with opened(browser, Agent("a", model=model), run_config=RunConfig(retry=Retry(attempts=1))) as tab:
        say(tab, "Hi")
        assert "The line went dead." in tab.locator("#log .error").inner_text()
        assert "failed" in (tab.locator(".event.model").get_attribute("class") or "").split()
        say(tab, "Again")
        assert "Back again." in tab.locator(".message.agent").inner_text()


def test_the_next_run_begins_with_the_default_and_says_so(browser: Any) -> None:
    with opened(browser, shop()) as tab:
        say(tab, "One")
        say(tab, "Two")
        assert "back to triage" in tab.locator(".event.reset").inner_text()
        tab.get_by_role("button", name="New conversation").click()
        tab.locator(".message").first.wait_for(state="detached")
        assert kinds(tab) == []


def test_a_call_that_waits_is_approved_or_declined(browser: Any) -> None:
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    both = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    with opened(browser, Agent("clerk", model=ScriptedHandler([both, "Done."]), tools=[pay])) as tab:
        say(tab, "Pay me")
        first, second = tab.get_by_role("group", name="clerk asks to call pay").all()
        assert '"amount": 1' in first.inner_text()
        first.get_by_role("button", name="Approve").click()
        second.get_by_role("textbox").fill("Too much.")
        second.get_by_role("button", name="Decline").click()
        tab.locator(".message.agent", has_text="Done.").wait_for()
        assert paid == [1]
        assert tab.locator("#approvals fieldset").count() == 0
        assert tab.locator(".message").count() == 2
        assert "goes on" in tab.locator("#rows .run").last.inner_text()


def test_a_question_of_a_tool_is_a_form(browser: Any) -> None:
    heard: list[Any] = []
    fields = {"branch": {"enum": ["north", "south"]}, "days": {"type": "integer"}, "note": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["branch", "days"]}

    @function_tool
    def lend(context: ToolContext[Any]) -> Any:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion("Where, and how long?", schema=schema)
        heard.append(context.answer.content)
        return "lent"

    with opened(browser, Agent("clerk", model=ScriptedHandler([call("lend"), "Done."]), tools=[lend])) as tab:
        say(tab, "Lend me Emma")
        form = tab.get_by_role("group", name="clerk asks to call lend")
        form.get_by_label("branch").select_option("north")
        form.get_by_role("button", name="Answer").click()
        assert tab.evaluate("document.activeElement.parentElement.textContent") == "days", "it is missing"
        form.get_by_label("days").fill("long")
        form.get_by_role("button", name="Answer").click()
        tab.get_by_text("The answer does not fit: days: 'long' is not of type 'integer'.").wait_for()
        form.get_by_label("branch").select_option("south")
        form.get_by_label("days").fill("3")
        form.get_by_role("button", name="Answer").click()
        tab.locator(".message.agent", has_text="Done.").wait_for()
    assert heard == [{"branch": "south", "days": 3}]


def test_a_message_while_a_call_waits_stays_and_the_page_says_why(browser: Any) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedHandler([call("pay", {"amount": 1}), "Done."])
    with opened(browser, Agent("clerk", model=model, tools=[pay])) as tab:
        say(tab, "Pay me")
        tab.get_by_label("Your message").fill("Never mind.")
        tab.keyboard.press("Enter")
        assert "Not sent: calls wait for you." in tab.locator("#composer-status").inner_text()
        tab.get_by_role("heading", name="A call waits for you").and_(tab.locator(":focus")).wait_for()
        tab.get_by_role("button", name="Approve").click()
        tab.locator(".message.agent", has_text="Done.").wait_for()
        assert tab.locator("#composer-status").inner_text() == ""
        assert tab.get_by_label("Your message").input_value() == "Never mind."


def test_an_empty_page_names_the_session(browser: Any) -> None:
    session = Session("user-7", InMemorySessions())
    with opened(browser, Agent("a", model=ScriptedHandler([])), session=session) as tab:
        tab.get_by_text("The session 'user-7' is new.").wait_for()


@pytest.mark.parametrize("key", ["Enter", " ", "Escape"])
def test_no_key_decides_before_a_button_is_chosen(browser: Any, key: str) -> None:
    """The user who presses Enter twice has not read what is asked."""
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    calls = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    with opened(browser, Agent("clerk", model=ScriptedHandler([calls, "Done."]), tools=[pay])) as tab:
        say(tab, "Pay me")
        tab.get_by_role("heading", name="2 calls wait for you").and_(tab.locator(":focus")).wait_for()
        for _ in range(3):
            tab.keyboard.press(key)
        assert tab.locator("#approvals fieldset:not([disabled])").count() == 2
        tab.keyboard.press("Tab")
        assert tab.locator("#approvals fieldset:first-of-type button:focus").inner_text() == "Approve"
        tab.keyboard.press("Enter")
        assert tab.locator("#approvals fieldset:not([disabled])").count() == 1
        tab.keyboard.press("Enter")
        assert tab.locator("#approvals fieldset:not([disabled])").count() == 1, "each call asks for a word"
        assert paid == []


def test_a_run_is_copied_as_a_test(told: Any) -> None:
    told.get_by_role("button", name="Copy as test").click()
    told.get_by_text("Copied.").wait_for()
    copied = told.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == told.locator("#detail-body pre").inner_text().strip()
    assert "def test_run() -> None:" in copied
    told.keyboard.press("Escape")


def _recorded(path: Path) -> Path:
    with dev_page(shop(), run_config=RunConfig(trace=path)) as page:
        page.say(page.begin(), "My money, please.")
    return path


def test_a_trace_is_loaded_from_a_file(browser: Any, tmp_path: Path) -> None:
    trace = _recorded(tmp_path / "runs.jsonl")
    with trace.open("a") as file:
        file.write("this is no record\n")
    with opened(browser, Agent("other", model=ScriptedHandler([]))) as tab:
        tab.locator("#trace-file").set_input_files(trace)
        tab.get_by_text("Trace runs.jsonl").wait_for()
        assert "left out: 1." in tab.get_by_role("alert").inner_text()
        said = tab.locator(".message").all_inner_texts()
        assert [text.split("\n")[0] for text in said] == ["You", "triage", "refunds", "refunds"]
        assert tab.locator("#picture .node.active").get_attribute("data-node") == "refunds"
        assert tab.locator("#picture .edge.used").count() == 2
        assert not tab.get_by_label("Your message").is_visible()
        tab.locator(".event.model .row").nth(2).click()
        assert "3 removed" in tab.get_by_role("dialog").locator(".tally").inner_text()
        tab.get_by_role("button", name="Close").click()
        tab.get_by_role("button", name="New conversation").click()
        tab.get_by_label("Your message").wait_for()
        assert tab.locator("#picture .node").get_attribute("data-node") == "other"


def test_a_trace_is_loaded_by_name(browser: Any, tmp_path: Path) -> None:
    trace = _recorded(tmp_path / "runs.jsonl")
    agent = Agent("other", model=ScriptedHandler([]))
    with opened(browser, agent, path="/?trace=runs.jsonl", traces=[trace]) as tab:
        tab.locator(".event.end").wait_for(state="attached")
        assert tab.locator(".event.end").count() == 1


def test_what_was_compacted_is_shown(browser: Any) -> None:
    @function_tool
    def look(page: int) -> str:
        """Look."""
        return f"page {page}"

    model = ScriptedHandler([*[call("look", {"page": page}) for page in range(4)], "Done."])
    compact = Compact(at_messages=6, keep_turns=1, rest=ScriptedHandler(["Four pages."]))
    with opened(browser, Agent("A", model=model, tools=[look], compact=compact)) as tab:
        say(tab, "Read.")
        assert "4 messages became 1" in tab.locator(".event.summary").first.inner_text()
        assert "writes a summary" in tab.locator(".event.asked").first.inner_text()


def test_a_run_that_was_killed_has_no_end(browser: Any, tmp_path: Path) -> None:
    trace = _recorded(tmp_path / "runs.jsonl")
    lines = trace.read_text("utf-8").splitlines(keepends=True)
    begun = next(place for place, line in enumerate(lines) if '"model_start"' in line)
    trace.write_text("".join(lines[: begun + 1]), "utf-8")
    agent = Agent("other", model=ScriptedHandler([]))
    with opened(browser, agent, path="/?trace=runs.jsonl", traces=[trace]) as tab:
        assert "no end in this trace" in tab.locator(".event.model").inner_text()
        assert tab.locator(".running").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_used_on_a_phone_and_in_the_dark(browser: Any, scheme: str) -> None:
    with opened(browser, shop(reply("x" * 300, usage=USED)), NARROW) as tab:
        tab.emulate_media(color_scheme=scheme)
        say(tab, "y" * 300)
        for view in ("Graph", "Timeline", "Conversation"):
            tab.get_by_role("navigation").get_by_role("button", name=view).click()
            assert tab.evaluate("document.documentElement.scrollWidth") <= 390
            assert tab.get_by_role("navigation").locator("[aria-pressed=true]").inner_text() == view
            assert tab.locator("main > section:visible").count() == 1
        tab.get_by_role("navigation").get_by_role("button", name="Timeline").click()
        tab.locator(".event.model .row").nth(2).click()
        assert tab.evaluate("document.querySelector('dialog').scrollWidth") <= 390
        assert contrasts(tab) == []


def test_texts_have_contrast(told: Any) -> None:
    assert contrasts(told) == []


def test_everything_can_be_reached_with_the_keyboard(told: Any) -> None:
    told.locator("#new").focus()
    reached: list[str] = []
    for _ in range(24):
        told.keyboard.press("Tab")
        reached.append(told.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = ["trace-file", "log", "text", "send", "row", "copy"]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted
    told.locator(".event.model .row").first.focus()
    told.keyboard.press("Enter")
    assert told.locator("#detail-close:focus").count() == 1
    told.keyboard.press("Tab")
    told.keyboard.press("ArrowRight")
    assert told.get_by_role("tab", selected=True).inner_text() == "Request"
    told.keyboard.press("Escape")
    assert told.locator(".event.model .row:focus").count() == 1, "back where it was"


def test_every_control_has_a_name(told: Any) -> None:
    nameless = told.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select")]
          .filter((each) => !each.textContent.trim() && !each.labels?.length && !each.ariaLabel)
          .map((each) => each.id)"""
    )
    assert nameless == []


def test_a_server_that_is_gone_is_said(browser: Any) -> None:
    with dev_page(Agent("a", model=ScriptedHandler([]))) as page:
        tab = browser.new_page()
        tab.goto(page.url)
        tab.locator("#picture svg").wait_for()
    tab.get_by_label("Your message").fill("Hi")
    tab.get_by_role("button", name="Send").click()
    tab.get_by_text("The server does not answer.").wait_for()
    tab.close()


def test_another_site_gets_nothing(browser: Any) -> None:
    """A page elsewhere can neither read the dev page nor begin a conversation."""
    with dev_page(Agent("a", model=ScriptedHandler([]))) as mine, dev_page(shop()) as other:
        tab = browser.new_page()
        tab.goto(other.url + "/static/icon.svg")
        tried = tab.evaluate(
            """async (url) => Promise.all(["GET", "POST"].map((method) =>
              fetch(url + "/talks", { method, mode: "cors" }).then((r) => r.status, () => "refused")))""",
            mine.url,
        )
        tab.close()
    assert tried == ["refused", "refused"]
