"""Tools of the client: calls end the turn, and tool results resume the run."""

from __future__ import annotations

from typing import Any

import pytest
from served_apps import ask, deltas_of, events_of, post, served

from routelock import Agent, ConfigError, HandoffInputData, RunConfig, Skill, function_tool, handoff, tool
from routelock.serving import ServeConfig
from routelock.testing import ScriptedHandler, assert_valid, call, reply

DOOR = {
    "type": "function",
    "function": {
        "name": "open_door",
        "description": "Open a door.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
HI = {"role": "user", "content": "Hi"}


class Shop:
    """Counts how often the server's own tool runs."""

    def __init__(self) -> None:
        self.charged = 0

        @function_tool
        def charge(amount: int) -> str:
            """Charge the customer."""
            self.charged += 1
            return f"charged {amount}"

        self.tool = charge


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies, name=name), **options)


def requests(of: Agent[Any]) -> Any:
    assert isinstance(of.model, ScriptedHandler)
    return of.model.requests


def message_of(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()["choices"][0]["message"]
    return message


def answers(message: dict[str, Any], text: str = "open") -> list[dict[str, Any]]:
    """The message with the calls, and an answer to each."""
    return [message] + [
        {"role": "tool", "tool_call_id": made["id"], "content": text} for made in message["tool_calls"]
    ]


def test_a_call_of_the_clients_tool_ends_the_turn() -> None:
    mine = agent(reply("Sure.", calls=[call("open_door", {"n": 1})]))
    with served(mine) as url:
        response = post(url, ask(tools=[DOOR]))
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Sure."
    [made] = choice["message"]["tool_calls"]
    assert made["type"] == "function"
    assert made["function"] == {"name": "open_door", "arguments": '{"n": 1}'}
    assert [tool["function"]["name"] for tool in requests(mine)[0].tools] == ["open_door"]


def test_a_streamed_call_is_the_same() -> None:
    mine = agent(reply("Sure.", calls=[call("open_door", {"n": 1}), call("open_door", {"n": 2})]))
    with served(mine) as url:
        events = events_of(post(url, ask(tools=[DOOR], stream=True)))
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    pieces = [piece for delta in deltas_of(events) for piece in delta.get("tool_calls", ())]
    assert [piece["index"] for piece in pieces] == [0, 0, 1, 1]
    assert ["id" in piece for piece in pieces] == [True, False, True, False]
    assert [piece["function"]["arguments"] for piece in pieces] == ["", '{"n": 1}', "", '{"n": 2}']


@pytest.mark.parametrize("stream", [False, True])
def test_tool_results_resume_the_run(stream: bool) -> None:
    """The server's own tool ran in the same reply: it does not run twice, and its result is not lost."""
    shop = Shop()
    both = reply("Both.", calls=[call("charge", {"amount": 5}), call("open_door", {"n": 1})])
    mine = agent(both, "All done.", tools=[shop.tool])
    with served(mine) as url:
        first = message_of(post(url, ask(tools=[DOOR])))
        messages = [HI, *answers(first)]
        second = post(url, {"messages": messages, "tools": [DOOR], "stream": stream})
    assert "done." in second.text
    assert shop.charged == 1
    shown = list(requests(mine)[1].messages)
    assert_valid(shown)
    assert [message["content"] for message in shown if message["role"] == "tool"] == ["charged 5", "open"]
    assert [made["function"]["name"] for made in shown[1]["tool_calls"]] == ["charge", "open_door"]


def test_tool_results_go_to_the_active_agent() -> None:
    b = agent(call("open_door", {"n": 1}), "The door is open.", name="B")
    first = agent(call("transfer_to_b"), handoffs=[b])
    with served(first) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        second = message_of(post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]}))
    assert second["content"] == "The door is open."
    assert second["x_agent"] == {"agent": "B"}
    assert_valid(list(requests(b)[1].messages))


def test_tool_results_go_to_the_active_handler() -> None:
    quick = ScriptedHandler([call("transfer_to_deep")], name="quick")
    deep = ScriptedHandler([call("open_door", {"n": 1}), "Deep thought."], name="deep")
    object.__setattr__(deep, "expose", True)
    object.__setattr__(quick, "priority", 1)
    with served(Agent("A", handlers=[quick, deep])) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        second = message_of(post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]}))
    assert second["content"] == "Deep thought."


def test_an_app_that_starts_at_a_handler_resumes_at_agents_without_it() -> None:
    b = agent(call("open_door", {"n": 1}), "Open.", name="B")
    model = ScriptedHandler([call("transfer_to_b")], name="special")
    first = Agent("A", handlers=[ScriptedHandler([], name="usual"), model], handoffs=[b])
    with served(first, ServeConfig(run_config=RunConfig(handler="special"))) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        second = post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]})
    assert message_of(second)["content"] == "Open."


