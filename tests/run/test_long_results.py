"""A tool's result that is too long is cut, and the model is told (one result must not end a conversation)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manager_agents import ask
from manager_agents import both as both_managers
from plain_and_streamed import both
from scripted_agents import agent, answers_of

from routelock import Agent, tool
from routelock.context import ToolContext
from routelock.errors import ConfigError
from routelock.run.events import ToolOutput
from routelock.testing import call
from routelock.tools.decorators import function_tool
from routelock.tools.outcome import ToolResult, to_text
from routelock.tools.tool import Tool
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext(context=None, tool_name="it", tool_call_id="c1")
NOTICE = "\n[Cut off here: "


def giving(value: Any, **options: Any) -> Tool:
    """A tool that gives this."""

    async def read() -> Any:
        """Read."""
        return value

    return tool(read, **options)


@given(text=st.text(max_size=80), most=st.integers(1, 60))
def test_cut_text_says_how_much_is_missing(text: str, most: int) -> None:
    """What is left and what is missing is the whole, and never more than allowed is shown."""
    whole, shown = to_text(text), to_text(text, most)
    if len(whole) <= most:
        assert shown == whole
        return
    kept, _, notice = shown.rpartition(NOTICE)
    missing, _, rest = notice.partition(" of ")
    assert whole.startswith(kept)
    assert 0 < len(kept) <= most
    assert int(missing) == len(whole) - len(kept)
    assert int(rest.partition(" ")[0]) == len(whole)
    shown.encode()


@pytest.mark.parametrize("letter", ["e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "❤\ufe0f", "ക\u0d4d\u0d37"])
def test_nothing_is_cut_inside_a_letter(letter: str) -> None:
    """An accent, a family of emoji, a colour of skin or a conjunct stays with what it belongs to."""
    for most in range(20, 30):
        kept = to_text(letter * 40, most).partition(NOTICE)[0]
        rest = (letter * 40)[len(kept) :]
        assert unicodedata.category(rest[0])[0] != "M", most
        assert "\u200d" not in (kept[-1], rest[0]), most
        assert not "\U0001f3fb" <= rest[0] <= "\U0001f3ff", most


def test_text_of_combining_characters_is_cut() -> None:
    assert to_text("\u0301" * 100, 50).startswith("\u0301" * 50 + NOTICE)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"rows": [1, 2, 3]}, '{"rows":[1'),
        (b"0123456789abc", "0123456789"),
        (ToolResult("0123456789abc", usage=Usage(requests=1)), "0123456789"),
    ],
)
async def test_whatever_the_result_is_made_of(value: Any, shown: str) -> None:
    outcome = await giving(value, max_result=10).invoke(CONTEXT, "")
    assert outcome.output.startswith(shown + NOTICE)
    assert outcome.error is None
    assert outcome.value is value


async def test_the_text_of_an_error_function_is_cut() -> None:
    async def fail() -> None:
        """Fail."""
        raise ValueError

    made = tool(fail, on_error=lambda context, error: "x" * 100, max_result=10)
    assert (await made.invoke(CONTEXT, "")).output.startswith("x" * 10 + NOTICE)


async def test_a_result_of_any_usual_length_is_whole() -> None:
    assert len((await giving("x" * 100_000).invoke(CONTEXT, "")).output) == 100_000
    assert (await giving("x" * 100_001).invoke(CONTEXT, "")).output.endswith(
        "[Cut off here: 1 of 100001 characters are not shown. Ask for a smaller part if there is a way.]"
    )


async def test_there_may_be_no_limit() -> None:
    outcome = await giving("x" * 200_000, max_result=None).invoke(CONTEXT, "")
    assert len(outcome.output) == 200_000


def test_function_tool_has_it_too() -> None:
    async def read() -> str:
        """Read."""
        return ""

    assert function_tool(read, max_result=7).max_result == function_tool(max_result=7)(read).max_result == 7


@pytest.mark.parametrize("most", [0, -1])
def test_a_limit_that_shows_nothing_is_a_configuration_error(most: int) -> None:
    with pytest.raises(ConfigError, match="max_result must be a number of characters or None"):
        giving("", max_result=most)


async def test_transcript_event_and_request_have_the_same_text() -> None:
    def make() -> Agent[Any]:
        return agent("A", call("read"), "Done.", tools=[giving("0123456789abc", max_result=10)])

    played = await both(make)
    (text,) = answers_of(played.result)
    assert text.startswith("0123456789" + NOTICE)
    assert [event.output for event in played.events if isinstance(event, ToolOutput)] == [text]
    assert played.result.calls[1].messages[-1].get("content") == text


async def test_an_agents_answer_is_a_result_like_any_other() -> None:
    def make() -> Agent[Any]:
        return agent("manager", ask(), "Ok.", tools=[agent("helper", "x" * 100_001).as_tool()])

    played = await both_managers(make)
    assert answers_of(played.result)[0].startswith("x" * 100_000 + NOTICE)
