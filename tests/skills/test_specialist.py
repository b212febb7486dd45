"""`SpecialistSkill`: another model answers the same conversation under another system prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_agents import requests, statuses

from routelock import Agent, HandoffRequest, Message, Request, RunContext, Runner, Usage
from routelock.errors import CallbackError, ConfigError, InvalidRequest, ModelBehaviorError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import family_of
from routelock.history.messages import calls_of
from routelock.testing import ScriptedHandler, assert_valid, call, reply
from routelock_providers import LiteLLM
from routelock_skills import Skill, SpecialistSkill, prompt, tool

pytestmark = pytest.mark.anyio

TO_LAWYER = call("transfer_to_lawyer")


def model(*replies: Any, name: str = "model") -> ScriptedHandler:
    return ScriptedHandler(replies, name=name)


def lawyer(*replies: Any, inner: Any = None, **options: Any) -> tuple[SpecialistSkill, ScriptedHandler]:
    """A specialist, and the model that answers for it."""
    inner = inner or model(*(replies or ("See you in court.",)), name="lawyers model")
    options = {"prompt": "Knows the law.", **options}
    return SpecialistSkill("lawyer", "You are a lawyer.", model=inner, **options), inner


class Desk(Skill):
    """The other parts of the agent."""

    @prompt
    def style(self) -> str:
        return "Be polite."

    @tool
    def find(self, case: int) -> str:
        """Find a case."""
        return f"case {case}: theft"

    @tool
    def ask_lawyer(self) -> HandoffRequest:
        """Ask the lawyer."""
        return HandoffRequest("lawyer", reason="it is a matter of law")


def desk(*replies: Any, skill: Skill, **options: Any) -> Agent[Any]:
    return Agent("Desk", "You are the desk.", model=model(*replies), skills=[Desk(), skill], **options)


def roles(request: Request) -> list[str]:
    return [message["role"] for message in request.messages]


# -- handing over --


async def test_the_model_hands_over_to_it(play: Any) -> None:
    skill, _ = lawyer()
    result = await play(desk(TO_LAWYER, skill=skill))
    assert (result.final_output, result.last_handler) == ("See you in court.", "lawyer")
    assert statuses(result) == [("Desk", "lawyer", "taken")]


async def test_code_hands_over_to_it(play: Any) -> None:
    skill, inner = lawyer(expose=False)
    result = await play(desk(call("ask_lawyer"), skill=skill))
    assert (result.last_handler, result.handoffs[0].requested_by) == ("lawyer", "tool")
    assert_valid(inner.requests[0].messages)


async def test_a_run_may_start_with_it(play: Any) -> None:
    skill, inner = lawyer()
    result = await play(desk(skill=skill), handler="lawyer")
    assert (result.last_handler, roles(inner.requests[0])) == ("lawyer", ["system", "user"])


async def test_the_next_run_starts_with_the_agents_own_model_again(play: Any) -> None:
    skill, _ = lawyer()
    asked = desk(TO_LAWYER, "Hello.", skill=skill)
    first = await play(asked)
    assert (
        await play(asked, [*first.to_input_list(), {"role": "user", "content": "And?"}])
    ).last_handler == ("model")


async def test_its_prompt_describes_it_to_the_model(play: Any) -> None:
    skill, _ = lawyer()
    asked = desk("Hello.", skill=skill)
    await play(asked)
    request = requests(asked)[0]
    assert request.messages[0].get("content") == "You are the desk.\n\nBe polite.\n\nKnows the law."
    spec = next(each for each in request.tools if each["function"]["name"] == "transfer_to_lawyer")
    assert spec["function"]["description"].endswith("Knows the law.")


async def test_it_need_not_be_offered(play: Any) -> None:
    skill, _ = lawyer(expose=False)
    asked = desk("Hello.", skill=skill)
    await play(asked)
    assert "transfer_to_lawyer" not in str(requests(asked)[0].tools)


async def test_scope_is_enforced(play: Any) -> None:
    """Neither offered, nor described, nor reached by a name that the model made up."""
    skill, _ = lawyer(scope="admin")
    asked = desk(TO_LAWYER, call("ask_lawyer"), "No.", skill=skill)
    result = await play(asked)
    assert (result.final_output, result.last_handler) == ("No.", "model")
    assert "Knows the law." not in str(requests(asked)[0])
    assert (await play(desk(TO_LAWYER, skill=skill), scopes=["admin"])).last_handler == "lawyer"


def test_subclass_may_set_the_scope() -> None:
    class Judge(SpecialistSkill):
        scope = "admin"

    made = Agent("Desk", model=model(), skills=[Judge("judge", "", model=model())])
    assert [each.scope for each in made.all_handoffs] == ["admin"]


async def test_the_lowest_priority_makes_it_the_default(play: Any) -> None:
    skill, _ = lawyer(priority=1)
    assert (await play(desk(skill=skill))).last_handler == "lawyer"


async def test_one_specialist_hands_over_to_the_next(play: Any) -> None:
    skill, _ = lawyer(call("transfer_to_judge"))
    judge = SpecialistSkill("judge", "You are a judge.", model=model("Guilty."))
    result = await play(Agent("Desk", model=model(TO_LAWYER), skills=[skill, judge]))
    assert (result.final_output, result.last_handler) == ("Guilty.", "judge")
    assert [one.source for one in result.handoffs] == ["Desk", "lawyer"]


# -- what it is shown --


async def test_it_has_its_own_system_prompt_and_the_whole_conversation(play: Any) -> None:
    skill, inner = lawyer()
    await play(desk(call("find", {"case": 7}), TO_LAWYER, skill=skill))
    (request,) = inner.requests
    assert_valid(request.messages)
    assert request.messages[0] == {"role": "system", "content": "You are a lawyer."}
    assert roles(request) == ["system", "assistant", "tool", "user", "user"]
    assert request.messages[2].get("content") == "case 7: theft"


async def test_an_agent_without_instructions_loses_nothing(play: Any) -> None:
    skill, inner = lawyer(prompt=None)
    await play(Agent("Desk", model=model(TO_LAWYER), skills=[skill]))
    assert roles(inner.requests[0]) == ["system", "user", "user"]


@given(st.lists(st.sampled_from(["system", "user", "assistant", "developer"])))
def test_nothing_but_the_system_prompt_changes(roles_before: list[Any]) -> None:
    skill, inner = lawyer()
    messages: list[Message] = [{"role": role, "content": str(n)} for n, role in enumerate(roles_before)]

    async def ask() -> None:
        async with aclosing(skill.handler.stream(Request(messages=messages, agent="Desk", turn=3))) as events:
            async for _ in events:
                pass

    anyio.run(ask)
    (request,) = inner.requests
    kept = messages[1:] if roles_before[:1] == ["system"] else messages
    assert list(request.messages) == [{"role": "system", "content": "You are a lawyer."}, *kept]
    assert (request.agent, request.turn) == ("Desk", 3)


async def test_its_instructions_may_be_a_function_of_the_context(play: Any) -> None:
    async def instructions(context: RunContext[Any]) -> str:
        return f"You are a lawyer for {context.agent}."

    inner = model("Hello.")
    skill = SpecialistSkill("lawyer", instructions, model=inner)
    await play(desk(TO_LAWYER, skill=skill))
    assert inner.requests[0].messages[0].get("content") == "You are a lawyer for Desk."


@pytest.mark.parametrize("empty", ["", None])
async def test_empty_instructions_are_no_system_prompt(empty: Any, play: Any) -> None:
    """Some vendors refuse an empty one."""
    inner = model("Hello.")
    await play(desk(TO_LAWYER, skill=SpecialistSkill("lawyer", lambda: empty, model=inner)))
    assert roles(inner.requests[0])[0] == "user"


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (lambda: 5, "instructions of specialist 'lawyer' raised TypeError: they must be text, not int"),
        (lambda: {}["key"], "instructions of specialist 'lawyer' raised KeyError: 'key'"),
    ],
)
async def test_failing_instructions_name_the_specialist(instructions: Any, message: str, play: Any) -> None:
    with pytest.raises(CallbackError, match=message):
        await play(desk(TO_LAWYER, skill=SpecialistSkill("lawyer", instructions, model=model())))


# -- tools and settings --


async def test_it_may_use_the_agents_tools(play: Any) -> None:
    skill, inner = lawyer(call("find", {"case": 7}), "Theft, then.")
    result = await play(desk(TO_LAWYER, skill=skill))
    assert result.final_output == "Theft, then."
    assert [tool["function"]["name"] for tool in inner.requests[0].tools] == ["find", "ask_lawyer"]


async def test_it_may_be_kept_from_the_tools(play: Any) -> None:
    skill, inner = lawyer(tools=False)
    await play(
        desk(call("find", {"case": 7}), TO_LAWYER, skill=skill, model_settings={"tool_choice": "required"})
    )
    assert (inner.requests[0].tools, inner.requests[0].tool_choice) == ((), None)


async def test_a_call_of_a_tool_that_it_was_not_shown_does_not_run(play: Any) -> None:
    """A model may repeat a call that it finds in the history, and the run offers the agent's tools."""
    skill, _ = lawyer(reply("Let me see.", calls=[call("find", {"case": 8})]), tools=False)
    with pytest.raises(ModelBehaviorError, match="'lawyer' called tool 'find', but has none") as raised:
        await play(desk(TO_LAWYER, skill=skill))
    assert raised.value.result is not None
    assert "case 8: theft" not in str(raised.value.result.messages)


