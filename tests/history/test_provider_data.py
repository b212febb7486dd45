"""A provider gets its private fields back byte for byte; other providers never get them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from routelock import Agent, RunConfig, Runner, RunResult, function_tool, handoff
from routelock.errors import InvalidRequest
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.history.filters import HandoffInputData, remove_all_tools
from routelock.history.messages import Message
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "And now?"}
PRIVATE = ("thinking_blocks", "signature", "provider_specific_fields", "reasoning_items", "xyzzy")


@function_tool
async def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


def signed(text: str | None, *names: str, mark: str) -> dict[str, Any]:
    """A message of a thinking model: blocks, signatures and unknown keys, in an unusual order."""
    calls = [
        {
            "provider_specific_fields": {"thought_signature": f"{mark}-{index}-xyzzy"},
            "function": {"arguments": '{"at": 1}' if name == "look" else "{}", "name": name},
            "id": f"{mark}_{index}",
            "type": "function",
        }
        for index, name in enumerate(names)
    ]
    return {
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": f"{mark}+/=xyzzy"}],
        "role": "assistant",
        "content": text,
        "reasoning_items": [{"id": f"{mark}-xyzzy", "encrypted_content": "\u2028"}],
        **({"tool_calls": calls} if calls else {}),
        "odd": None,
    }


class Strict:
    """A provider with scripted replies that refuses a history in which its own messages were changed."""

    def __init__(self, family: str, replies: Sequence[dict[str, Any]]) -> None:
        self.name = self.family = family
        self.replies = [json.dumps(reply) for reply in replies]
        self.said: list[str] = []
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        self.requests.append(request)
        back = [json.dumps(message) for message in request.messages if message["role"] == "assistant"]
        if missing := [each for each in self.said if each not in back]:
            raise InvalidRequest(f"{self.family}: not what I said: {missing[0]}")
        for each in back:
            if each not in self.said and any(key in each for key in PRIVATE):
                raise InvalidRequest(f"{self.family}: I cannot read {each}")
        self.said.append(self.replies.pop(0))
        message: Message = json.loads(self.said[-1])
        if request.stream and message.get("content"):
            yield TextDelta(str(message.get("content")))
        yield MessageDone(message=message)


def hop(x: Strict, y: Strict, **options: Any) -> Agent[Any]:
    """X answers first, hands over to Y, which hands back."""
    target = Agent("Y", model=y, tools=[look], handoffs=["X"])
    return Agent("X", model=x, tools=[look], handoffs=[handoff(target, **options)])


def there_and_back() -> tuple[Strict, Strict]:
    x = Strict(
        "x",
        [
            signed("One moment.", "look", "look", mark="x1"),
            signed(None, "transfer_to_y", mark="x2"),
            signed("Done.", mark="x3"),
            signed("Again.", mark="x4"),
        ],
    )
    y = Strict("y", [signed(None, "look", mark="y1"), signed(None, "transfer_to_x", mark="y2")])
    return x, y


async def play(agent: Agent[Any], messages: Any, *, stream: bool) -> RunResult[Any]:
    if stream:
        return await Runner.run_streamed(agent, messages).drain()
    return await Runner.run(agent, messages)


both = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@both
async def test_signatures_return_in_later_turns_and_after_handoffs(stream: bool) -> None:
    """Parallel calls, streamed and not; absent for the other provider, present again after it."""
    x, y = there_and_back()
    result = await play(hop(x, y), "Hi", stream=stream)
    assert result.final_output == "Done."
    assert len(x.requests) == 3
    assert len(y.requests) == 2


@both
@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "saved as JSON"])
async def test_signatures_come_back_in_the_next_run(stream: bool, saved: bool) -> None:
    """Through `to_input_list`, also when it was stored as JSON in between."""
    x, y = there_and_back()
    agent = hop(x, y)
    first = await play(agent, "Hi", stream=stream)
    history = first.to_input_list()
    history = json.loads(json.dumps(history)) if saved else history
    second = await play(agent, [*history, USER], stream=stream)
    assert second.final_output == "Again."
    assert problems(second.to_input_list()) == []


@both
async def test_the_next_run_may_start_with_another_provider(stream: bool) -> None:
    """What X wrote in an earlier run is not shown to Y, and is still there for X afterwards."""
    x, y = there_and_back()
    first = await play(hop(x, y), "Hi", stream=stream)
    z = Strict("z", [signed("Z here.", mark="z1")])
    second = await play(Agent("Z", model=z), [*first.to_input_list(), USER], stream=stream)
    third = await play(Agent("X", model=x), [*second.to_input_list(), USER], stream=stream)
    assert (second.final_output, third.final_output) == ("Z here.", "Again.")


async def test_handlers_of_one_family_read_one_another() -> None:
    x = Strict("same", [signed(None, "transfer_to_y", mark="x1")])
    y = Strict("same", [signed("Hi", mark="y1")])
    x.name, y.name = "one model", "another model"
    y.said = [json.dumps(signed(None, "transfer_to_y", mark="x1"))]
    shown = RunConfig(foreign_calls="shown")
    assert (await Runner.run(hop(x, y), "Hi", run_config=shown)).final_output == "Hi"


async def test_the_transcript_keeps_everything() -> None:
    """The result is lossless, whatever each provider was shown."""
    x, y = there_and_back()
    result = await Runner.run(hop(x, y), "Hi")
    said = [json.dumps(message) for message in result.messages if message["role"] == "assistant"]
    assert said == [x.said[0], x.said[1], y.said[0], y.said[1], x.said[2]]
    origins = [item.origin for item in result.items if item.kind == "model"]
    assert origins == ["x", "x", "y", "y", "x"]


async def test_call_with_a_new_id_keeps_its_other_fields() -> None:
    """A repeated id is replaced, its signature stays."""
    seen: list[Any] = []

    def last(request: Request) -> str:
        seen.extend(request.messages)
        return "Done."

    twice = signed(None, "look", mark="x1")
    script = ScriptedHandler([twice, twice, last])
    await Runner.run(Agent("X", model=script, tools=[look]), "Hi")
    fields = [made["provider_specific_fields"] for message in seen for made in message.get("tool_calls", ())]
    assert fields == [{"thought_signature": "x1-0-xyzzy"}] * 2


async def test_a_filter_removes_reasoning_together_with_its_calls() -> None:
    """No dangling reasoning item is left for the next turn of the same provider."""
    shown: list[Message] = []

    def last(request: Request) -> str:
        shown.extend(request.messages)
        return "Done."

    script = ScriptedHandler([signed("Over.", "transfer_to_y", mark="x1"), last])
    target = Agent("Y", model=script)
    agent = Agent("X", model=script, handoffs=[handoff(target, input_filter=remove_all_tools)])
    await Runner.run(agent, "Hi")
    assert shown == [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Over."}]


def _plain(data: HandoffInputData) -> HandoffInputData:
    messages: list[Message] = [{**item.message} for item in data.new_items]  # type: ignore[misc]
    return data.clone(new_items=messages)


@pytest.mark.parametrize(
    "options",
    [{"nest_handoff_history": True}, {"input_filter": _plain}],
    ids=["history mapper", "filter that writes plain messages"],
)
async def test_filters_and_mappers_pass_on_portable_messages(options: dict[str, Any]) -> None:
    """A message that passed through the app's code still is not shown whole to another family."""
    parts: Any = [
        {"type": "thinking", "thinking": "Hm.", "signature": "xyzzy"},
        {"type": "text", "text": "Hi"},
    ]
    written = {**signed(None, "transfer_to_y", mark="x1"), "content": parts}
    x, y = Strict("x", [written]), Strict("y", [signed("Hi", mark="y1")])
    agent = Agent("X", model=x, handoffs=[handoff(Agent("Y", model=y), **options)])
    config = RunConfig(handoff_history_mapper=lambda messages: messages)
    assert (await Runner.run(agent, "Hi", run_config=config)).final_output == "Hi"
    assert y.requests[0].messages[1].get("content") == parts[1:]