def test_a_resumed_agent_may_hand_over_by_name() -> None:
    """The agents of the first one's graph are still there, although the run starts at another."""
    b = agent(call("open_door", {"n": 1}), call("transfer_to_a"), name="B", handoffs=["A"])
    first = agent(call("transfer_to_b"), "Back at A.", handoffs=[b])
    with served(first) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        second = message_of(post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]}))
    assert second["content"] == "Back at A."
    assert second["x_agent"] == {"agent": "A"}


def test_a_filtered_message_stays_hidden_after_a_resume() -> None:
    def hide(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=())

    b = agent(call("open_door", {"n": 1}), "Open.", name="B")
    first = agent(call("transfer_to_b"), handoffs=[handoff(b, input_filter=hide)])
    with served(first) as url:
        message = message_of(post(url, ask("my password is 1234", tools=[DOOR])))
        messages = [{"role": "user", "content": "my password is 1234"}, *answers(message)]
        assert message_of(post(url, {"messages": messages, "tools": [DOOR]}))["content"] == "Open."
    assert "1234" not in str(requests(b)[0].messages), "else the test shows nothing"
    assert "1234" not in str(requests(b)[1].messages)
    assert_valid(list(requests(b)[1].messages))


@pytest.mark.parametrize(
    "options",
    [{}, {"nest_handoff_history": True}, {"preserve_context": False}, {"transfer_system_message": True}],
)
def test_a_resumed_agent_sees_the_same_messages(options: dict[str, Any]) -> None:
    """And after it, its own reply and the answers."""
    shop = Shop()
    both = [call("charge", {"amount": 5}), call("open_door", {"n": 1})]
    b = agent(both, "Open.", name="B", instructions="You are B.", tools=[shop.tool])
    first = agent(call("transfer_to_b"), handoffs=[handoff(b, **options)], instructions="You are A.")
    with served(first) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]})
    before, after = (
        [each for each in request.messages if each["role"] != "system"] for request in requests(b)
    )
    assert after[: len(before)] == before
    assert [each["role"] for each in after[len(before) :]] == ["assistant", "tool", "tool"]


def test_provider_data_is_sent_back_to_its_family() -> None:
    """Claude refuses a conversation with tools whose thinking blocks are gone."""
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    shop = Shop()
    replies = [
        {"content": None, "thinking_blocks": thought, "tool_calls": [call("charge", {"amount": 5}, id="x")]},
        {"content": None, "thinking_blocks": thought, "tool_calls": [call("open_door", {"n": 1}, id="y")]},
        "Open.",
    ]
    b = Agent("B", model=ScriptedHandler(replies, name="B", family="anthropic"), tools=[shop.tool])
    first = agent(call("transfer_to_b"), handoffs=[b])
    with served(first) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        assert (
            message_of(post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]}))["content"]
            == "Open."
        )
    assert "thinking_blocks" not in message
    shown = [each for each in requests(b)[2].messages if "thinking_blocks" in each]
    assert [each["tool_calls"][0]["function"]["name"] for each in shown] == ["charge", "open_door"]


def test_several_rounds_keep_all_of_the_run() -> None:
    shop = Shop()
    rounds = [[call("charge", {"amount": n}), call("open_door", {"n": n})] for n in (1, 2)]
    mine = agent(*rounds, "Done.", tools=[shop.tool])
    with served(mine) as url:
        messages: list[dict[str, Any]] = [HI]
        for _ in range(2):
            messages += answers(message_of(post(url, {"messages": messages, "tools": [DOOR]})))
        assert message_of(post(url, {"messages": messages, "tools": [DOOR]}))["content"] == "Done."
    assert shop.charged == 2
    results = [message["content"] for message in requests(mine)[2].messages if message["role"] == "tool"]
    assert results == ["charged 1", "open", "charged 2", "open"]


def test_messages_after_the_tool_results_are_used() -> None:
    mine = agent(call("open_door", {"n": 1}), "Done.")
    with served(mine) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        more = {"role": "user", "content": "And hurry."}
        post(url, {"messages": [HI, *answers(message), more], "tools": [DOOR]})
    assert requests(mine)[1].messages[-1] == more


def test_a_request_that_is_repeated_is_answered_again() -> None:
    """A client that lost the reply sends the same once more."""
    shop = Shop()
    both = [call("charge", {"amount": 5}), call("open_door", {"n": 1})]
    mine = agent(both, "Done.", "Done.", tools=[shop.tool])
    with served(mine) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        for _ in range(2):
            again = post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]})
            assert message_of(again)["content"] == "Done."
    assert shop.charged == 1


