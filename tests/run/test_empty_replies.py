"""A reply with nothing in it: told as an event, never filled with words, asked about once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import both
from pydantic import BaseModel
from scripted_agents import HI, agent, answers_of, look_up, requests

from routelock import Agent, Message, RunConfig, Runner, function_handler, handoff
from routelock.errors import LimitExceeded, LoopDetected, MaxTurnsExceeded
from routelock.handlers.replies import is_empty
from routelock.history.messages import calls_of, text_of
from routelock.history.validity import problems
from routelock.run.events import EmptyReply
from routelock.testing import ScriptedHandler, assert_valid, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

LOOK, TO_B, TO_A = call("look_up", {"order": 1}), call("transfer_to_b"), call("transfer_to_a")
NUDGE = "Your reply was empty. Answer the user, or call a tool."


def looking(*replies: Any, **options: Any) -> Agent[Any]:
    """An agent that looks something up first."""
    return agent("A", LOOK, *replies, tools=[look_up], **options)


# -- what is empty --


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": ""},
        {"content": " \n\t"},
        {"content": []},
        {"content": [{"type": "text", "text": ""}]},
        {"content": [{"type": "thinking", "thinking": "Hm."}]},
        {"content": None, "reasoning_content": "Hm."},
        {"content": None, "tool_calls": []},
        {"content": "", "refusal": None},
        {"content": None, "_routelock": "private"},
    ],
)
def test_nothing_to_show_is_empty(message: Any) -> None:
    assert is_empty(message | {"role": "assistant"})


@pytest.mark.parametrize(
    "message",
    [
        {"content": "."},
        {"content": [{"type": "text", "text": "Hi"}]},
        {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"content": None, "refusal": "No."},
        {"content": None, "tool_calls": [LOOK]},
        {"content": "", "audio": {"id": "a"}},
    ],
)
def test_anything_to_show_is_not(message: Any) -> None:
    assert not is_empty(message | {"role": "assistant"})


# -- with nothing before it --


async def test_a_first_reply_that_is_empty_is_the_answer() -> None:
    """No invented text."""
    played = await both(lambda: agent("A", ""))
    assert (played.result.final_output, played.result.stop_reason) == ("", "done")
    assert played.result.warnings == ("turn 1: the reply is empty",)
    assert played.result.errors == ()


async def test_blanks_are_told_and_kept() -> None:
    played = await both(lambda: agent("A", " \n"))
    assert played.result.final_output == " \n"
    assert played.kinds == ["agent_updated", "message_done", "empty_reply", "run_done"]


async def test_an_earlier_run_is_not_before_it() -> None:
    earlier = await Runner.run(looking("On its way."), "Where is it?")
    result = await Runner.run(agent("A", ""), [*earlier.to_input_list(), HI])
    assert result.final_output == ""


async def test_answers_that_the_caller_gave_are_before_it() -> None:
    """The caller's own tools end one run, and the next goes on with their answers."""
    input: list[Message] = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [LOOK]},
        {"role": "tool", "tool_call_id": LOOK["id"], "content": "1"},
    ]
    result = await Runner.run(agent("A", "", "One."), input)
    assert result.final_output == "One."


# -- after a tool or a transfer --


async def test_after_a_tools_answer_it_is_asked_about() -> None:
    played = await both(lambda: looking("", "It is on its way."))
    assert played.result.final_output == "It is on its way."
    assert [item.kind for item in played.result.new_items] == ["model", "tool", "model", "nudge", "model"]
    assert played.kinds.count("empty_reply") == 1


async def test_nudge_replaces_the_empty_reply_in_the_request() -> None:
    one = looking("", "It is on its way.")
    await Runner.run(one, "Hi")
    shown = requests(one)[2].messages
    assert [message["role"] for message in shown] == ["system", "user", "assistant", "tool", "user"]
    assert text_of(shown[-1]) == NUDGE
    assert_valid(list(shown))


async def test_a_call_instead_of_words_is_fine() -> None:
    played = await both(lambda: looking("", call("look_up", {"order": 2}), "Both are on their way."))
    assert played.result.final_output == "Both are on their way."


async def test_second_empty_reply_in_a_row_ends_the_run() -> None:
    played = await both(lambda: looking("", "", "Never said."))
    assert isinstance(played.error, LoopDetected)
    assert "'A' gave an empty reply in turn 3, after it was told" in str(played.error)
    assert played.result.final_output is None
    assert "order 1 is on its way" in played.answers
    assert problems([*played.result.to_input_list(), HI]) == []
    assert played.kinds.count("empty_reply") == 2


async def test_separate_empty_replies_are_each_nudged() -> None:
    other = call("look_up", {"order": 2})
    played = await both(lambda: looking("", other, "", "Both are on their way."))
    assert played.result.final_output == "Both are on their way."
    assert [problem.kind for problem in played.result.errors] == ["loop", "loop"]


async def test_after_a_transfer_the_target_is_asked() -> None:
    """Models that were handed over to say nothing."""
    played = await both(lambda: agent("A", TO_B, handoffs=[agent("B", "", "B answers.")]))
    assert (played.result.final_output, played.result.last_agent.name) == ("B answers.", "B")
    assert [event.agent for event in played.events if isinstance(event, EmptyReply)] == ["B"]