async def test_filter_may_insert_an_earlier_conversation() -> None:
    """Each family gets its own messages complete, and none gets routelock's private keys."""
    x, y = there_and_back()
    earlier = (await Runner.run(hop(x, y), "Hi")).to_input_list()

    def recall(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=[*earlier, *data.input_history])

    z = Strict("z", [signed(None, "transfer_to_x", mark="z1")])
    again = Agent("X", model=x)
    x.replies = x.replies[-1:]
    agent = Agent("Z", model=z, handoffs=[handoff(again, input_filter=recall)])
    assert (await Runner.run(agent, "Hi")).final_output == "Again."
    assert "_origin" not in json.dumps(list(x.requests[-1].messages))


async def test_a_private_key_is_never_sent() -> None:
    """Keys that begin with an underscore are routelock's own, or the app's."""
    script = ScriptedHandler(["Hi"])
    await Runner.run(Agent("A", model=script), [{"role": "user", "content": "Hi", "_origin": "x", "_id": 7}])
    assert script.requests[0].messages == ({"role": "user", "content": "Hi"},)


async def test_messages_that_anyone_can_read_are_not_marked() -> None:
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hello."])), "Hi")
    assert result.to_input_list()[-1] == {"role": "assistant", "content": "Hello."}


keys = st.sampled_from(["thinking_blocks", "signature", "provider_specific_fields", "odd", "reasoning_items"])
leaves = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(leaves, lambda each: st.lists(each, max_size=3))


