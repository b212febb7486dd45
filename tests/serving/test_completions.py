"""Deltas and whole messages are made from events, and are the same."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import (
    Agent,
    GuardrailResult,
    RunConfig,
    Runner,
    Usage,
    function_handler,
    function_tool,
    handoff,
)
from routelock.errors import LimitExceeded
from routelock.handlers.events import AttemptFailed, MessageDone, ReasoningDelta, TextDelta
from routelock.handlers.port import Request
from routelock.history import Citation
from routelock.history.vendor_calls import annotation_of
from routelock.run.events import RunDone
from routelock.serving.completions import ChatReply, Completion, DeltaWriter, usage_body
from routelock.serving.served_run import RunEnd
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio

COMPLETION = Completion(id="c1", model="A", created=7)
NO_USAGE = Usage()


class Order(pydantic.BaseModel):
    number: int


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


@dataclass
class Said:
    deltas: list[dict[str, Any]]
    finish: str

    @property
    def message(self) -> dict[str, Any]:
        body = COMPLETION.whole(self.deltas, self.finish, NO_USAGE)
        message: dict[str, Any] = body["choices"][0]["message"]
        return message


async def said(
    agent: Agent[Any], config: RunConfig | None = None, *, hold: bool = False, max_turns: int = 10
) -> Said:
    """Return the deltas of a streamed run."""
    writer, deltas = DeltaWriter(agents=agent.graph.keys(), hold=hold), []
    async with Runner.run_streamed(agent, "Hi", max_turns=max_turns, run_config=config) as stream:
        async for event in stream:
            deltas += writer.take(event, lambda: stream.result)
            if isinstance(event, RunDone):
                last, finish = writer.finish(event.result, event.result.pending)
                return Said([*deltas, *last], finish)
    raise AssertionError("the run ended without RunDone")


async def said_whole(
    agent: Agent[Any], config: RunConfig | None = None, *, hold: bool = False, max_turns: int = 10
) -> Said:
    """Return the deltas of a run that is not streamed."""
    result = await Runner.run(agent, "Hi", max_turns=max_turns, run_config=config)
    writer = DeltaWriter(agents=agent.graph.keys(), hold=hold)
    deltas = [delta for each in writer.replies(result) for delta in each]
    last, finish = writer.finish(result, result.pending)
    return Said([*deltas, *last], finish)


def agent(*replies: Any, name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler(replies, name=name), **options)


async def test_texts_of_several_replies_are_a_blank_line_apart() -> None:
    looks = reply("One moment.", calls=[call("look_up", {"order": 1})])
    made = await said(agent(looks, looks, "It is here.", tools=[look_up]))
    assert made.message["content"] == "One moment.\n\nOne moment.\n\nIt is here."
    assert made.finish == "stop"


async def test_blank_texts_are_left_out() -> None:
    looks = reply(" \n", calls=[call("look_up", {"order": 1})])
    made = await said(agent(looks, "\n\nHere.", tools=[look_up]))
    assert made.message["content"] == "\n\nHere."


def sourced(context: Any, agent: Any, output: Any) -> GuardrailResult:
    return GuardrailResult(False, answer=None if "source" in str(output) else "Name a source.")


def careful(**options: Any) -> Agent[Any]:
    looks = reply("One moment.", calls=[call("look_up", {"order": 1})])
    again = reply("It is here.", reasoning="Hm.")
    options = {"tools": [look_up], "output_guardrails": [sourced], **options}
    return agent(looks, again, "It is here, by source 1.", **options)


@pytest.mark.parametrize("hold", [False, True])
async def test_whole_message_has_no_answer_that_a_guardrail_refused(hold: bool) -> None:
    made = await said_whole(careful(), hold=hold)
    assert made.message["content"] == "One moment.\n\nIt is here, by source 1."
    assert "reasoning_content" not in made.message


async def test_held_text_has_no_answer_that_a_guardrail_refused() -> None:
    made = await said(careful(), hold=True)
    assert made.message["content"] == "One moment.\n\nIt is here, by source 1."


async def test_text_that_was_streamed_before_a_guardrail_refused_it_stays() -> None:
    made = await said(careful())
    assert made.message["content"] == "One moment.\n\nIt is here.\n\nIt is here, by source 1."


async def test_answer_of_the_app_replaces_the_refused_ones() -> None:
    config = RunConfig(max_mistakes=2, on_invalid_output=lambda error: "Ask a person.")
    made = await said_whole(agent("It is.", "It is!", output_guardrails=[sourced]), config)
    assert made.message["content"] == "Ask a person."


RAIN = Citation(url="https://a.example/rain", title="Rain", start=3, end=8)


def passages(made: Said) -> list[str]:
    """Return the cited passages of a message."""
    cited = [each["url_citation"] for each in made.message["annotations"]]
    return [made.message["content"][each["start_index"] : each["end_index"]] for each in cited]


async def test_citations_are_annotations() -> None:
    made = await said(agent(reply("It rains.", citations=[RAIN])))
    fields = {"url": RAIN.url, "title": "Rain", "start_index": 3, "end_index": 8}
    assert made.message["annotations"] == [{"type": "url_citation", "url_citation": fields}]


async def test_streamed_and_whole_messages_have_the_same_annotations() -> None:
    whole = await said_whole(agent(reply("It rains.", citations=[RAIN])))
    assert whole.message == (await said(agent(reply("It rains.", citations=[RAIN])))).message


async def test_citations_of_later_texts_are_placed_in_the_message() -> None:
    looks = reply("It rains?", calls=[call("look_up", {"order": 1})], citations=[RAIN])
    later = replace(RAIN, start=5, end=10)
    made = await said(agent(looks, reply("\n\nIt pours.", citations=[later]), tools=[look_up]))
    assert passages(made) == ["rains", "pours"]


async def test_all_annotations_are_in_one_chunk() -> None:
    """The openai package cannot append to a list whose entries have no index."""
    looks = reply("It rains?", calls=[call("look_up", {"order": 1})], citations=[RAIN])
    made = await said(agent(looks, reply("It rains.", citations=[RAIN]), tools=[look_up]))
    form = ChatReply(COMPLETION, include_usage=False)
    result = await Runner.run(agent("x"), "Hi")
    end = RunEnd(deltas=made.deltas[-1:], finish="stop", result=result, waiting=None)
    chunks: list[Any] = [*form.take(made.deltas[:-1], ends=True), *form.finish(end), *form.close()]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]"]
    assert [len(delta["annotations"]) for delta in deltas if "annotations" in delta] == [2]


async def test_a_citation_without_a_passage_stands_at_the_end() -> None:
    made = await said(agent(reply("It rains.", citations=[Citation(url="https://a.example")])))
    cited = made.message["annotations"][0]["url_citation"]
    assert cited == {
        "url": "https://a.example",
        "title": "https://a.example",
        "start_index": 9,
        "end_index": 9,
    }


async def test_citations_of_files_are_left_out() -> None:
    """Clients of chat completions know pages alone."""
    made = await said(agent(reply("It rains.", citations=[Citation(file_id="file_7")])))
    assert "annotations" not in made.message


async def test_held_text_keeps_its_citations() -> None:
    answer = reply('```json\n{"number": 7}\n```', citations=[replace(RAIN, start=19, end=20)])
    made = await said(agent(answer, output_type=Order), hold=True)
    assert made.message["content"] == '{"number": 7}'
    assert passages(made) == ["7"]


async def test_server_tools_and_handoffs_make_no_calls() -> None:
    b = agent("Done.", name="B")
    a = agent([call("look_up", {"order": 1})], [call("transfer_to_b")], tools=[look_up], handoffs=[b])
    made = await said(a)
    assert "tool_calls" not in made.message
    assert not [delta for delta in made.deltas if "tool_calls" in delta]


async def test_a_new_speaker_is_named() -> None:
    b = agent("Done.", name="B")
    made = await said(agent(call("transfer_to_b"), handoffs=[b]))
    speakers = [delta["x_agent"] for delta in made.deltas if "x_agent" in delta]
    assert speakers == [{"agent": "A"}, {"agent": "B"}]
    assert made.message["x_agent"] == {"agent": "B"}


async def test_a_new_handler_is_named() -> None:
    b = ScriptedHandler(["Done."], name="B")
    made = await said(agent(call("transfer_to_b"), handoffs=[handoff(b)]))
    speakers = [delta["x_agent"] for delta in made.deltas if "x_agent" in delta]
    assert speakers == [{"agent": "A"}, {"agent": "A", "handler": "B"}]


async def test_a_fallback_handler_is_named() -> None:
    handlers = [ScriptedHandler([ValueError("no")], name="x"), ScriptedHandler(["Yes."], name="y")]
    made = await said(Agent("A", handlers=handlers), RunConfig(fallback=True))
    speakers = [delta["x_agent"] for delta in made.deltas if "x_agent" in delta]
    assert speakers == [{"agent": "A"}, {"agent": "A", "handler": "y"}]
    assert made.message["content"] == "Yes."


def _hands_over() -> Agent[Any]:
    b = agent("Done.", name="B")
    return agent(call("transfer_to_b"), handoffs=[b])


def _switches() -> Agent[Any]:
    deep = ScriptedHandler([call("transfer_to_quick"), "Deep."], name="deep")
    quick = ScriptedHandler([call("transfer_to_deep"), call("transfer_to_deep")], name="quick")
    return Agent("A", model=quick, handoffs=[deep, quick])


def _falls_back() -> Agent[Any]:
    failing = ScriptedHandler([ValueError("no")], name="x")
    return Agent("A", handlers=[failing, ScriptedHandler(["Yes."], name="y")])


def _hands_over_to_a_handler() -> Agent[Any]:
    return agent(call("transfer_to_b"), handoffs=[handoff(ScriptedHandler(["Done."], name="B"))])


def _asks_a_handler() -> Agent[Any]:
    b = handoff(ScriptedHandler(["Forty-two."], name="B"), return_to_caller=True)
    return agent(call("transfer_to_b"), "So it is.", handoffs=[b])


def _gives_a_handler_up() -> Agent[Any]:
    async def late(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    b = handoff(function_handler(late, name="B"), return_to_caller=True, run_timeout=0.01)
    return agent(call("transfer_to_b"), "I do not know.", handoffs=[b])


def _asks_through_a_handler() -> Agent[Any]:
    c = agent("Forty-two.", name="C")
    b = ScriptedHandler([call("transfer_to_c"), "It is forty-two."], name="B")
    asked = [handoff(b, return_to_caller=True), handoff(c, return_to_caller=True)]
    return agent(call("transfer_to_b"), "So it is.", handoffs=asked)


WAYS = (
    _hands_over,
    _hands_over_to_a_handler,
    _switches,
    _falls_back,
    _asks_a_handler,
    _gives_a_handler_up,
    _asks_through_a_handler,
)


@pytest.mark.virtual_time  # one of the ways has a time limit, which the busiest machine is to keep
@pytest.mark.pairwise
@pytest.mark.parametrize("max_turns", [1, 2, 3, 10])
@pytest.mark.parametrize("made", WAYS)
async def test_speakers_are_the_same_streamed_and_whole(
    made: Callable[[], Agent[Any]], max_turns: int
) -> None:
    """Also if a limit ends the run before the new agent is called."""
    config = RunConfig(fallback=True, detect_loops=False, on_limit="return")
    streamed = await said(made(), config, max_turns=max_turns)
    whole = await said_whole(made(), config, max_turns=max_turns)
    assert [d["x_agent"] for d in streamed.deltas if "x_agent" in d] == [
        d["x_agent"] for d in whole.deltas if "x_agent" in d
    ]


async def test_reasoning_is_shown_under_its_own_key() -> None:
    looks = reply(None, reasoning="Hm.", calls=[call("look_up", {"order": 1})])
    made = await said(agent(looks, reply("Here.", reasoning="Ah."), tools=[look_up]))
    assert made.message["reasoning_content"] == "Hm.\n\nAh."
    assert made.message["content"] == "Here."


async def test_a_refusal_has_its_own_key_and_no_content() -> None:
    made = await said(agent({"role": "assistant", "content": None, "refusal": "I will not."}))
    assert made.message["refusal"] == "I will not."
    assert made.message["content"] is None
    assert made.finish == "stop"


async def test_an_empty_answer_is_an_empty_text() -> None:
    made = await said(agent(reply("")))
    assert made.message["content"] == ""
    assert made.finish == "stop"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_was_cut_says_so(reason: str) -> None:
    assert (await said(agent(reply("Half", finish_reason=reason)))).finish == reason


async def test_odd_finish_reasons_are_stop() -> None:
    assert (await said(agent(reply("Whole", finish_reason="eos")))).finish == "stop"


async def test_a_limit_that_ends_a_run_is_length_and_may_have_a_text() -> None:
    def sorry(error: LimitExceeded) -> str:
        return "That took too long."

    looks = [reply("Wait.", calls=[call("look_up", {"order": n})]) for n in range(20)]
    made = await said(agent(*looks, tools=[look_up]), RunConfig(on_limit=sorry))
    assert made.finish == "length"
    assert made.message["content"].endswith("Wait.\n\nThat took too long.")


@pytest.mark.parametrize(
    ("kind", "given", "content"),
    [
        (Order, Order(number=7), '{"number": 7}'),
        (list[int], [7], '{"response": [7]}'),
        (Order, "None.", "None."),
    ],
    ids=["object", "list", "text"],
)
async def test_a_limits_output_of_a_type_is_all_that_is_said(kind: Any, given: Any, content: str) -> None:
    """A client parses it, as what the model would have written."""

    def late(error: LimitExceeded) -> Any:
        return given

    looks = [reply("Wait.", calls=[call("look_up", {"order": n})]) for n in range(20)]
    for way in (said, said_whole):
        mine = agent(*looks, tools=[look_up], output_type=kind)
        made = await way(mine, RunConfig(on_limit=late), hold=True)
        assert (made.message["content"], made.finish) == (content, "length")


@pytest.mark.parametrize("kind", [Order, list[int]])
@pytest.mark.parametrize("case", ["invalid", "refused"])
async def test_an_output_of_the_app_is_all_that_is_said(kind: Any, case: str) -> None:
    """Neither what did not fit nor the refusal, which clients look for first."""
    output: Any = Order(number=7) if kind is Order else [7]
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    replies = ["None.", "None.", "None."] if case == "invalid" else [refusal]
    config = RunConfig(on_invalid_output=lambda error: output, on_refusal=lambda error: output)
    for way in (said, said_whole):
        made = await way(agent(*replies, output_type=kind), config, hold=True)
        assert json.loads(made.message["content"]) == ({"number": 7} if kind is Order else {"response": [7]})
        assert (made.message.get("refusal"), made.finish) == (None, "stop")


async def test_calls_of_the_client_have_id_and_name_once() -> None:
    tool = {"type": "function", "function": {"name": "open_door"}}
    both = [call("open_door", {"n": 1}, id="c1"), call("open_door", "", id="c2")]
    made = await said(agent(reply("Sure.", calls=both)), RunConfig(external_tools=[tool]))
    assert made.finish == "tool_calls"
    pieces = [piece for delta in made.deltas for piece in delta.get("tool_calls", ())]
    assert [(piece["index"], piece.get("id"), piece["function"].get("name")) for piece in pieces] == [
        (0, "c1", "open_door"),
        (0, None, None),
        (1, "c2", "open_door"),
        (1, None, None),
    ]
    assert [made_call["function"]["arguments"] for made_call in made.message["tool_calls"]] == [
        '{"n": 1}',
        "{}",
    ]
    assert made.message["content"] == "Sure."


async def test_calls_without_a_text_have_no_content() -> None:
    tool = {"type": "function", "function": {"name": "open_door"}}
    made = await said(agent(call("open_door")), RunConfig(external_tools=[tool]))
    assert made.message["content"] is None


async def test_an_output_is_the_only_content() -> None:
    """A client that asked for an order parses the content: nothing may stand before it."""
    looks = reply("Let me see.", calls=[call("look_up", {"order": 1})])
    bad_then_good = ["{}", '{"number": 1}']
    made = await said(agent(looks, *bad_then_good, tools=[look_up], output_type=Order), hold=True)
    assert json.loads(made.message["content"]) == {"number": 1}
    assert [delta for delta in made.deltas if delta.get("content")] == [{"content": '{"number": 1}'}]


async def test_held_text_is_shown_when_an_agent_without_output_answers() -> None:
    asks = agent('{"number": 1}', name="B", output_type=Order)
    looks = reply("Let me see.", calls=[call("look_up", {"order": 1})])
    made = await said(agent(looks, "Here.", tools=[look_up], handoffs=[asks]), hold=True)
    assert made.message["content"] == "Let me see.\n\nHere."


async def test_text_of_a_failed_attempt_is_discarded() -> None:
    writer = DeltaWriter()
    writer.take(TextDelta("\n"))
    writer.take(AttemptFailed(error=ValueError(), attempt=1, delay=0))
    assert writer.take(MessageDone(message={"role": "assistant", "content": "Hi"})) == [{"content": "Hi"}]


texts = st.one_of(st.none(), st.text(alphabet=" \naé\u2028😀", max_size=12))
steps = st.lists(st.tuples(texts, texts), max_size=4)


@pytest.mark.asyncio_only
@given(steps, texts, st.booleans())
async def test_streamed_and_whole_say_the_same(
    looks: list[tuple[str | None, str | None]], last: str | None, hold: bool
) -> None:
    def replies() -> list[Any]:
        made = [
            reply(text, reasoning=thought or "", calls=[call("look_up", {"order": n})])
            for n, (text, thought) in enumerate(looks)
        ]
        return [*made, reply(last)]

    config = RunConfig(detect_loops=False)
    streamed = await said(agent(*replies(), tools=[look_up]), config, hold=hold)
    whole = await said_whole(agent(*replies(), tools=[look_up]), config, hold=hold)
    assert streamed.message == whole.message
    assert streamed.finish == whole.finish


def test_every_chunk_has_the_ids_of_its_completion() -> None:
    chunk = COMPLETION.chunk({"content": "x"})
    assert chunk == {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "A",
        "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}],
    }


def test_usage_comes_with_its_details_and_no_choices() -> None:
    usage = Usage(requests=2, input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=3)
    assert COMPLETION.usage_chunk(usage)["choices"] == []
    assert usage_body(usage) == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def made_of(*events: Any) -> list[dict[str, Any]]:
    """Return the deltas of events."""
    writer = DeltaWriter()
    return [delta for event in events for delta in writer.take(event)]


def test_half_of_a_character_in_a_thought_comes_before_the_text() -> None:
    deltas = made_of(ReasoningDelta("hm\ud83d"), TextDelta("Hi"))
    assert deltas == [{"reasoning_content": "hm"}, {"reasoning_content": "\ufffd"}, {"content": "Hi"}]


def test_half_of_a_character_in_a_text_comes_before_the_thought() -> None:
    deltas = made_of(TextDelta("Hi\ud83d"), ReasoningDelta("hm"))
    assert deltas == [{"content": "Hi"}, {"content": "\ufffd"}, {"reasoning_content": "hm"}]


def test_a_citation_has_the_half_of_a_character_at_its_end() -> None:
    cited = annotation_of(Citation(url="https://a.example", title="A", start=0, end=3))
    message: Any = {"role": "assistant", "content": "Hi\ufffd", "annotations": [cited]}
    [*_, last] = made_of(TextDelta("Hi\ud83d"), MessageDone(message=message))
    assert last["annotations"][0]["url_citation"]["end_index"] == 3


async def test_a_reply_that_broke_is_a_text_of_its_own() -> None:
    async def breaks(request: Request) -> AsyncGenerator[Any]:
        yield ReasoningDelta("hm")
        yield TextDelta("Half")
        raise ValueError("broken")

    asked = handoff(Agent("B", handlers=[function_handler(breaks)]), return_to_caller=True)
    made = await said(agent([call("transfer_to_b")], reply("Well.", reasoning="so"), handoffs=[asked]))
    texts = [delta["content"] for delta in made.deltas if delta.get("content")]
    thoughts = [delta["reasoning_content"] for delta in made.deltas if "reasoning_content" in delta]
    assert ("".join(texts), "".join(thoughts)) == ("Half\n\nWell.", "hm\n\nso")
