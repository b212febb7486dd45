"""The system prompt of a turn: the agent's own, and what the run and the last handoff add to it."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, Handoff, RunConfig, RunContext, Runner, handoff
from routelock.errors import CallbackError
from routelock.run.prompt import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio


def agent(name: str, *replies: Any, instructions: Any = None, **options: Any) -> Agent[Any]:
    return Agent(name, instructions, model=ScriptedHandler(replies, name=name), **options)


def prompts(of: Agent[Any]) -> list[str | None]:
    """The system prompt of each model call of an agent; None when there was none."""
    assert isinstance(of.model, ScriptedHandler)
    found: list[str | None] = []
    for request in of.model.requests:
        systems = [str(message.get("content")) for message in request.messages if message["role"] == "system"]
        assert len(systems) <= 1
        assert not systems or request.messages[0]["role"] == "system"
        found.append(systems[0] if systems else None)
    return found


# -- the agent's own --


@pytest.mark.parametrize(
    ("instructions", "prompt"),
    [("Be kind.", "Be kind."), (None, None), ("", None), (lambda: "", None), (lambda: None, None)],
)
async def test_instructions_are_the_system_prompt(instructions: Any, prompt: str | None) -> None:
    """Without any there is no system message at all: some providers refuse an empty one."""
    a = agent("A", "Hello.", instructions=instructions)
    await Runner.run(a, "Hi")
    assert prompts(a) == [prompt]


async def test_instructions_are_asked_anew_in_every_turn() -> None:
    def instructions(context: RunContext[Any], who: Agent[Any]) -> str:
        return f"{who.name} {context.turn} {context.context}"

    a = agent("A", call("nope"), "Hello.", instructions=instructions)
    await Runner.run(a, "Hi", context="ctx")
    assert prompts(a) == ["A 1 ctx", "A 2 ctx"]


async def test_a_prompt_is_not_part_of_the_transcript() -> None:
    a = agent("A", "Hello.", instructions="Be kind.")
    result = await Runner.run(a, "Hi")
    assert [message["role"] for message in result.messages] == ["user", "assistant"]


async def test_failing_instructions_are_a_callback_error() -> None:
    def broken(context: RunContext[Any]) -> str:
        raise KeyError("plan")

    with pytest.raises(
        CallbackError, match="The instructions of agent 'A' raised KeyError: 'plan'"
    ) as caught:
        await Runner.run(agent("A", instructions=broken), "Hi")
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.result.messages == [{"role": "user", "content": "Hi"}]


# -- the explanation of transfers --


def test_the_explanation_goes_in_front() -> None:
    assert prompt_with_handoff_instructions("Be kind.") == f"{RECOMMENDED_PROMPT_PREFIX}\n\nBe kind."
    assert "transfer_to_" in RECOMMENDED_PROMPT_PREFIX


@pytest.mark.parametrize(
    ("handoffs", "on", "explained"),
    [
        (["B"], True, True),
        (["B"], False, False),
        ([], True, False),
        ([handoff("B", is_enabled=False)], True, False),
        ([handoff("B", is_enabled=lambda context, agent: context.turn == 1)], True, True),
    ],
)
async def test_only_agents_that_can_hand_over_are_told_how(
    handoffs: list[Any], on: bool, explained: bool
) -> None:
    a = agent("A", "Hello.", instructions="Be kind.", handoffs=handoffs)
    await Runner.run(a, "Hi", run_config=RunConfig(handoff_prompt=on, agents=[agent("B")]))
    assert prompts(a) == [prompt_with_handoff_instructions("Be kind.") if explained else "Be kind."]


async def test_an_agent_without_instructions_is_told_as_well() -> None:
    a = agent("A", "Hello.", handoffs=[agent("B")])
    await Runner.run(a, "Hi", run_config=RunConfig(handoff_prompt=True))
    assert prompts(a) == [prompt_with_handoff_instructions("")]


# -- what the last handoff passes on --


async def test_the_sources_prompt_stays_with_the_source() -> None:
    b = agent("B", "Done.", instructions="You are B.")
    await Runner.run(agent("A", call("transfer_to_b"), instructions="You are A.", handoffs=[b]), "Hi")
    assert prompts(b) == ["You are B."]


@pytest.mark.parametrize(
    ("own", "prompt"),
    [
        ("You are B.", "You are B.\n\n# Instructions of the previous agent, A\nYou are A."),
        (None, "# Instructions of the previous agent, A\nYou are A."),
    ],
)
async def test_a_handoff_may_pass_the_sources_prompt_on(own: str | None, prompt: str) -> None:
    """After the target's own, and labelled."""
    b = agent("B", call("nope"), "Done.", instructions=own)
    declared = handoff(b, transfer_system_message=True)
    await Runner.run(agent("A", call("transfer_to_b"), instructions="You are A.", handoffs=[declared]), "Hi")
    assert prompts(b) == [prompt, prompt]