async def test_its_settings_win_over_the_agents(play: Any) -> None:
    skill, inner = lawyer(settings={"temperature": 0, "seed": None})
    settings = {"temperature": 1, "seed": 7, "max_tokens": 50}
    await play(desk(TO_LAWYER, skill=skill, model_settings=settings))
    assert inner.requests[0].settings == {"temperature": 0, "max_tokens": 50}


async def test_settings_given_are_copied(play: Any) -> None:
    settings = {"temperature": 0}
    skill, inner = lawyer(settings=settings)
    settings["temperature"] = 1
    await play(desk(TO_LAWYER, skill=skill))
    assert inner.requests[0].settings == {"temperature": 0}


async def test_input_of_the_handoff_reaches_its_model(play: Any) -> None:
    @tool
    def ask() -> HandoffRequest:
        return HandoffRequest("lawyer", input={"case": 7})

    skill, inner = lawyer()
    await play(Agent("Desk", model=model(call("ask")), tools=[ask], skills=[skill]))
    assert inner.requests[0].handoff_input == {"case": 7}


# -- what its model gives --


def test_its_family_is_that_of_its_model() -> None:
    """Private fields of messages stay with the vendor that wrote them."""
    own = SpecialistSkill("lawyer", "", model="anthropic/claude-haiku-4-5")
    assert family_of(own.handler) == "anthropic"
    assert family_of(lawyer()[0].handler) == "lawyers model"


