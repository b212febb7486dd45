"""Tools that the caller runs: a call of one ends the run, and its answer starts the next."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from executors import Recording, Replaying
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import QUICK, Played, Voice, both
from scripted_agents import outcome

from routelock import (
    Agent,
    HandoffRequest,
    RunConfig,
    RunHooks,
    Runner,
    RunResult,
    Tool,
    function_tool,
    handoff,
)
from routelock.errors import ConfigError, MaxTurnsExceeded, ModelBehaviorError, ToolError
from routelock.handlers.events import MessageDone, TextDelta, ToolCallDelta
from routelock.history.messages import Message, calls_of, text_of
from routelock.history.repair import NO_ANSWER
from routelock.run.events import HandoffFailed, ToolCalled, ToolOutput
from routelock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio

WHERE = {
    "type": "function",
    "function": {"name": "where", "parameters": {"type": "object", "properties": {}}},
}
CLICK = Tool(name="click", on_invoke_tool=lambda context, arguments: "never run here")
BOTH = [WHERE, CLICK]


@function_tool
async def add(a: int, b: int) -> int:
    """Add."""
    await anyio.lowlevel.checkpoint()
    return a + b


def added(n: int, **options: Any) -> Any:
    return call("add", {"a": n, "b": 0}, **options)


def guide(*replies: Any, tools: Sequence[Tool] = (add,), **options: Any) -> Agent[Any]:
    return Agent("A", "Guide.", model=ScriptedHandler(replies, name="model"), tools=tools, **options)


async def asked(*replies: Any, make: Callable[..., Agent[Any]] = guide, **settings: Any) -> Played:
    return await both(lambda: make(*replies), **{"external_tools": BOTH, **settings})


def tool_messages(result: RunResult[Any]) -> dict[str, str]:
    return {
        str(message.get("tool_call_id")): text_of(message)
        for message in result.to_input_list()
        if message["role"] == "tool"
    }


def answers(*pairs: tuple[str, str]) -> list[Message]:
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in pairs]


# -- what is offered --


async def test_they_are_offered_after_the_agents_own() -> None:
    played = await asked("Hi")
    names = [spec["function"]["name"] for spec in played.result.calls[0].tools]
    assert names == ["add", "where", "click"]


async def test_they_are_offered_as_they_are() -> None:
    played = await asked("Hi")
    assert played.result.calls[0].tools[1:] == (WHERE, CLICK.spec)


async def test_every_agent_is_offered_them() -> None:
    def make() -> Agent[Any]:
        b = Agent("B", model=Voice("b", call("where", id="w")))
        return guide(call("transfer_to_b"), handoffs=[b])

    played = await asked(make=make)
    assert [made["id"] for made in played.result.pending] == ["w"]
    assert played.result.last_agent.name == "B"


async def test_external_tool_replaces_an_own_tool_of_that_name() -> None:
    mine = {"type": "function", "function": {"name": "add", "description": "Mine."}}
    played = await asked(added(1, id="c"), external_tools=[mine])
    assert [made["id"] for made in played.result.pending] == ["c"]
    assert played.result.calls[0].tools == (mine,)


@pytest.mark.parametrize("reachable", [True, False])
async def test_external_tool_named_like_a_handoff_is_refused(reachable: bool) -> None:
    """Whether of the first agent or of one that comes later: a transfer would never happen."""
    c = Agent("C", model=ScriptedHandler([]))
    b = Agent("B", model=ScriptedHandler([]), handoffs=[c])
    agent = guide(handoffs=[b])
    name = "transfer_to_b" if reachable else "transfer_to_c"
    config = RunConfig(external_tools=[{"type": "function", "function": {"name": name}}])
    with pytest.raises(ConfigError, match=f"The external tool '{name}' is named like a handoff of agent"):
        Runner.run_streamed(agent, "Hi", run_config=config)


async def test_external_tool_named_like_an_exposed_handler_is_refused() -> None:
    agent = guide(handlers=[Voice("s", expose=True)])
    config = RunConfig(external_tools=[{"type": "function", "function": {"name": "transfer_to_s"}}])
    with pytest.raises(ConfigError, match="is named like a handoff"):
        Runner.run_streamed(agent, "Hi", run_config=config)


@pytest.mark.parametrize(
    "tool", [{}, {"type": "function"}, {"function": {}}, {"function": {"name": ""}}, 5, "add"]
)
def test_what_has_no_name_is_no_tool(tool: Any) -> None:
    with pytest.raises(ConfigError, match="external_tools must be a list of Tools, or of dicts such as"):
        RunConfig(external_tools=[tool])


# -- the run ends --


async def test_a_call_ends_the_run() -> None:
    played = await asked(call("where", id="w"))
    result = played.result
    assert (result.stop_reason, result.final_output) == ("requires_action", None)
    assert result.pending == (
        {"id": "w", "type": "function", "function": {"name": "where", "arguments": "{}"}},
    )


async def test_nothing_of_it_is_run_here() -> None:
    played = await asked(call("click", id="c"))
    assert played.answers == []
    assert played.kinds == ["agent_updated", "message_done", "run_done"]


async def test_several_are_pending_in_call_order() -> None:
    played = await asked([call("click", id="2"), call("where", id="1"), call("click", id="3")])
    assert [made["id"] for made in played.result.pending] == ["2", "1", "3"]


@pytest.mark.parametrize("order", list(itertools.permutations(["add", "where", "nothing"])))
async def test_siblings_are_answered_once_whatever_the_order(order: tuple[str, ...]) -> None:
    """Webagents dropped the results of its own tools."""
    calls = [added(7, id="add") if name == "add" else call(name, id=name) for name in order]
    played = await asked(calls)
    assert set(tool_messages(played.result)) == {"add", "nothing"}
    assert tool_messages(played.result)["add"] == "7"
    assert [made["id"] for made in played.result.pending] == ["where"]
    called = [event.call_id for event in played.events if isinstance(event, ToolCalled)]
    outputs = [event.call_id for event in played.events if isinstance(event, ToolOutput)]
    assert called == ["add"]
    assert sorted(outputs) == ["add", "nothing"]


async def test_arguments_and_text_are_shown_once() -> None:
    """A client of webagents got the arguments twice and the text three times."""
    said = reply("Let me look.", calls=[call("click", {"x": 1}, id="c")])
    played = await asked(said)
    assert "".join(event.text for event in played.events if isinstance(event, TextDelta)) == "Let me look."
    deltas = [event.arguments for event in played.events if isinstance(event, ToolCallDelta)]
    assert "".join(deltas) == '{"x": 1}'


async def test_broken_arguments_are_the_callers_to_judge() -> None:
    played = await asked(call("click", "{", id="c"))
    assert played.result.pending[0]["function"]["arguments"] == "{"
    assert played.result.errors == ()


async def test_missing_call_id_is_the_same_everywhere() -> None:
    made: Any = {"type": "function", "function": {"name": "where", "arguments": "{}"}}
    script: list[Any] = [MessageDone(message={"role": "assistant", "content": None, "tool_calls": [made]})]
    played = await asked(script)
    (pending,) = played.result.pending
    (asked_,) = [item.message for item in played.result.new_items]
    assert pending["id"] == calls_of(asked_)[0]["id"] != ""


async def test_it_is_no_end_of_the_agent() -> None:
    seen: list[str] = []

    class Watch(RunHooks):
        async def on_agent_end(self, *_: Any) -> None:
            seen.append("end")

        async def on_tool_start(self, *_: Any) -> None:
            seen.append("tool")

    config = RunConfig(external_tools=BOTH)
    await Runner.run(guide([call("where"), added(1)]), "Hi", hooks=Watch(), run_config=config)
    assert seen == ["tool"]


async def test_output_guardrails_have_nothing_to_judge() -> None:
    seen: list[Any] = []

    def note(context: Any, agent: Any, output: Any) -> Any:
        seen.append(output)

    played = await asked(call("where"), make=lambda *replies: guide(*replies, output_guardrails=[note]))
    assert (played.result.stop_reason, seen) == ("requires_action", [])


async def test_the_last_turn_will_do() -> None:
    played = await asked(call("where"), max_turns=1)
    assert played.error is None


async def test_own_tool_beside_it_can_end_the_run() -> None:
    def fail(context: Any, arguments: str) -> str:
        raise ValueError("broken")

    failing = Tool(name="fail", on_invoke_tool=fail, on_error="raise")
    played = await asked(
        [call("where", id="w"), call("fail", id="f")], make=lambda *r: guide(*r, tools=[failing])
    )
    assert isinstance(played.error, ToolError)
    assert played.result.pending == ()
    assert tool_messages(played.result)["w"] == NO_ANSWER


async def test_unknown_tool_beside_it_can_end_the_run() -> None:
    played = await asked([call("where"), call("nothing")], raise_on=["unknown_tool"])
    assert isinstance(played.error, ModelBehaviorError)
    assert played.result.pending == ()


# -- with transfers --


def with_b(*replies: Any) -> Agent[Any]:
    return guide(*replies, handoffs=[Agent("B", model=Voice("b"))])


@pytest.mark.parametrize("order", [1, -1])
async def test_handoff_beside_an_external_call_is_not_carried_out(order: int) -> None:
    """Who would be asked next is not who made the call."""
    played = await asked([call("where", id="w"), call("transfer_to_b", id="t")][::order], make=with_b)
    assert played.result.last_agent.name == "A"
    assert played.statuses == [("A", "B", "not_taken")]
    assert tool_messages(played.result)["t"].startswith("The caller's tools come first")
    assert [made["id"] for made in played.result.pending] == ["w"]
    assert any(isinstance(event, HandoffFailed) for event in played.events)


async def test_handoff_request_beside_it_is_not_carried_out() -> None:
    def make(*replies: Any) -> Agent[Any]:
        ask = Tool(name="ask", on_invoke_tool=lambda context, arguments: HandoffRequest("s", reason="why"))
        return guide(*replies, tools=[ask], handlers=[Voice("s")])

    played = await asked([call("ask", id="a"), call("where", id="w")], make=make)
    assert played.result.last_handler == "model"
    assert tool_messages(played.result)["a"].startswith("The caller's tools come first")
    (record,) = played.result.handoffs
    assert (outcome(record), record.reason) == ("not_taken", "why")


async def test_skipped_handoff_does_not_call_its_callback() -> None:
    seen: list[Any] = []

    def make(*replies: Any) -> Agent[Any]:
        b = Agent("B", model=Voice("b"))
        return guide(*replies, handoffs=[handoff(b, on_handoff=seen.append)])

    await asked([call("transfer_to_b"), call("where")], make=make)
    assert seen == []


# -- and goes on --


async def test_the_input_list_leaves_open_what_is_pending() -> None:
    played = await asked([call("where", id="w"), added(1, id="a"), call("click", id="c")])
    messages = played.result.to_input_list()
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert_valid([*messages, *answers(("w", "here"), ("c", "done"))])


async def resume(first: RunResult[Any], more: Sequence[Message], reply_: Any = "Turn left.") -> Any:
    model = ScriptedHandler([reply_], name="model")
    agent = dataclasses.replace(first.last_agent, model=model)
    config = RunConfig(external_tools=BOTH, retry=QUICK)
    result = await Runner.run(agent, [*first.to_input_list(), *more], run_config=config)
    assert_valid(model.requests[0].messages)
    return result, model.requests[0].messages


async def test_a_run_goes_on_with_the_answers() -> None:
    played = await asked([call("where", id="w"), added(1, id="a")])
    result, shown = await resume(played.result, answers(("w", "At the station.")))
    assert result.final_output == "Turn left."
    texts = {
        message.get("tool_call_id"): message.get("content") for message in shown if message["role"] == "tool"
    }
    assert texts == {"w": "At the station.", "a": "1"}
    assert result.repairs == ()


async def test_the_order_of_the_answers_is_free() -> None:
    played = await asked([call("where", id="w"), added(1, id="a"), call("click", id="c")])
    _, shown = await resume(played.result, answers(("c", "clicked"), ("w", "here")))
    assert len([message for message in shown if message["role"] == "tool"]) == 3


@pytest.mark.parametrize("given_", [[], ["w"], ["c"]])
async def test_answers_that_are_missing_are_filled_in(given_: list[str]) -> None:
    """A user may go on without them; the request stays valid, and says what is missing."""
    played = await asked([call("where", id="w"), call("click", id="c")])
    more = [*answers(*[(call_id, "done") for call_id in given_]), {"role": "user", "content": "Go on."}]
    result, shown = await resume(played.result, more)
    assert result.final_output == "Turn left."
    texts = {
        message.get("tool_call_id"): message.get("content") for message in shown if message["role"] == "tool"
    }
    assert texts == {call_id: "done" if call_id in given_ else NO_ANSWER for call_id in ("w", "c")}


async def test_result_for_an_unknown_call_is_ignored() -> None:
    played = await asked(call("where", id="w"))
    result, _ = await resume(played.result, answers(("w", "here"), ("other", "what?")))
    assert result.final_output == "Turn left."


async def test_it_may_happen_again_and_again() -> None:
    agent = guide(*[call("where", id="w")] * 3, "There.")
    config = RunConfig(external_tools=BOTH)
    messages: list[Message] = [{"role": "user", "content": "Hi"}]
    ids: list[str] = []
    for _ in range(3):
        result = await Runner.run(agent, messages, run_config=config)
        (pending,) = result.pending
        ids.append(pending["id"])
        messages = [*result.to_input_list(), *answers((pending["id"], "here"))]
    result = await Runner.run(agent, messages, run_config=config)
    assert result.final_output == "There."
    assert len(set(ids)) == 3


async def test_a_result_with_nothing_pending_has_no_open_calls() -> None:
    played = await asked("Hi")
    assert played.result.pending == ()


@given(
    order=st.lists(
        st.sampled_from(["add", "where", "click", "nothing", "transfer_to_b"]), min_size=1, max_size=6
    )
)
async def test_whatever_is_called_is_answered_or_pending(order: list[str]) -> None:
    """Every call exactly once, one way or the other; and the conversation can go on."""
    calls = [
        added(n, id=f"c{n}") if name == "add" else call(name, id=f"c{n}") for n, name in enumerate(order)
    ]
    b = Agent("B", model=Voice("b", "B here."))
    agent = guide(calls, "Sorry.", handoffs=[b])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(external_tools=BOTH))
    pending = [made["id"] for made in result.pending]
    assert pending == [
        made["id"] for made, name in zip(calls, order, strict=True) if name in ("where", "click")
    ]
    assert (result.stop_reason == "requires_action") == bool(pending)
    answered = [
        str(item.message.get("tool_call_id")) for item in result.items if item.message["role"] == "tool"
    ]
    assert sorted([*answered, *pending]) == sorted(made["id"] for made in calls)
    assert_valid([*result.to_input_list(), *answers(*[(call_id, "x") for call_id in pending])])


# -- the seam, and leaving --


async def test_a_replayed_run_ends_with_the_same_calls() -> None:
    recording = Recording()
    for executor in (recording, Replaying(recording)):
        config = RunConfig(executor=executor, external_tools=BOTH, run_id="r")
        result = await Runner.run(guide([call("where", id="w"), added(1)]), "Hi", run_config=config)
        assert [made["id"] for made in result.pending] == ["w"]
    assert [step.key for step in recording.calls if step.op == "tool"] == ["t1.tool.add.call_1_1"]


async def test_cancelled_run_has_no_pending_calls() -> None:
    """The caller was not told to act."""
    scope = anyio.CancelScope()

    @function_tool
    async def wait() -> str:
        """Wait."""
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    agent = guide([call("where", id="w"), call("wait", id="x")], tools=[wait])
    stream = Runner.run_streamed(agent, "Hi", run_config=RunConfig(external_tools=BOTH))
    with scope:
        await stream.drain()
    assert (stream.result.stop_reason, stream.result.pending) == ("unfinished", ())
    assert_valid(stream.result.to_input_list())


async def test_turns_before_it_count_as_always() -> None:
    played = await asked(added(1), added(2), call("where"), max_turns=2)
    assert isinstance(played.error, MaxTurnsExceeded)


async def test_mistake_beside_it_does_not_end_the_run() -> None:
    """The caller is asked first; whether the model mends its ways shows later."""
    played = await asked([call("where"), call("nothing")], max_mistakes=1)
    assert played.result.stop_reason == "requires_action"


async def test_what_is_pending_may_be_edited() -> None:
    """A caller that tidies up the arguments must not rewrite what the model said."""
    played = await asked(call("click", {"x": 1}, id="c"))
    played.result.pending[0]["function"]["arguments"] = "{}"
    said = calls_of(played.result.new_items[0].message)
    assert said[0]["function"]["arguments"] == '{"x": 1}'


async def test_external_calls_are_shown_as_calls_to_every_agent() -> None:
    """Every agent can call them, so another agent's call of one is shown as a call."""
    model = ScriptedHandler([call("transfer_to_b"), call("where", id="w"), "Done."])
    a = Agent("a", model=model, handoffs=[Agent("b", model=model)])
    config = RunConfig(external_tools=BOTH)
    first = await Runner.run(a, "Where?", run_config=config)
    answer: Any = {"role": "tool", "tool_call_id": "w", "content": "Rome"}
    second = await Runner.run(a, [*first.to_input_list(), answer], run_config=config)
    assert second.last_agent is a
    shown = second.calls[-1].messages
    assert "w" in [each["id"] for message in shown for each in calls_of(message)]
