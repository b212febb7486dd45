"""The declaration of a tool that the vendor runs."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, Runner
from routelock.errors import ConfigError
from routelock.handoffs import deserialize_context, prepare_handoff_context, serialize_context
from routelock.history import Citation, VendorCall
from routelock.sessions import InMemorySessions, Session
from routelock.state import RunState
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import VendorTool

SEARCH = {"type": "web_search"}


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.parametrize(
    ("tool", "spec"),
    [
        (VendorTool.web_search(), {"type": "web_search"}),
        (
            VendorTool.web_search(max_uses=2, allowed_domains=["a.example"], user_location={"country": "NL"}),
            {
                "type": "web_search",
                "max_uses": 2,
                "allowed_domains": ["a.example"],
                "user_location": {"country": "NL"},
            },
        ),
        (
            VendorTool.web_fetch(blocked_domains=["a.example"]),
            {"type": "web_fetch", "blocked_domains": ["a.example"]},
        ),
        (VendorTool.code_execution(), {"type": "code_execution"}),
        (VendorTool.file_search(["vs_1"]), {"type": "file_search", "stores": ["vs_1"]}),
        (VendorTool.image_generation(), {"type": "image_generation"}),
    ],
)
def test_a_portable_tool_has_only_the_options_that_are_given(tool: VendorTool, spec: Any) -> None:
    assert (tool.spec, tool.name) == (spec, spec["type"])


def test_a_spec_without_a_type_is_named_by_its_key() -> None:
    assert VendorTool(spec={"googleSearch": {}}).name == "googleSearch"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "a dict such as"),
        ({1: 2}, "keys of a vendor's tool are text"),
        ({"type": 3}, "type of a vendor's tool is text"),
        ({"type": "function", "function": {"name": "f"}}, "external_tools"),
    ],
)
def test_what_is_no_vendors_tool_is_an_error_of_the_agent(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        VendorTool(spec=given)
    with pytest.raises(ConfigError, match=rf"Agent 'A': .*{said}"):
        Agent("A", tools=[given])


def test_a_dict_in_the_tools_of_an_agent_is_a_vendors_tool() -> None:
    agent = Agent("A", tools=[double, SEARCH])
    assert agent.tools[1] == VendorTool(spec=SEARCH)
    assert [each.name for each in agent.all_tools] == ["double"]


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(ConfigError, match="'web_search'"):
        Agent("A", tools=[SEARCH, VendorTool.web_search()])


def test_the_specs_of_vendors_tools_stand_last() -> None:
    model = ScriptedHandler(["Hi."])
    agent = Agent("A", model=model, tools=[SEARCH, double], handoffs=[Agent("B", model=model)])
    Runner.run_sync(agent, "Hi")
    specs = model.requests[0].tools
    assert [spec["type"] for spec in specs] == ["function", "function", "web_search"]


def test_a_disabled_tool_is_not_offered() -> None:
    model = ScriptedHandler(["Hi.", "Hi."])
    on = VendorTool(spec=SEARCH, is_enabled=lambda context, agent: context.context)
    agent = Agent("A", model=model, tools=[on])
    Runner.run_sync(agent, "Hi", context=False)
    Runner.run_sync(agent, "Hi", context=True)
    assert [len(request.tools) for request in model.requests] == [0, 1]


def test_a_tool_out_of_scope_is_not_offered() -> None:
    model = ScriptedHandler(["Hi.", "Hi."])
    agent = Agent("A", model=model, tools=[VendorTool(spec=SEARCH, scope="admin")])
    Runner.run_sync(agent, "Hi")
    Runner.run_sync(agent, "Hi", run_config=RunConfig(scopes=["admin"]))
    assert [len(request.tools) for request in model.requests] == [0, 1]


def test_a_choice_may_name_a_vendors_tool() -> None:
    ran = reply("Rain.", vendor_calls=[VendorCall(tool="web_search")])
    model = ScriptedHandler([ran])
    agent = Agent("A", model=model, tools=[SEARCH], model_settings={"tool_choice": "web_search"})
    result = Runner.run_sync(agent, "Hi")
    assert model.requests[0].tool_choice == "web_search"
    assert result.warnings == ()


def test_a_forced_tool_that_the_vendor_did_not_run_is_a_warning() -> None:
    agent = Agent(
        "A", model=ScriptedHandler(["No."]), tools=[SEARCH], model_settings={"tool_choice": "web_search"}
    )
    assert "tool_choice='web_search'" in Runner.run_sync(agent, "Hi").warnings[0]


def test_a_result_has_the_calls_of_the_run_and_the_citations_of_its_answer() -> None:
    page = Citation(url="https://a.example", title="A", start=0, end=4)
    first = VendorCall(tool="web_search", input={"query": "x"}, sources=(Citation(url="https://a.example"),))
    second = VendorCall(tool="code_execution", input={"code": "1"}, output="1")
    model = ScriptedHandler(
        [
            reply(calls=[call("double", {"number": 1})], vendor_calls=[first]),
            reply("Rain.", vendor_calls=[second], citations=[page]),
        ]
    )
    result = Runner.run_sync(Agent("A", model=model, tools=[double, SEARCH]), "Hi")
    assert result.vendor_calls == [first, second]
    assert result.citations == [page]


def test_a_state_keeps_what_vendors_tools_did() -> None:
    page = Citation(url="https://a.example")
    ran = reply("Rain.", vendor_calls=[VendorCall(tool="web_search", sources=(page,))], citations=[page])
    agent = Agent("A", model=ScriptedHandler([ran]), tools=[SEARCH])
    result = Runner.run_sync(agent, "Hi")
    again = RunState.from_json(result.state().to_json(), agents=[agent])
    assert again.items[-1].vendor_calls == result.vendor_calls
    assert again.items[-1].citations == [page]


def test_a_context_for_another_process_keeps_what_vendors_tools_did() -> None:
    ran = reply("Rain.", vendor_calls=[VendorCall(tool="web_search")])
    result = Runner.run_sync(Agent("A", model=ScriptedHandler([ran]), tools=[SEARCH]), "Hi")
    context = prepare_handoff_context(result.to_input_list())
    again = deserialize_context(serialize_context(context))
    assert again.to_input_list()[-1].get("vendor_calls") == [{"tool": "web_search"}]


@pytest.mark.anyio
async def test_a_session_keeps_what_vendors_tools_did() -> None:
    ran = reply("Rain.", vendor_calls=[VendorCall(tool="web_search")])
    model = ScriptedHandler([ran, "Rain again."], family="one")
    agent, session = Agent("A", model=model, tools=[SEARCH]), Session("s", InMemorySessions())
    await Runner.run(agent, "Hi", session=session)
    await Runner.run(agent, "And now?", session=session)
    assert model.requests[1].messages[1].get("vendor_calls") == [{"tool": "web_search"}]
