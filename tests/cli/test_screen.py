"""Events of a run are shown on one line, with control characters escaped."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from routelock import Agent, HandoffRequest, RunConfig, Runner, tool
from routelock.cli.screen import (
    EventPrinter,
    Note,
    PlainScreen,
    bounded,
    call_arguments,
    error_line,
    money,
    notes_of,
    usage_line,
    vendor_notes,
)
from routelock.errors import ConfigError
from routelock.handlers.events import AttemptFailed, MessageDone, TextDelta
from routelock.history import Citation, VendorCall
from routelock.run.events import AgentUpdated, HandlerFallback, NestedEvent, ToolCalled
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage


def called(name: str = "pay", arguments: str = '{"amount": 5}') -> ToolCalled:
    return ToolCalled(call_id="c", name=name, arguments=arguments, agent="A")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("No\nkey."), "No key."),
        (ValueError("odd"), "ValueError: odd (--verbose shows where)"),
        (FileNotFoundError(2, "No such file", "x.jsonl"), "x.jsonl could not be opened: No such file."),
    ],
)
def test_an_error_is_one_line(error: Exception, said: str) -> None:
    assert error_line(error) == said


def test_a_long_text_is_cut_and_says_so() -> None:
    assert bounded("a  b\nc", 10) == "a b c"
    assert bounded("x" * 50, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"amount": 5, "to": "é"}', 'amount=5, to="é"'),
        ("", ""),
        ("[1]", "[1]"),
        ("{half", "{half"),
    ],
)
def test_arguments_are_named_where_they_can_be(arguments: str, shown: str) -> None:
    assert call_arguments(arguments, 80) == shown


@pytest.mark.parametrize(
    ("dollars", "said"),
    [
        (None, "cost unknown"),
        (0.0, "$0.00"),
        (0.0012, "$0.0012"),
        (0.0000123, "$0.000012"),
        (2.5, "$2.50"),
    ],
)
def test_money_has_the_places_that_it_needs(dollars: float | None, said: str) -> None:
    assert money(dollars) == said


def test_usage_shows_cached_and_estimated_tokens() -> None:
    usage = Usage(requests=1, input_tokens=1812, output_tokens=45, cached_tokens=300, cost=0.002)
    assert usage_line(usage) == "1,812 in (300 cached), 45 out, $0.0020"


def test_events_of_sub_runs_have_their_path() -> None:
    event = NestedEvent(path=("boss", "clerk"), call_ids=("c",), event=called())
    assert notes_of(event, {}) == [Note("call", "boss > clerk: pay(amount=5)")]


def test_a_tool_of_the_vendor_has_a_line() -> None:
    page = Citation(url="https://a.example/rain", title="Rain")
    ran = [
        VendorCall(tool="web_search", input={"query": "rain"}, sources=[page, page]),
        VendorCall(tool="code_execution", input={"code": "1 + 1"}, output="2\n"),
        VendorCall(tool="web_fetch", input={"url": "https://a.example"}, error="not \x1b[2J found"),
    ]
    assert [*vendor_notes(reply("It rains.", vendor_calls=ran).message)] == [
        Note("call", 'web_search(query="rain"), run by the vendor: 2 sources'),
        Note("call", 'code_execution(code="1 + 1"), run by the vendor: 2'),
        Note("problem", 'web_fetch(url="https://a.example"), run by the vendor: not \\u001b[2J found'),
    ]


def test_a_cited_source_has_one_line() -> None:
    page = Citation(url="https://a.example/rain", title="Rain", start=0, end=2)
    file = Citation(file_id="file_7")
    message = reply("It rains.", citations=[page, replace(page, start=3, end=9), file]).message
    assert [note.text for note in vendor_notes(message)] == [
        "cites Rain, https://a.example/rain",
        "cites file_7",
    ]


def test_many_cited_sources_are_counted() -> None:
    pages = [Citation(url=f"https://a.example/{number}") for number in range(12)]
    notes = [*vendor_notes(reply("It rains.", citations=pages).message)]
    assert len(notes) == 11
    assert notes[-1] == Note("info", "cites 2 more")


def test_a_search_is_shown_behind_its_message() -> None:
    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out))
    for event in (AgentUpdated(agent="A"), TextDelta("Rain.")):
        printer.print(event)
    searched = VendorCall(tool="web_search", input={"query": "rain"})
    printer.print(MessageDone(message=reply("Rain.", vendor_calls=[searched]).message))
    assert out.getvalue() == 'A: Rain.\n  > web_search(query="rain"), run by the vendor\n'


def test_a_fallback_names_models_as_they_were_written() -> None:
    failed, other = "litellm_openai_small", "mine"
    event = HandlerFallback(agent="A", handler=failed, next_handler=other, error=ConfigError("down"))
    assert notes_of(event, {failed: "openai/small"}) == [Note("problem", "openai/small failed, mine answers")]


def test_a_reply_that_did_not_come_in_pieces_is_shown_whole() -> None:
    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out))
    printer.print(AgentUpdated(agent="A"))
    printer.print(MessageDone(message={"role": "assistant", "content": "Hi."}))
    assert out.getvalue() == "A: Hi.\n"


def test_a_reply_in_pieces_is_shown_once() -> None:
    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out))
    for event in (AgentUpdated(agent="A"), TextDelta("H"), TextDelta("i.")):
        printer.print(event)
    printer.print(MessageDone(message={"role": "assistant", "content": "Hi."}))
    assert out.getvalue() == "A: Hi.\n"


@pytest.mark.anyio
async def test_a_tools_handoff_to_an_unknown_name_is_shown_once() -> None:
    @tool
    def ask() -> HandoffRequest:
        """Ask."""
        return HandoffRequest("nope")

    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out))
    agent = Agent("A", model=ScriptedHandler([call("ask"), "Done."]), tools=[ask])
    async for event in Runner.run_streamed(agent, "Hi"):
        printer.print(event)
    assert out.getvalue().count("'nope' was not found") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("replies", [True, False])
async def test_an_output_of_the_app_is_shown_as_a_reply(replies: bool) -> None:
    """No event has its text, because no model wrote it."""
    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out), replies=replies)
    refusal = {"role": "assistant", "content": None, "refusal": "No."}
    config = RunConfig(on_refusal=lambda error: "Ask a person.")
    async for event in Runner.run_streamed(
        Agent("A", model=ScriptedHandler([refusal])), "Hi", run_config=config
    ):
        printer.print(event)
    assert out.getvalue() == ("A: No.\nA: Ask a person.\n" if replies else "")


def test_events_have_lines_of_their_own() -> None:
    out = io.StringIO()
    printer = EventPrinter(PlainScreen(out))
    printer.print(TextDelta("Let me"))
    printer.print(called("pay", '{"to": "\\u001b[2J"}'))
    printer.print(AttemptFailed(error=ConfigError("Slow down."), attempt=1, delay=0.5))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2] == "  ! Slow down. Trying again in 0.5 s."
    assert "\x1b" not in out.getvalue()