async def test_after_bouncing_back_the_first_agent_is_asked() -> None:
    """Bounce-backs give empty completions."""
    played = await both(
        lambda: agent("A", TO_B, "", "A answers.", handoffs=[agent("B", TO_A, handoffs=["A"])])
    )
    assert (played.result.final_output, played.result.last_agent.name) == ("A answers.", "A")


async def test_empty_replies_are_counted_per_agent() -> None:
    played = await both(
        lambda: agent("A", LOOK, "", TO_B, handoffs=[agent("B", "", "B answers.")], tools=[look_up])
    )
    assert played.result.final_output == "B answers."


async def test_empty_answer_to_a_caller_is_nudged_first() -> None:
    asked = handoff(agent("B", "", "B."), return_to_caller=True)
    result = await Runner.run(agent("A", TO_B, "A answers.", handoffs=[asked]), "Hi")
    assert (result.final_output, answers_of(result)) == ("A answers.", ["B."])


async def test_a_handler_that_says_nothing_is_asked_as_well() -> None:
    said = iter(["", "Now I do."])

    async def speak(request: Any) -> str:
        return next(said)

    first = agent("A", TO_B, handoffs=[Agent("B", model=function_handler(speak))])
    assert (await Runner.run(first, "Hi")).final_output == "Now I do."


# -- what else holds --


async def test_every_empty_reply_is_counted() -> None:
    used = Usage(requests=1, input_tokens=3, output_tokens=1)
    script = [reply(calls=[LOOK], usage=used), reply("", usage=used), reply("Done.", usage=used)]
    played = await both(lambda: agent("A", *script, tools=[look_up]))
    assert (played.result.usage.requests, played.result.usage.input_tokens) == (3, 9)


async def test_without_the_guard_it_is_the_answer() -> None:
    played = await both(lambda: looking("", "Never said."), detect_loops=False)
    assert (played.result.final_output, played.result.stop_reason) == ("", "done")
    assert played.result.warnings == ("turn 2: the reply is empty",)
    assert played.kinds.count("empty_reply") == 1


async def test_the_end_can_be_a_result() -> None:
    played = await both(lambda: looking("", ""), on_limit="return")
    assert (played.result.stop_reason, played.result.final_output) == ("limit", None)
    assert isinstance(played.result.errors[-1].error, LoopDetected)


async def test_a_function_can_make_the_final_output() -> None:
    def best(error: LimitExceeded) -> str:
        return text_of(error.result.messages[2])

    played = await both(lambda: looking("", ""), on_limit=best)
    assert played.result.final_output == "order 1 is on its way"


async def test_no_turn_is_left_to_ask_in() -> None:
    """A failure must not look like an answer."""
    played = await both(lambda: looking("", "Never said."), max_turns=2)
    assert isinstance(played.error, MaxTurnsExceeded)


async def test_empty_reply_with_an_output_type_is_invalid_output() -> None:
    class Order(BaseModel):
        number: int

    played = await both(lambda: looking("", '{"number": 1}', output_type=Order))
    assert played.result.final_output == Order(number=1)
    assert [problem.kind for problem in played.result.errors] == ["output"]
    assert played.kinds.count("empty_reply") == 1


async def test_a_refusal_is_an_answer() -> None:
    refusal: Any = {"role": "assistant", "content": None, "refusal": "No."}
    played = await both(lambda: looking(refusal))
    assert (played.result.final_output, played.result.errors) == ("No.", ())


async def test_the_next_run_knows_the_question_for_a_nudge() -> None:
    """It is no word of the user's: a summary or a filter must not take it for one."""
    first = await Runner.run(looking("", "It is on its way."), "Hi")
    second = await Runner.run(agent("A", "Bye."), [*first.to_input_list(), HI])
    assert [item.kind for item in second.items].count("nudge") == 1


@given(script=st.lists(st.sampled_from(["empty", "look", "say"]), max_size=12))
async def test_no_run_goes_round_on_nothing(script: list[str]) -> None:
    """Whatever the order: it ends with words, with an empty first reply, or after two empty ones in a row."""
    replies: list[Any] = [
        {"empty": "", "say": "Said.", "look": call("look_up", {"order": number})}[kind]
        for number, kind in enumerate(script)
    ]
    one = Agent("A", model=ScriptedHandler([*replies, "Said."]), tools=[look_up])
    result = await Runner.run(one, "Hi", max_turns=None, run_config=RunConfig(on_limit="return"))
    said = [text_of(each.message) or bool(calls_of(each.message)) for each in result.raw_replies]
    ends = {"Said.": said[-1:] == ["Said."], "": said == [False], None: said[-2:] == [False, False]}
    assert ends[result.final_output]
    assert [False, False] not in [said[place : place + 2] for place in range(len(said) - 2)]


async def test_cut_reasoning_alone_is_an_empty_reply() -> None:
    """As a model with ``<think>`` tags leaves it that runs out of tokens before it has closed them."""
    played = await both(lambda: Agent("A", model=ScriptedHandler([reply("", reasoning="I wonder")])))
    assert played.result.final_output == ""
    assert played.result.warnings == (
        "turn 1: the reply is empty except for reasoning, which may be cut off",
    )
