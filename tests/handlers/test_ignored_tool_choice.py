"""A forced tool choice that a server ignores is told on the result."""

from __future__ import annotations

from typing import Any

import pytest
from plain_and_streamed import both
from pydantic import BaseModel

from routelock import Agent, function_tool
from routelock.errors import InvalidRequest
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


@function_tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}"


@function_tool
def other() -> str:
    """Do something else."""
    return "done"


LOOK = call("look", {"page": 1})


def agent(*script: Any, choice: str, **more: Any) -> Agent[Any]:
    tools = [look, other]
    return Agent(
        "a", model=ScriptedHandler([*script]), tools=tools, model_settings={"tool_choice": choice}, **more
    )


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_words_instead_of_a_call_are_a_warning(choice: str) -> None:
    played = await both(lambda: agent("Just words.", choice=choice))
    assert played.result.final_output == "Just words."
    (warning,) = played.result.warnings
    assert warning.startswith("turn 1: ")
    assert repr(choice) in warning


async def test_another_tool_than_the_one_is_a_warning() -> None:
    played = await both(lambda: agent(call("other"), "Done.", choice="look"))
    (warning,) = played.result.warnings
    assert "'look'" in warning


@pytest.mark.parametrize(
    ("first", "choice"), [(LOOK, "required"), (LOOK, "look"), ([call("other"), LOOK], "look"), ("Hi", "auto")]
)
async def test_kept_tool_choice_gives_no_warning(first: Any, choice: str) -> None:
    played = await both(lambda: agent(first, "Done.", choice=choice))
    assert played.result.warnings == ()


async def test_tool_that_is_not_offered_is_a_warning() -> None:
    played = await both(lambda: agent(LOOK, "Done.", choice="lok"))
    (warning,) = played.result.warnings
    assert warning == (
        "turn 1: tool_choice='lok' is left out, because agent 'a' is not offered a tool of that name. It is "
        "offered: look, other"
    )


async def test_choice_without_any_tool_is_a_warning() -> None:
    played = await both(
        lambda: Agent("a", model=ScriptedHandler(["Hi."]), model_settings={"tool_choice": "look"})
    )
    (warning,) = played.result.warnings
    assert warning.endswith("It is offered no tool")


async def test_fallback_repeats_no_warning_of_a_choice() -> None:
    def make() -> Agent[Any]:
        first = ScriptedHandler([InvalidRequest("no")], name="first")
        return Agent(
            "a",
            handlers=[first, ScriptedHandler(["Hi."], name="second")],
            tools=[look],
            model_settings={"tool_choice": "lok"},
        )

    played = await both(make, fallback=True)
    assert len([each for each in played.result.warnings if "'lok'" in each]) == 1


async def test_nor_is_one_that_holds_no_more() -> None:
    """It is for an agent's first call only."""
    played = await both(lambda: agent(LOOK, "Done.", choice="required"))
    assert played.result.warnings == ()


class Answer(BaseModel):
    text: str


async def test_output_by_a_tool_does_not_warn_of_tool_choice() -> None:
    played = await both(lambda: agent('{"text": "Hi"}', choice="required", output_type=Answer))
    assert played.result.warnings == ()