def test_a_dropped_run_begins_with_the_clients_messages() -> None:
    """As after a restart: the first agent answers, and the request is still a valid one."""
    b = agent(call("open_door", {"n": 1}), name="B")
    first = agent(call("transfer_to_b"), "I go on.", handoffs=[b])
    with served(first) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
    with served(first) as url:
        second = message_of(post(url, {"messages": [HI, *answers(message)], "tools": [DOOR]}))
    assert second["content"] == "I go on."
    assert_valid(list(requests(first)[1].messages))


def test_a_run_of_another_key_cannot_be_resumed() -> None:
    shop = Shop()
    both = [call("charge", {"amount": 5}), call("open_door", {"n": 1})]
    mine = agent(both, "Whose?", tools=[shop.tool])
    with served(mine, ServeConfig(api_keys=["k1", "k2"])) as url:
        message = message_of(post(url, ask(tools=[DOOR]), authorization="Bearer k1"))
        stolen = {"messages": [HI, *answers(message)], "tools": [DOOR]}
        post(url, stolen, authorization="Bearer k2")
    assert "charged 5" not in str(requests(mine)[1].messages)


def test_ids_are_the_servers_and_do_not_repeat() -> None:
    """Models call every first call "call_0": one conversation would find the run of another."""
    mine = agent(*[call("open_door", {"n": 1}, id="call_0")] * 2)
    with served(mine) as url:
        ids = {message_of(post(url, ask(tools=[DOOR])))["tool_calls"][0]["id"] for _ in range(2)}
    assert len(ids) == 2
    assert "call_0" not in ids
    assert all(len(each) <= 40 for each in ids), "OpenAI takes no longer ones"


def test_tool_choice_none_offers_no_client_tools() -> None:
    shop = Shop()
    mine = agent("Hi.", tools=[shop.tool])
    with served(mine) as url:
        post(url, ask(tools=[DOOR], tool_choice="none"))
    assert [tool["function"]["name"] for tool in requests(mine)[0].tools] == ["charge"]


def test_a_forced_tool_is_forced() -> None:
    mine = agent(call("open_door", {"n": 1}))
    with served(mine) as url:
        post(url, ask(tools=[DOOR], tool_choice={"type": "function", "function": {"name": "open_door"}}))
    assert requests(mine)[0].tool_choice == "open_door"


def test_a_missing_tool_result_resumes_nothing() -> None:
    mine = agent([call("open_door", {"n": 1}), call("open_door", {"n": 2})], "Hm.")
    with served(mine) as url:
        message = message_of(post(url, ask(tools=[DOOR])))
        half = {"messages": [HI, *answers(message)[:-1]], "tools": [DOOR]}
        assert message_of(post(url, half))["content"] == "Hm."
    assert_valid(list(requests(mine)[1].messages))


@function_tool(needs_approval=True)
def wipe() -> str:
    """Delete all."""
    return "deleted"


@tool(scope="owner")
def prices() -> str:
    """Say what it costs."""
    return "7"


class Desk(Skill):
    """A tool of a skill."""

    @tool
    def note(self) -> str:
        """Write down."""
        return "noted"


def named(name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


@pytest.mark.parametrize(
    "name", ["wipe", "prices", "note", "transfer_to_b", "transfer_to_c", "deep_tool", "of_the_owner", "ask_d"]
)
def test_a_client_s_tool_takes_no_place_of_the_server_s(name: str) -> None:
    """Whichever agent of the graph it is, and whether or not this client would be offered it."""

    @tool
    def deep_tool() -> str:
        """Do."""
        return "done"

    c = agent(name="C", tools=[deep_tool])
    b = agent(name="B", handoffs=["C"])
    d = agent(name="D")
    mine = agent("Hi.", tools=[wipe, prices, d.as_tool("ask_d")], skills=[Desk()], handoffs=[b])
    settings = RunConfig(agents=[c], external_tools=[named("of_the_owner")])
    with served(mine, ServeConfig(run_config=settings)) as url:
        response = post(url, ask(tools=[DOOR, named(name)]))
        other = post(url, ask(tools=[DOOR, named(name + "2")]))
    assert (response.status_code, other.status_code) == (400, 200)
    error = response.json()["error"]
    assert (error["param"], name in error["message"]) == ("tools[1].function.name", True)


def test_an_owner_may_refuse_all_tools_of_clients() -> None:
    with served(agent("Hi.", "Hi."), ServeConfig(client_tools=False)) as url:
        refused = post(url, ask(tools=[DOOR]))
        without = [post(url, ask(tools=tools, tool_choice="none")) for tools in ([], [DOOR])]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "client_tools_not_allowed")
    assert [response.status_code for response in without] == [200, 200]


def test_whether_clients_may_send_tools_is_yes_or_no() -> None:
    with pytest.raises(ConfigError, match="client_tools must be True or False"):
        ServeConfig(client_tools=["open_door"])  # type: ignore[arg-type]