@given(extra=st.dictionaries(keys, values, max_size=4), on_call=st.dictionaries(keys, values, max_size=2))
@examples(20)
async def test_unknown_keys_survive_handoffs_and_sessions(
    extra: dict[str, Any], on_call: dict[str, Any]
) -> None:
    """Unknown keys survive, whatever they are; only those of the same family are shown them."""
    made = {**call("transfer_to_y", id="c"), **on_call}
    written = {"role": "assistant", **extra, "content": "Over.", "tool_calls": [made]}
    back = {"role": "assistant", **extra, "content": "Back.", "tool_calls": [call("transfer_to_x", id="d")]}
    x, y = ScriptedHandler([written, "Done.", "Again."], name="x"), ScriptedHandler([back], name="y")
    target = Agent("Y", model=y, handoffs=["X"])
    agent = Agent("X", model=x, handoffs=[target])
    first = await Runner.run(agent, "Hi")
    await Runner.run(agent, [*json.loads(json.dumps(first.to_input_list())), USER])
    for request in x.requests[1:]:
        assert json.dumps(request.messages[1]) == json.dumps(written)
    assert y.requests[0].messages[0] == {"role": "assistant", "content": "Over."}


@pytest.mark.parametrize("spoil", ["touched", "foreign"])
async def test_test_double_refuses_invalid_messages(spoil: str) -> None:
    """Else the tests above prove nothing."""
    x = Strict("x", [signed("One.", mark="x1"), signed("Two.", mark="x2")])
    first = await Runner.run(Agent("X", model=x), "Hi")
    history = first.to_input_list()
    if spoil == "touched":
        history[1] = {"role": "assistant", "content": "One!"}
    else:
        history.append({"role": "assistant", "content": "?", "thinking_blocks": [{"type": "thinking"}]})
    with pytest.raises(InvalidRequest):
        await Runner.run(Agent("X", model=x), [*history, USER])


async def test_unknown_keys_of_a_stored_reply_are_not_sent() -> None:
    """The author is unknown, so keys that no vendor has may be columns of a database."""
    stored: dict[str, Any] = {
        **{
            "role": "assistant",
            "content": "Hello",
            "reasoning_content": "Hm.",
            "email": "a@b.test",
            "row": 7,
        },
        "tool_calls": [{**call("look", {"at": 1}, id="a"), "row": 8}],
    }
    answer = {"role": "tool", "tool_call_id": "a", "content": "seen"}
    model = ScriptedHandler(["Done."])
    result = await Runner.run(Agent("A", model=model, tools=[look]), [USER, stored, answer])
    (shown,) = [message for message in model.requests[0].messages if message["role"] == "assistant"]
    assert shown == {
        **{"role": "assistant", "content": "Hello", "reasoning_content": "Hm."},
        "tool_calls": [call("look", {"at": 1}, id="a")],
    }
    assert result.messages[1] == stored, "the transcript keeps them"


async def test_unknown_keys_of_a_stored_call_are_not_sent() -> None:
    """What vendors write there stays."""
    function = {"name": "look", "arguments": "{}", "thought_signature": "c2ln"}
    made = {"id": "c1", "type": "function", "function": function}
    stored: Any = {**made, "seconds": 3, "function": {**function, "timestamp": "2026-01-01"}}
    model = ScriptedHandler(["Done."])
    answer: Any = {"role": "tool", "tool_call_id": "c1", "content": "seen"}
    calling: Any = {"role": "assistant", "content": None, "tool_calls": [stored]}
    await Runner.run(Agent("A", model=model), [USER, calling, answer])
    assert model.requests[0].messages[1].get("tool_calls") == [made]
