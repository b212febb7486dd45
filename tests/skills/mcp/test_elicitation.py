"""A server asks something in the middle of a call, and gets an answer, at once or later, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import IS_2, raw

from routelock import Agent, Runner, RunResult, RunState
from routelock.context import ToolContext
from routelock.errors import ToolError
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolQuestion
from routelock_skills.mcp import MCPClient
from routelock_skills.mcp.elicitation import OnElicitation

pytestmark = pytest.mark.anyio

newer = pytest.mark.skipif(not IS_2, reason="version 1 of the package has no calls of several rounds")

NEW = raw(None, "--new")
"""A server of 2026-07-28: it ends a call to ask, and the call is made again with the answers."""

OLD = raw()
"""A server of 2025-11-25: it asks while the call runs."""

NORTH: Mapping[str, Any] = {"branch": "north", "copies": 1}


def clerk(client: MCPClient, *replies: Any) -> Agent[Any]:
    return Agent("clerk", model=ScriptedHandler(replies or (call("lend"), "Done.")), tools=[*client.tools])


async def outcome(client: MCPClient, name: str) -> Any:
    made = {each.name: each for each in client.tools}[name]
    return await made.invoke(ToolContext(context=None, tool_name=name, tool_call_id="c1"), "{}")


def answer_of(result: RunResult[Any]) -> str:
    return str(next(each.get("content") for each in result.to_input_list() if each["role"] == "tool"))


# -- left to a person --


@newer
async def test_call_waits_with_the_question_of_the_server() -> None:
    async with MCPClient(NEW) as client:
        result = await Runner.run(clerk(client), "Go.")
    question = result.interruptions[0].question
    assert question is not None
    assert (question.message, [*question.fields], question.url) == (
        "Which branch?",
        ["branch", "copies"],
        None,
    )


@newer
async def test_page_to_visit_is_a_question() -> None:
    async with MCPClient(NEW) as client:
        agent = clerk(client)
        result = await Runner.run(agent, "Go.")
        answered = result.state().approve(result.interruptions[0], answer={"branch": "north"})
        result = await Runner.run(agent, answered)
    question = result.interruptions[0].question
    assert question is not None
    assert (question.message, question.url) == ("Read this.", "https://example.com/")


@newer
async def test_stored_questions_are_answered_over_another_connection() -> None:
    async with MCPClient(NEW) as client:
        stored = (await Runner.run(clerk(client), "Go.")).state().to_json()
    async with MCPClient(NEW) as client:
        agent = clerk(client, "Done.")
        state = RunState.from_json(stored, agents=[agent])
        state = state.approve(state.interruptions[0], answer={"branch": "north"})
        state = (await Runner.run(agent, state)).state()
        result = await Runner.run(agent, state.approve(state.interruptions[0]))
    replies = {"branch": {"action": "accept", "content": NORTH}, "terms": {"action": "accept"}}
    assert json.loads(answer_of(result)) == [replies, "page 1"]


@newer
async def test_server_hears_that_a_person_declined() -> None:
    async with MCPClient(NEW) as client:
        agent = clerk(client)
        result = await Runner.run(agent, "Go.")
        result = await Runner.run(agent, result.state().reject(result.interruptions[0]))
        result = await Runner.run(agent, result.state().approve(result.interruptions[0]))
    assert json.loads(answer_of(result))[0]["branch"] == {"action": "decline"}


@newer
async def test_model_gets_the_reason_of_a_person_who_declined() -> None:
    async with MCPClient(NEW) as client:
        agent = clerk(client)
        result = await Runner.run(agent, "Go.")
        for _ in range(2):
            result = await Runner.run(
                agent, result.state().reject(result.interruptions[0], message="Not now.")
            )
    assert answer_of(result).endswith("\nThe question was declined: Not now.")


# -- answered by a function --


async def by_default(question: ToolQuestion) -> bool:
    return question.url is not None


def with_fields(question: ToolQuestion) -> Mapping[str, Any] | bool:
    return {"branch": "north"} if question.fields else True


def only_pages(question: ToolQuestion) -> bool | None:
    return None if question.fields else True


def raising(question: ToolQuestion) -> bool:
    raise RuntimeError("no desk")


@newer
@pytest.mark.parametrize(
    ("function", "reply"),
    [(with_fields, {"action": "accept", "content": NORTH}), (by_default, {"action": "decline"})],
)
async def test_function_answers_at_once(function: OnElicitation, reply: Mapping[str, Any]) -> None:
    async with MCPClient(NEW, on_elicitation=function) as client:
        made = await outcome(client, "lend")
    assert json.loads(made.output) == [{"branch": reply, "terms": {"action": "accept"}}, "page 1"]


@newer
async def test_function_may_leave_a_question_to_a_person() -> None:
    async with MCPClient(NEW, on_elicitation=only_pages) as client:
        agent = clerk(client)
        result = await Runner.run(agent, "Go.")
        answered = result.state().approve(result.interruptions[0], answer={"branch": "north"})
        result = await Runner.run(agent, answered)
    assert json.loads(answer_of(result))[0]["terms"] == {"action": "accept"}


@newer
@pytest.mark.parametrize(
    ("function", "why"),
    [(raising, "RuntimeError: no desk"), (lambda _: True, "needs an answer with 'branch'")],
)
async def test_failed_function_is_a_failed_call(function: OnElicitation, why: str) -> None:
    async with MCPClient(NEW, on_elicitation=function) as client:
        made = await outcome(client, "lend")
    assert made.error == "raised"
    assert why in made.output


# -- servers that ask while a call runs --


async def test_older_server_is_answered_by_the_function() -> None:
    async with MCPClient(OLD, on_elicitation=with_fields) as client:
        made = await outcome(client, "lend")
    assert json.loads(made.output) == {"action": "accept", "content": NORTH}


@pytest.mark.parametrize("function", [only_pages, raising])
async def test_older_server_is_told_that_there_is_no_answer(function: OnElicitation) -> None:
    async with MCPClient(OLD, on_elicitation=function) as client:
        made = await outcome(client, "lend")
    assert ("no desk" if function is raising else "No person can be asked") in made.output


async def test_older_server_is_refused_without_a_function() -> None:
    async with MCPClient(OLD) as client:
        made = await outcome(client, "lend")
    assert json.loads(made.output)["code"] == -32600


# -- what is not answered --


@newer
async def test_question_outside_of_a_run_is_an_error() -> None:
    async with MCPClient(NEW) as client:
        with pytest.raises(ToolError, match="asks 'Which branch\\?', and no person can be asked"):
            await client.call("lend")


@newer
async def test_other_requests_are_refused() -> None:
    async with MCPClient(NEW) as client:
        made = await outcome(client, "sample")
    assert (
        made.output == "Tool 'sample' failed: the server asks for roots/list, which this client does not do"
    )


@newer
async def test_server_that_asks_for_ever_is_left() -> None:
    async with MCPClient(NEW, on_elicitation=with_fields) as client:
        made = await outcome(client, "nag")
    assert made.output == "Tool 'nag' failed: the server asked 10 times in one call, which is the limit"


# -- calls of several rounds without a question --


@newer
async def test_call_that_needs_time_is_made_again() -> None:
    async with MCPClient(NEW) as client:
        assert (await outcome(client, "later")).output == "None"


@newer
async def test_call_is_made_again_after_the_schema_has_changed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with MCPClient(raw(notes, "--new")) as client:
        made = await outcome(client, "moved")
    assert (made.error, notes.read_text().count("called moved")) == (None, 2)
