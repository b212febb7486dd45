"""A tool asks a person in the middle of a call: the call waits, and is made again with the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from payments import PAY, WATCHED, Till, run
from scripted_agents import agent, answers_of

from routelock import Agent, GuardrailResult, Limits, RunConfig, RunHooks, Runner, Tool, tool
from routelock.context import ToolContext
from routelock.errors import ConfigError
from routelock.state.journal import Journal
from routelock.testing import call
from routelock.tools import ToolAnswer, ToolQuestion

pytestmark = pytest.mark.anyio

BRANCH = ToolQuestion(
    message="Which branch?",
    schema={
        "type": "object",
        "properties": {"branch": {"type": "string"}, "copies": {"type": "integer", "default": 1}},
        "required": ["branch", "copies"],
    },
    data={"shelf": 7},
)
SURE = ToolQuestion("Are you sure?")
LEND = call("lend", {"title": "Emma"}, id="l")


class Desk:
    """Lends books, after some questions."""

    def __init__(self, *questions: ToolQuestion) -> None:
        self.questions = questions
        self.answers: list[ToolAnswer | None] = []

    def tool(self, **options: Any) -> Tool:
        def lend(context: ToolContext, title: str) -> Any:
            """Lend a book."""
            self.answers.append(context.answer)
            number = 0 if context.answer is None else context.answer.number
            return self.questions[number] if number < len(self.questions) else f"lent {title}"

        return tool(**options)(lend)


def librarian(desk: Desk, *replies: Any, **options: Any) -> Agent[Any]:
    return agent("librarian", *(replies or (LEND, "Done.")), tools=[desk.tool(**options)])


@WATCHED
async def test_call_waits_with_its_question(watched: bool) -> None:
    result = await run(librarian(Desk(BRANCH)), "Hi", watched)
    (one,) = result.interruptions
    assert (result.stop_reason, one.name, one.question) == ("requires_action", "lend", BRANCH)
    assert answers_of(result) == []


@WATCHED
async def test_tool_is_called_again_with_the_answer(watched: bool) -> None:
    desk = Desk(BRANCH)
    librarians = librarian(desk)
    first = await run(librarians, "Hi", watched)
    answered = first.state().approve(first.interruptions[0], answer={"branch": "north"})
    second = await run(librarians, answered, watched)
    assert (second.final_output, answers_of(second)) == ("Done.", ["lent Emma"])
    assert desk.answers == [
        None,
        ToolAnswer(question=BRANCH, approved=True, content={"copies": 1, "branch": "north"}),
    ]


async def test_question_without_an_answer_waits_again() -> None:
    desk = Desk(SURE)
    librarians = librarian(desk)
    first = await run(librarians, "Hi")
    second = await run(librarians, first.state())
    assert second.interruptions == first.interruptions
    assert desk.answers == [None]


async def test_approval_is_enough_without_required_fields() -> None:
    desk = Desk(SURE)
    librarians = librarian(desk)
    first = await run(librarians, "Hi")
    second = await run(librarians, first.state().approve(first.interruptions[0]))
    assert answers_of(second) == ["lent Emma"]


async def test_tool_hears_that_a_person_declined() -> None:
    desk = Desk(SURE)
    librarians = librarian(desk)
    first = await run(librarians, "Hi")
    await run(librarians, first.state().reject(first.interruptions[0], message="Not now."))
    assert desk.answers[1] == ToolAnswer(question=SURE, approved=False, message="Not now.")


async def test_earlier_answer_does_not_answer_the_next_question() -> None:
    desk = Desk(SURE, SURE)
    librarians = librarian(desk)
    first = await run(librarians, "Hi")
    second = await run(librarians, first.state().approve(first.interruptions[0]))
    third = await run(librarians, second.state())
    assert [one.number for one in third.interruptions] == [2]
    assert len(desk.answers) == 2


async def test_second_question_is_answered() -> None:
    desk = Desk(BRANCH, SURE)
    librarians = librarian(desk)
    result = await run(librarians, "Hi")
    for content in ({"branch": "north"}, None):
        result = await run(librarians, result.state().approve(result.interruptions[0], answer=content))
    assert answers_of(result) == ["lent Emma"]
    assert [None if each is None else each.number for each in desk.answers] == [None, 1, 2]


async def test_approved_call_may_still_ask() -> None:
    desk = Desk(SURE)
    librarians = librarian(desk, needs_approval=True)
    result = await run(librarians, "Hi")
    asked = [result.interruptions[0].question]
    result = await run(librarians, result.state().approve(result.interruptions[0]))
    asked.append(result.interruptions[0].question)
    result = await run(librarians, result.state().approve(result.interruptions[0]))
    assert (asked, answers_of(result)) == ([None, SURE], ["lent Emma"])


@WATCHED
async def test_question_in_a_sub_run_is_answered(watched: bool) -> None:
    desk = Desk(BRANCH)
    inner = librarian(desk)
    boss = agent("boss", call("librarian", {"input": "Lend."}, id="c"), "All done.", tools=[inner.as_tool()])
    first = await run(boss, "Hi", watched)
    (one,) = first.interruptions
    second = await run(boss, first.state().approve(one, answer={"branch": "north"}), watched)
    assert (one.path, second.final_output) == (("c",), "All done.")
    assert desk.answers[1] is not None


async def test_other_calls_of_the_reply_are_carried_out() -> None:
    till, desk = Till(), Desk(SURE)
    clerk = agent("clerk", [LEND, PAY], "Done.", tools=[desk.tool(), till.tool(needs_approval=False)])
    result = await run(clerk, "Hi")
    assert (till.paid, len(result.interruptions)) == ([5], 1)


async def test_approval_of_all_calls_answers_no_question() -> None:
    desk = Desk(SURE)
    two = [LEND, call("lend", {"title": "Persuasion"}, id="m")]
    needed = lambda _, arguments: arguments["title"] == "Persuasion"  # noqa: E731 - one line is enough
    librarians = librarian(desk, two, "Done.", needs_approval=needed)
    first = await run(librarians, "Hi")
    plain = next(one for one in first.interruptions if one.question is None)
    state = first.state().approve(plain, always=True)
    assert [one.call_id for one in state.interruptions] == ["l"]


async def test_calls_with_a_question_count_once() -> None:
    desk = Desk(SURE)
    librarians = librarian(desk)
    once = RunConfig(limits=Limits(tool_calls=1))
    first = await run(librarians, "Hi", run_config=once)
    second = await run(librarians, first.state().approve(first.interruptions[0]), run_config=once)
    assert answers_of(second) == ["lent Emma"]


async def test_tool_ends_once_for_hooks() -> None:
    seen: list[str] = []

    class Watch(RunHooks):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: str) -> None:
            seen.append(result)

    librarians = librarian(Desk(SURE))
    first = await run(librarians, "Hi", hooks=Watch())
    await run(librarians, first.state().approve(first.interruptions[0]), hooks=Watch())
    assert seen == ["lent Emma"]


async def test_output_guardrail_does_not_see_a_question() -> None:
    seen: list[str] = []

    def watch(context: Any, tool: Any, output: str) -> GuardrailResult:
        seen.append(output)
        return GuardrailResult(tripwire_triggered=False)

    await run(librarian(Desk(SURE), output_guardrails=[watch]), "Hi")
    assert seen == []


async def test_stream_says_that_the_call_waits() -> None:
    async with Runner.run_streamed(librarian(Desk(SURE)), "Hi") as stream:
        kinds = [event.type async for event in stream]
    assert kinds[-2:] == ["approval_requested", "run_done"]
    assert "tool_output" not in kinds


# -- recorded runs --


async def test_answered_call_is_a_step_of_its_own(tmp_path: Path) -> None:
    desk = Desk(SURE)
    librarians = librarian(desk)
    async with Journal(tmp_path / "runs.db") as journal:
        first = await journal.run(librarians, "Hi", run_id="one")
        answered = first.state().approve(first.interruptions[0])
        second = await journal.run(librarians, answered, run_id="one")
    assert answers_of(second) == ["lent Emma"]


async def test_recorded_question_is_not_asked_again(tmp_path: Path) -> None:
    desk = Desk(SURE)
    async with Journal(tmp_path / "runs.db") as journal:
        first = await journal.run(librarian(desk), "Hi", run_id="one")
        second = await journal.run(librarian(desk), "Hi", run_id="one")
    assert (second.interruptions, len(desk.answers)) == (first.interruptions, 1)


# -- answers and questions that do not fit --


@pytest.mark.parametrize(
    ("question", "answer", "message"),
    [
        (BRANCH, None, "needs an answer with 'branch'"),
        (BRANCH, {"branch": "north", "floor": 2}, "'floor'; fields of the question: branch, copies"),
        (SURE, {"yes": True}, "'yes'; fields of the question: none"),
        (BRANCH, {"branch": object()}, "must be JSON data"),
    ],
)
async def test_answer_that_does_not_fit_is_an_error(
    question: ToolQuestion, answer: Any, message: str
) -> None:
    first = await run(librarian(Desk(question)), "Hi")
    with pytest.raises(ConfigError, match=message):
        first.state().approve(first.interruptions[0], answer=answer)


async def test_answer_without_a_question_is_an_error() -> None:
    first = await run(agent("clerk", PAY, tools=[Till().tool()]), "Hi")
    with pytest.raises(ConfigError, match="asks nothing"):
        first.state().approve(first.interruptions[0], answer={"yes": True})


async def test_answer_for_all_calls_is_an_error() -> None:
    first = await run(librarian(Desk(SURE)), "Hi")
    with pytest.raises(ConfigError, match="leave out always"):
        first.state().approve(first.interruptions[0], always=True)


async def test_question_must_be_json() -> None:
    desk = Desk(ToolQuestion(message="Sure?", data=object()))
    result = await run(librarian(desk), "Hi")
    assert answers_of(result)[0].startswith("Tool 'lend' ran, but its result cannot be shown: a ToolQuestion")


@pytest.mark.parametrize("question", [SURE, BRANCH])
async def test_approval_alone_may_not_be_an_answer(question: ToolQuestion) -> None:
    result = await run(librarian(Desk(question)), "Hi")
    assert result.interruptions[0].needs_answer is (question is BRANCH)