def test_model_string_makes_litellm_without_loading_it() -> None:
    made = Agent("Desk", skills=[SpecialistSkill("lawyer", "", model="openai/gpt-5")])
    assert isinstance(vars(made.registered.handlers[0].handler)["inner"], LiteLLM)


@pytest.mark.parametrize("instructions", ["You are a lawyer.", lambda: "You are a lawyer."])
async def test_stream_of_its_model_is_passed_on(instructions: Any) -> None:
    """Events, usage and the end pass through untouched."""
    done = MessageDone(
        message={"role": "assistant", "content": "Hello"},
        usage=Usage(requests=1, input_tokens=3),
        finish_reason="length",
        model="m-1",
    )
    skill = SpecialistSkill("lawyer", instructions, model=model([TextDelta("Hel"), TextDelta("lo"), done]))
    request = Request(messages=[{"role": "user", "content": "Hi"}])
    async with aclosing(skill.handler.stream(request)) as events:
        assert [event async for event in events] == [TextDelta("Hel"), TextDelta("lo"), done]


async def test_no_generator_in_between_unless_needed() -> None:
    skill, inner = lawyer()
    request = Request(messages=[{"role": "user", "content": "Hi"}])
    handed_on, own = (cast(Any, each.stream(request)) for each in (skill.handler, inner))
    assert handed_on.ag_code is own.ag_code


@pytest.mark.parametrize("options", [{}, {"tools": False}])
async def test_an_error_of_its_model_stays_what_it_is(options: dict[str, Any], play: Any) -> None:
    error = InvalidRequest("no", status=400)
    skill, _ = lawyer(error, **options)
    with pytest.raises(InvalidRequest) as raised:
        await play(desk(TO_LAWYER, skill=skill))
    assert raised.value is error


@pytest.mark.parametrize("options", [{}, {"tools": False}])
async def test_leaving_the_stream_closes_the_models(options: dict[str, Any]) -> None:
    closed: list[str] = []

    async def endless(request: Request) -> AsyncGenerator[HandlerEvent]:
        try:
            while True:
                yield TextDelta("on ")
        finally:
            closed.append("closed")

    skill, _ = lawyer(endless, **options)
    async with Runner.run_streamed(desk(TO_LAWYER, skill=skill), "Hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert closed == ["closed"]


# -- one skill, many agents and runs --


async def test_two_agents_share_it_without_mixing(play: Any) -> None:
    skill, inner = lawyer("One.", "Two.")
    for name in ("A", "B"):
        await play(Agent(name, model=model(TO_LAWYER), skills=[skill]))
    assert [request.agent for request in inner.requests] == ["A", "B"]


async def test_concurrent_runs_do_not_mix() -> None:
    """In webagents the next request was answered by the specialist another had asked for."""
    skill = SpecialistSkill("lawyer", "", model=model(*["See you in court."] * 20))

    async def by_name(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        wants = request.messages[-1].get("content") == "law"
        return TO_LAWYER if wants and not calls_of(request.messages[-1]) else "Hello."

    asked = Agent("Desk", model=model(*[by_name] * 40), skills=[skill])
    found: list[tuple[str, str]] = []

    async def one(text: str) -> None:
        found.append((text, (await Runner.run(asked, text)).last_handler))

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, "law" if number % 2 else "Hi")
    assert set(found) == {("law", "lawyer"), ("Hi", "model")}


# -- what is refused --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "its name must be text that is not empty"),
        ({"instructions": 5}, "instructions must be text or a function, not 5"),
        ({"model": None}, "model must be a model string or a handler, not None"),
        ({"model": len}, "wrap a function with"),
        ({"model": ""}, "needs a model string"),
        ({"settings": {"tool_choice": "required"}}, "put it into the agent's model_settings"),
        ({"scope": 5}, "Specialist 'lawyer': scope must be"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    given = {"name": "lawyer", "instructions": "", "model": model(), **options}
    with pytest.raises(ConfigError, match=message):
        SpecialistSkill(given.pop("name"), given.pop("instructions"), **given)


def test_a_priority_that_is_no_number_is_refused_with_the_agent() -> None:
    with pytest.raises(ConfigError, match="'lawyer': priority must be a"):
        Agent("Desk", skills=[lawyer(priority="high")[0]])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two skills named 'lawyer'"):
        Agent("Desk", skills=[lawyer()[0], lawyer()[0]])
