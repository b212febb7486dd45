"""Runs of agents whose models search for their tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from crashes import Crash, Dies
from executors import Body, Recording, Replaying
from scripted_agents import agent, answers_of, requests
from tool_catalogue import catalogue

from routelock import Agent, Limits, RunConfig, Runner, Skill, Tool, handoff
from routelock.agents.registry import Registry
from routelock.errors import BudgetExceeded, CallbackError, ConfigError, ToolError
from routelock.handlers.events import HandlerEvent
from routelock.history import remove_all_tools
from routelock.run.executor import Call
from routelock.sessions import InMemorySessions, Session
from routelock.state import Journal, RunState
from routelock.testing import call, reply
from routelock.tools import ToolSearch

pytestmark = pytest.mark.anyio

NAMES = ("bell_one", "bell_two", "horn", "drum")
SEARCH = "search_tools"


def thing(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: f"{name} rang", **options)


def things(*names: str, **options: Any) -> list[Tool]:
    return [thing(name, **{"deferred": True, **options}) for name in names or NAMES]


def look(query: str) -> Any:
    return call(SEARCH, {"query": query})


def offered(of: Agent[Any]) -> list[list[str]]:
    """The names of the tools of each request."""
    return [[spec["function"]["name"] for spec in request.tools] for request in requests(of)]


# What is offered


async def test_a_model_is_offered_what_it_found_from_then_on() -> None:
    a = agent("A", look("horn"), call("horn"), "Done.", tools=things())
    result = await Runner.run(a, "Hi")
    assert offered(a) == [[SEARCH], [SEARCH, "horn"], [SEARCH, "horn"]]
    assert answers_of(result)[1] == "horn rang"


async def test_found_tools_stand_behind_all_others_in_the_order_of_finding() -> None:
    """So the beginning of the prompt stays the same, and vendors cache it."""
    b = agent("B")
    tools = [thing("first"), *things(), thing("last")]
    a = agent("A", look("horn"), look("bell"), look("horn"), "Done.", tools=tools, handoffs=[b])
    await Runner.run(a, "Hi")
    before = ["first", "last", "transfer_to_b", SEARCH]
    with_horn = [*before, "horn"]
    with_all = [*with_horn, "bell_one", "bell_two"]
    assert offered(a) == [before, with_horn, with_all, with_all]


async def test_with_a_thousand_tools_a_request_carries_less_than_a_twentieth() -> None:
    tools = catalogue()
    a = agent("A", look("file a bug on GitHub"), "Done.", tools=tools)
    await Runner.run(a, "Hi")
    all_bytes = len(json.dumps([each.spec for each in tools]))
    for request in requests(a):
        assert len(json.dumps([*request.tools, *request.messages])) * 20 < all_bytes


async def test_handoffs_are_never_deferred() -> None:
    a = agent("A", "Hi.", tools=[thing("horn")], handoffs=[agent("B")], tool_search=ToolSearch(defer_over=0))
    await Runner.run(a, "Hi")
    assert offered(a) == [["transfer_to_b", SEARCH]]


async def test_tools_that_are_not_deferred_need_no_search() -> None:
    a = agent("A", "Hi.", tools=[thing("horn")], tool_search=ToolSearch())
    await Runner.run(a, "Hi")
    assert offered(a) == [["horn"]]


@pytest.mark.parametrize(("over", "expected"), [(2, ["kept", SEARCH]), (3, ["one", "two", "kept"])])
async def test_a_policy_defers_the_tools_of_agents_that_have_many(over: int, expected: list[str]) -> None:
    tools = [thing("one"), thing("two"), thing("kept", deferred=False)]
    of_agent = agent("A", "Hi.", tools=tools, tool_search=ToolSearch(defer_over=over))
    of_run = agent("A", "Hi.", tools=tools)
    await Runner.run(of_agent, "Hi")
    await Runner.run(of_run, "Hi", run_config=RunConfig(tool_search=ToolSearch(defer_over=over)))
    assert offered(of_agent) == offered(of_run) == [expected]


async def test_the_setting_of_an_agent_wins_over_that_of_the_run() -> None:
    a = agent("A", "Hi.", tools=[thing("one")], tool_search=ToolSearch())
    await Runner.run(a, "Hi", run_config=RunConfig(tool_search=ToolSearch(defer_over=0)))
    assert offered(a) == [["one"]]


async def test_tools_of_skills_are_deferred_like_others() -> None:
    class Bells(Skill):
        def initialize(self, registry: Registry) -> None:
            registry.add_tool(thing("horn"))

    a = agent(
        "A", look("horn"), call("horn"), "Done.", skills=[Bells()], tool_search=ToolSearch(defer_over=0)
    )
    result = await Runner.run(a, "Hi")
    assert answers_of(result)[1] == "horn rang"


async def test_all_runs_share_one_offer_and_one_index() -> None:
    """Providers recognise by the tuple the tools that they have encoded."""
    a = agent("A", "One.", "Two.", look("horn"), "Three.", look("drum"), "Four.", tools=things())
    for _ in range(2):
        await Runner.run(a, "Hi")
    assert requests(a)[0].tools is requests(a)[1].tools
    for _ in range(2):
        await Runner.run(a, "Hi", run_config=RunConfig(tool_search=ToolSearch(defer_over=1)))
    one, two = (a.deferrals.of(ToolSearch(defer_over=over)) for over in (1, 2))
    assert one is not None
    assert two is not None
    assert one.catalogue is two.catalogue


async def test_an_offer_stays_the_same_object_until_something_is_found() -> None:
    a = agent("A", look("horn"), call("horn"), "Done.", tools=things())
    await Runner.run(a, "Hi")
    _, second, third = requests(a)
    assert second.tools is third.tools


# Calls


async def test_a_deferred_tool_that_was_not_found_can_be_called() -> None:
    """The model may know it from its history; it is offered the tool from then on."""
    a = agent("A", call("horn"), "Done.", tools=things())
    result = await Runner.run(a, "Hi")
    assert answers_of(result) == ["horn rang"]
    assert offered(a) == [[SEARCH], [SEARCH, "horn"]]


async def test_the_answer_to_an_unknown_name_says_that_others_can_be_searched_for() -> None:
    a = agent("A", call("trumpet"), "Done.", tools=things())
    result = await Runner.run(a, "Hi")
    assert answers_of(result)[0].endswith(
        "Available tools: search_tools. Search for others with search_tools."
    )


async def test_a_tool_is_found_only_while_it_is_enabled() -> None:
    tools = [
        thing("bell_off", deferred=True, is_enabled=False),
        thing("bell_late", deferred=True, is_enabled=lambda context, agent: context.turn > 1),
        thing("bell_on", deferred=True, is_enabled=lambda context, agent: agent.name == "A"),
    ]
    a = agent("A", look("bell"), look("bell"), "Done.", tools=tools)
    await Runner.run(a, "Hi")
    assert offered(a) == [[SEARCH], [SEARCH, "bell_on"], [SEARCH, "bell_on", "bell_late"]]


async def test_a_found_tool_is_offered_only_while_it_is_enabled() -> None:
    tools = things("horn", is_enabled=lambda context, agent: context.turn != 2)
    a = agent("A", look("horn"), call("horn"), "Done.", tools=tools)
    result = await Runner.run(a, "Hi")
    assert offered(a) == [[SEARCH], [SEARCH], [SEARCH, "horn"]]
    assert answers_of(result)[1] == "Tool 'horn' is not available now, so this call was not made."


async def test_an_is_enabled_function_that_fails_in_a_search_ends_the_run() -> None:
    def broken(context: Any, agent: Any) -> bool:
        raise KeyError("plan")

    a = agent("A", look("horn"), tools=things("horn", is_enabled=broken))
    with pytest.raises(ToolError, match="is_enabled function of tool 'horn'") as caught:
        await Runner.run(a, "Hi")
    assert isinstance(caught.value.__cause__, CallbackError)


@pytest.mark.parametrize(("scopes", "answer"), [((), "There is no tool named"), (("owner",), "horn rang")])
async def test_tools_out_of_scope_can_be_neither_found_nor_called(scopes: Sequence[str], answer: str) -> None:
    a = agent("A", look("horn"), call("horn"), "Done.", tools=things("horn", scope="owner"))
    result = await Runner.run(a, "Hi", run_config=RunConfig(scopes=scopes))
    assert answers_of(result)[1].startswith(answer)
    assert ("horn" in offered(a)[1]) is bool(scopes)


async def test_a_forced_tool_counts_as_found() -> None:
    a = agent("A", call("horn"), "Done.", tools=things(), model_settings={"tool_choice": "horn"})
    await Runner.run(a, "Hi")
    assert offered(a) == [[SEARCH, "horn"]] * 2
    assert [request.tool_choice for request in requests(a)] == ["horn", None]


async def test_a_forced_tool_of_the_run_counts_as_found() -> None:
    a = agent("A", call("horn"), "Done.", tools=things())
    await Runner.run(a, "Hi", run_config=RunConfig(model_settings={"tool_choice": "horn"}))
    assert requests(a)[0].tool_choice == "horn"


async def test_a_search_can_be_forced() -> None:
    a = agent("A", look("horn"), "Done.", tools=things(), model_settings={"tool_choice": SEARCH})
    await Runner.run(a, "Hi")
    assert requests(a)[0].tool_choice == SEARCH


async def test_external_tools_may_be_deferred() -> None:
    spec = {"type": "function", "function": {"name": "drum", "description": "Beats.", "parameters": {}}}
    a = agent("A", look("horn"), call("horn"), tools=[thing("own")])
    search = ToolSearch(defer_over=2)
    config = RunConfig(external_tools=[thing("horn", deferred=True), spec], tool_search=search)
    result = await Runner.run(a, "Hi", run_config=config)
    assert offered(a) == [[SEARCH], [SEARCH, "horn"]]
    assert [each["function"]["name"] for each in result.pending] == ["horn"]


async def test_an_agent_that_is_a_tool_may_be_deferred_and_searches_for_itself() -> None:
    inner = agent("inner", look("drum"), call("drum"), "Boom.", tools=things("drum"))
    tools = [inner.as_tool(deferred=True), thing("horn")]
    outer = agent("outer", look("inner"), call("inner", {"input": "Play."}), "Done.", tools=tools)
    result = await Runner.run(outer, "Hi")
    assert answers_of(result)[1] == "Boom."
    assert offered(inner) == [[SEARCH], [SEARCH, "drum"], [SEARCH, "drum"]]
    assert offered(outer) == [["horn", SEARCH], ["horn", SEARCH, "inner"], ["horn", SEARCH, "inner"]]


async def test_a_search_counts_as_a_tool_call() -> None:
    a = agent("A", look("horn"), call("horn"), tools=things())
    with pytest.raises(BudgetExceeded, match="1 of 1 tool calls"):
        await Runner.run(a, "Hi", run_config=RunConfig(limits=Limits(tool_calls=1)))


# What keeps it


async def test_found_tools_stay_offered_when_an_agent_gets_an_answer() -> None:
    b = agent("B", "Forty-two.")
    to_b = handoff(b, return_to_caller=True, input_filter=remove_all_tools)
    a = agent("A", look("horn"), call("transfer_to_b"), "Done.", tools=things(), handoffs=[to_b])
    await Runner.run(a, "Hi")
    assert offered(a)[1] == offered(a)[2] == ["transfer_to_b", SEARCH, "horn"]


async def test_an_agent_is_not_offered_what_another_one_found() -> None:
    b = agent("B", "Done.", tools=things())
    a = agent("A", look("horn"), call("transfer_to_b"), tools=things(), handoffs=[b])
    await Runner.run(a, "Hi")
    assert offered(b) == [[SEARCH]]


async def test_an_agent_is_offered_what_another_one_called() -> None:
    """It is shown such a call as a call, because it has the tool."""
    b = agent("B", "Done.", tools=things())
    a = agent("A", call("horn"), call("transfer_to_b"), tools=things(), handoffs=[b])
    await Runner.run(a, "Hi")
    assert offered(b) == [[SEARCH, "horn"]]


async def test_found_tools_stay_offered_when_a_run_is_resumed() -> None:
    tools = things("horn", needs_approval=True)
    a = agent("A", look("horn"), call("horn"), "Done.", tools=tools)
    paused = await Runner.run(a, "Hi")
    state = RunState.from_json(paused.state().to_json(), agents=[a])
    result = await Runner.run(a, state.approve(state.interruptions[0]))
    assert answers_of(result)[1] == "horn rang"
    assert offered(a)[2] == [SEARCH, "horn"]


async def test_found_tools_stay_offered_in_a_session() -> None:
    a = agent("A", look("horn"), "One.", "Two.", tools=things())
    store = InMemorySessions()
    for _ in range(2):
        await Runner.run(a, "Hi", session=Session("s", store))
    assert offered(a)[2] == [SEARCH, "horn"]


async def test_found_tools_stay_offered_with_the_messages_of_an_earlier_run() -> None:
    a = agent("A", look("horn"), "One.", "Two.", tools=things())
    first = await Runner.run(a, "Hi")
    await Runner.run(a, [*first.to_input_list(), {"role": "user", "content": "And?"}])
    assert offered(a)[2] == [SEARCH, "horn"]


async def test_replayed_steps_give_the_same_offers() -> None:
    recording = Recording()
    a = agent("A", look("horn"), call("horn"), "Done.", tools=things())
    await Runner.run(a, "Hi", run_config=RunConfig(executor=recording, run_id="r"))
    made = [step.args["tools"] for step in recording.calls if step.op == "model"]

    class Again(Replaying):
        async def stream(self, call: Call, body: Body) -> AsyncGenerator[HandlerEvent]:
            seen.append(call.args["tools"])
            async for event in super().stream(call, body):
                yield event

    seen: list[Any] = []
    b = agent("A", tools=things("horn", is_enabled=True))
    await Runner.run(b, "Hi", run_config=RunConfig(executor=Again(recording), run_id="r"))
    assert [len(each) for each in seen] == [len(each) for each in made] == [1, 2, 2]


async def test_a_journal_goes_on_with_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    a = agent("A", look("horn"), tools=things())
    async with Journal(path) as journal:
        with pytest.raises(Crash):
            await journal.run(a, "Hi", run_id="r", hooks=Dies(4))
    b = agent("A", call("horn"), "Done.", tools=things())
    async with Journal(path) as journal:
        result = await journal.run(b, "Hi", run_id="r")
    assert result.final_output == "Done."
    assert offered(b)[0] == [SEARCH, "horn"]


async def test_a_streamed_run_offers_the_same() -> None:
    script = (reply(calls=[look("horn"), look("drum")]), call("horn"), "Done.")
    plain, streamed = (agent("A", *script, tools=things()) for _ in range(2))
    await Runner.run(plain, "Hi")
    stream = Runner.run_streamed(streamed, "Hi")
    async for _ in stream:
        pass
    assert (
        offered(plain) == offered(streamed) == [[SEARCH], [SEARCH, "horn", "drum"], [SEARCH, "horn", "drum"]]
    )


# The search of a vendor


def sent_to_vendor(of: Agent[Any]) -> list[list[str]]:
    """The deferred tools of each request, which stand in its last spec; none without a search."""
    last: list[Any] = [next(iter(request.tools[-1:]), {}) for request in requests(of)]
    return [[each["function"]["name"] for each in spec.get("tools", ())] for spec in last]


async def test_a_vendor_that_searches_is_sent_all_deferred_tools_behind_the_others() -> None:
    tools = [*things("horn"), thing("drum"), thing("off", deferred=True, is_enabled=False)]
    tools.append(thing("secret", deferred=True, scope="owner"))
    a = agent("A", call("horn"), "Done.", tools=tools, tool_search=ToolSearch(by="vendor"))
    result = await Runner.run(a, "Hi")
    assert answers_of(result) == ["horn rang"]
    assert sent_to_vendor(a) == [["horn"], ["horn"]]
    first, second = requests(a)
    assert [spec["type"] for spec in first.tools] == ["function", "tool_search"]
    assert first.tools is second.tools


async def test_whether_a_tool_is_enabled_is_asked_in_each_turn_for_a_vendor() -> None:
    tools = things("horn", is_enabled=lambda context, agent: context.turn == 2)
    a = agent("A", call("horn"), "Done.", tools=tools, tool_search=ToolSearch(by="vendor"))
    result = await Runner.run(a, "Hi")
    assert sent_to_vendor(a) == [[], ["horn"]]
    assert answers_of(result) == ["Tool 'horn' is not available now, so this call was not made."]


@pytest.mark.parametrize("options", [{"is_enabled": False}, {"scope": "owner"}])
async def test_a_vendor_is_not_asked_to_search_where_no_tool_is_open(options: dict[str, Any]) -> None:
    """OpenAI refuses a request with a search and no deferred tool."""
    tools = [thing("drum"), *things("horn", **options)]
    a = agent("A", "Done.", tools=tools, tool_search=ToolSearch(by="vendor"))
    await Runner.run(a, "Hi")
    assert offered(a) == [["drum"]]


async def test_a_forced_tool_is_not_deferred_for_a_vendor() -> None:
    settings: Any = {"tool_choice": "horn"}
    search = ToolSearch(by="vendor")
    a = agent("A", call("horn"), "Done.", tools=things(), tool_search=search, model_settings=settings)
    await Runner.run(a, "Hi")
    assert sent_to_vendor(a)[0] == ["bell_one", "bell_two", "drum"]
    assert requests(a)[0].tool_choice == "horn"


# The name


def test_an_own_tool_with_the_name_of_the_search_is_a_config_error() -> None:
    with pytest.raises(
        ConfigError, match=r"named 'search_tools', .* tool_search=ToolSearch\(name='find_tools'\)"
    ):
        agent("A", tools=[thing(SEARCH), *things()])


async def test_the_search_may_have_another_name() -> None:
    tools = [thing(SEARCH), *things()]
    a = agent("A", call("find", {"query": "horn"}), "Done.", tools=tools, tool_search=ToolSearch(name="find"))
    await Runner.run(a, "Hi")
    assert offered(a) == [[SEARCH, "find"], [SEARCH, "find", "horn"]]


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(tool_search=ToolSearch(name="drum", defer_over=1)),
        RunConfig(tool_search=ToolSearch(name="taken"), external_tools=[thing("taken")]),
        RunConfig(external_tools=[thing(SEARCH)]),
    ],
)
async def test_a_clash_in_the_settings_of_a_run_is_a_config_error(config: RunConfig) -> None:
    a = agent("A", tools=[*things(), thing("horn_two")])
    with pytest.raises(ConfigError, match="like the tool that searches for deferred tools"):
        await Runner.run(a, "Hi", run_config=config)


@pytest.mark.parametrize("setting", [5, "bm25", ToolSearch])
def test_tool_search_must_be_the_settings_of_one(setting: Any) -> None:
    with pytest.raises(ConfigError, match="tool_search must be a"):
        agent("A", tool_search=setting)
    with pytest.raises(ConfigError, match="tool_search must be a"):
        RunConfig(tool_search=setting)