async def test_a_source_without_a_prompt_passes_nothing_on() -> None:
    b = agent("B", "Done.", instructions="You are B.")
    declared = handoff(b, transfer_system_message=True)
    await Runner.run(agent("A", call("transfer_to_b"), handoffs=[declared]), "Hi")
    assert prompts(b) == ["You are B."]


async def test_a_prompt_is_passed_on_for_one_handoff_only() -> None:
    c = agent("C", "Done.", instructions="You are C.")
    b = agent("B", call("transfer_to_c"), instructions="You are B.", handoffs=[c])
    a = agent(
        "A",
        call("transfer_to_b"),
        instructions="You are A.",
        handoffs=[handoff(b, transfer_system_message=True)],
    )
    await Runner.run(a, "Hi")
    assert prompts(c) == ["You are C."]


async def test_section_names_the_source_after_further_handoffs() -> None:
    """A transfer of the target's that fails must not rename it."""
    b = agent("B", call("transfer_to_c", "{"), "Done.", instructions="You are B.", handoffs=[agent("C")])
    declared = handoff(b, transfer_system_message=True)
    await Runner.run(agent("A", call("transfer_to_b"), instructions="You are A.", handoffs=[declared]), "Hi")
    assert prompts(b) == ["You are B.\n\n# Instructions of the previous agent, A\nYou are A."] * 2


async def test_handoff_to_a_handler_keeps_the_agents_prompt() -> None:
    """The same agent goes on: its own prompt is not that of a previous agent."""
    remote = ScriptedHandler(["Done."], name="remote")
    handoffs: list[Handoff] = [handoff(remote, transfer_system_message=True)]
    b = agent("B", call("transfer_to_remote"), instructions="You are B.", handoffs=handoffs)
    declared = handoff(b, transfer_system_message=True)
    await Runner.run(agent("A", call("transfer_to_b"), instructions="You are A.", handoffs=[declared]), "Hi")
    assert remote.requests[0].messages[0] == {
        "role": "system",
        "content": "You are B.\n\n# Instructions of the previous agent, A\nYou are A.",
    }


async def test_a_source_whose_prompt_cannot_be_had_is_told() -> None:
    def broken(context: RunContext[Any]) -> str:
        if context.turn == 1 and asked:
            raise KeyError("plan")
        asked.append(1)
        return "You are A."

    asked: list[int] = []
    declared = handoff(agent("B"), transfer_system_message=True)
    with pytest.raises(CallbackError, match="The instructions of agent 'A' raised KeyError") as caught:
        await Runner.run(agent("A", call("transfer_to_b"), instructions=broken, handoffs=[declared]), "Hi")
    assert len(caught.value.result.items) == 3


async def test_source_prompt_and_transfer_explanation_are_both_shown() -> None:
    b = agent("B", "Done.", instructions="You are B.", handoffs=[agent("C")])
    declared = handoff(b, transfer_system_message=True)
    a = agent("A", call("transfer_to_b"), instructions="You are A.", handoffs=[declared])
    await Runner.run(a, "Hi", run_config=RunConfig(handoff_prompt=True))
    assert prompts(b) == [
        f"{RECOMMENDED_PROMPT_PREFIX}\n\nYou are B.\n\n# Instructions of the previous agent, A\nYou are A."
    ]
