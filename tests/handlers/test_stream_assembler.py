"""Chunks, however odd, become the calls and the text that the model meant."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.stream_assembler import Assembler, completion_done, why_incomplete
from routelock.usage import Usage, to_usage

Delta = dict[str, Any]


def chunk(*deltas: Delta, finish: str | None = None, **more: Any) -> Delta:
    choices = [{"index": i, "delta": delta, "finish_reason": finish} for i, delta in enumerate(deltas)]
    return {"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": choices, **more}


def call(
    arguments: object = None, *, index: int | None = None, id: str | None = None, name: str | None = None
) -> Delta:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assemble(*deltas: Delta) -> MessageDone:
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(chunk(delta))
    return assembler.done()


def calls(*pieces: Delta) -> list[tuple[str, str, str]]:
    """Return (id, name, arguments) of each call if each piece comes in a separate chunk."""
    made = assemble(*({"tool_calls": [piece]} for piece in pieces)).message.get("tool_calls", [])
    return [(made["id"], made["function"]["name"], made["function"]["arguments"]) for made in made]


NASTY = {
    "plain OpenAI": (
        [call("", index=0, id="a", name="f"), call('{"x"', index=0), call(":1}", index=0)],
        [("a", "f", '{"x":1}')],
    ),
    "same index, new id (litellm pull 37792: Ollama's parallel calls)": (
        [call('{"x":1}', index=0, id="a", name="f"), call('{"y":2}', index=0, id="b", name="f")],
        [("a", "f", '{"x":1}'), ("b", "f", '{"y":2}')],
    ),
    "same index, new id, arguments in pieces": (
        [
            call('{"x"', index=0, id="a", name="f"),
            call(":1}", index=0),
            call('{"y"', index=0, id="b", name="g"),
            call(":2}", index=0),
        ],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    "no index at all": (
        [call('{"x"', id="a", name="f"), call(":1}"), call('{"y"', id="b", name="g"), call(":2}")],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    "no index, told apart by id": (
        [call("", id="a", name="f"), call("", id="b", name="g"), call('{"x":1}', id="a"), call("{}", id="b")],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "index 0 throughout, interleaved by id": (
        [
            call('{"x"', index=0, id="a", name="f"),
            call('{"y"', index=0, id="b", name="g"),
            call(":1}", index=0, id="a"),
            call(":2}", index=0, id="b"),
        ],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    "interleaved by index": (
        [
            call("", index=0, id="a", name="f"),
            call("", index=1, id="b", name="g"),
            call('{"x"', index=0),
            call("{}", index=1),
            call(":1}", index=0),
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "indexes that do not start at 0": (
        [call("{}", index=3, id="a", name="f"), call("{}", index=7, id="b", name="g")],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "arguments as an object (litellm pull 37792)": (
        [call({"x": [1, "é"]}, index=0, id="a", name="f")],
        [("a", "f", '{"x": [1, "é"]}')],
    ),
    "id and name repeated in every delta (Moonshot)": (
        [call('{"x"', index=0, id="a", name="f"), call(":1}", index=0, id="a", name="f")],
        [("a", "f", '{"x":1}')],
    ),
    "name repeated without an id": (
        [call('{"x"', index=0, name="f"), call(":1}", index=0, name="f")],
        [("", "f", '{"x":1}')],
    ),
    "name repeated before the first argument": (
        [call("", index=0, name="f"), call('{"x":1}', index=0, name="f")],
        [("", "f", '{"x":1}')],
    ),
    "another id without a name goes on with the call": (
        [call('{"x"', index=0, id="a", name="f"), call(":1}", index=0, id="zzz")],
        [("a", "f", '{"x":1}')],
    ),
    "arguments before the name": (
        [call('{"x"', index=0), call(":1}", index=0), call("", index=0, id="a", name="f")],
        [("a", "f", '{"x":1}')],
    ),
    "no ids (ollama 6708)": (
        [call('{"x":1}', index=0, name="f"), call("{}", index=1, name="g")],
        [("", "f", '{"x":1}'), ("", "g", "{}")],
    ),
    "no ids, index 0 throughout, whole calls (adk-python 665: arguments became {}{}{})": (
        [call("{}", index=0, name="f"), call('{"x":1}', index=0, name="f"), call("{}", index=0, name="g")],
        [("", "f", "{}"), ("", "f", '{"x":1}'), ("", "g", "{}")],
    ),
    "no ids, no index, no arguments": (
        [call("", name="f"), call("", name="g")],
        [("", "f", "{}"), ("", "g", "{}")],
    ),
    "a call without an id before one with an id, same index": (
        [call('{"x":1}', index=0, name="f"), call('{"y":2}', index=0, id="b", name="g")],
        [("", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    "a finished call sent again whole": (
        [call('{"x":1}', index=0, id="a", name="f"), call('{"x":1}', index=0, id="a", name="f")],
        [("a", "f", '{"x":1}')],
    ),
    "one id for two indexes: two calls, for the core to tell apart": (
        [call('{"x":1}', index=0, id="a", name="f"), call('{"y":2}', index=1, id="a", name="f")],
        [("a", "f", '{"x":1}'), ("a", "f", '{"y":2}')],
    ),
    "arguments that stay empty (Databricks)": ([call("", index=0, id="a", name="f")], [("a", "f", "{}")]),
    "arguments that stay null": ([call(None, index=0, id="a", name="f")], [("a", "f", "{}")]),
    "broken JSON stays as it came": (
        [call('{"x": ', index=0, id="a", name="f")],
        [("a", "f", '{"x": ')],
    ),
    "braces inside strings do not end a call": (
        [call('{"x":"}', index=0, id="a", name="f"), call('{"}', index=0)],
        [("a", "f", '{"x":"}{"}')],
    ),
    "a name in pieces (continuedev/continue 5849)": (
        [call("", index=0, id="a", name="edit_ex"), call("", index=0, name="isting"), call("{}", index=0)],
        [("a", "edit_existing", "{}")],
    ),
    "a name in pieces, then repeated": (
        [call("", id="a", name="edit_"), call("", id="a", name="file"), call("{}", id="a", name="edit_file")],
        [("a", "edit_file", "{}")],
    ),
    "another name once the arguments have begun is no piece of the first": (
        [call("{", index=0, id="a", name="f"), call("}", index=0, id="a", name="g")],
        [("a", "f", "{}")],
    ),
    "an index from the second delta on (SamSaffron/term-llm 314)": (
        [call("", id="a", name="f"), call('{"x"', index=0), call(":1}", index=0)],
        [("a", "f", '{"x":1}')],
    ),
    "the index of a second call comes late": (
        [
            call("{}", index=0, id="a", name="f"),
            call("", id="b", name="g"),
            call('{"x":1}', index=1),
        ],
        [("a", "f", "{}"), ("b", "g", '{"x":1}')],
    ),
    "an empty object before the arguments (litellm 4537: Anthropic's beginning of a block)": (
        [call("{}", index=0, id="a", name="f"), call('{"x"', index=0), call(":1}", index=0)],
        [("a", "f", '{"x":1}')],
    ),
    "an empty object and nothing after it": (
        [call("{}", index=0, id="a", name="f"), call("", index=0), call(" ", index=0)],
        [("a", "f", "{} ")],
    ),
    "a nested object that starts a piece": (
        [call('{"x":{}', index=0, name="f"), call('{"', index=0, name="f")],
        [("", "f", '{"x":{}{"')],
    ),
}


@pytest.mark.parametrize("case", NASTY)
def test_nasty_sequences(case: str) -> None:
    pieces, expected = NASTY[case]
    assert calls(*pieces) == expected


@pytest.mark.parametrize("case", NASTY)
def test_nasty_sequences_in_one_chunk(case: str) -> None:
    """Several calls in one chunk are not one call (adk-python 7004)."""
    pieces, expected = NASTY[case]
    made = assemble({"tool_calls": pieces}).message.get("tool_calls", [])
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in made] == expected


def test_finish_before_the_last_delta() -> None:
    """litellm pull 31634: a finish reason is not the end, and a later null does not undo it."""
    assembler = Assembler()
    assembler.feed(chunk({"tool_calls": [call('{"x"', index=0, id="a", name="f")]}, finish="tool_calls"))
    assembler.feed(chunk({"tool_calls": [call(":1}", index=0)]}))
    done = assembler.done()
    assert done.finish_reason == "tool_calls"
    assert done.message.get("tool_calls", [])[0]["function"]["arguments"] == '{"x":1}'


def test_legacy_function_call_deltas() -> None:
    done = assemble(
        {"function_call": {"name": "f", "arguments": '{"x"'}}, {"function_call": {"arguments": ":1}"}}
    )
    assert done.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
    }


def test_empty_legacy_call_is_dropped() -> None:
    """So Snowflake ends each reply; taken for a call of no tool, it made every run fail."""
    empty = {"content": "Sunny.", "function_call": {"name": "", "arguments": ""}, "tool_calls": None}
    assert assemble(empty).message == {"role": "assistant", "content": "Sunny."}
    assert completion_done({"choices": [{"message": empty}]}).message == {
        "role": "assistant",
        "content": "Sunny.",
    }


def test_events_of_a_stream() -> None:
    assembler = Assembler()
    events = [
        *assembler.feed(chunk({"role": "assistant", "content": ""})),
        *assembler.feed(chunk({"reasoning_content": "hm"})),
        *assembler.feed(chunk({"content": "Hi"})),
        *assembler.feed(chunk({"tool_calls": [call("", index=0, id="a", name="f")]})),
        *assembler.feed(chunk({"tool_calls": [call("{}", index=0)]}, finish="tool_calls")),
    ]
    assert events == [
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        ToolCallDelta(0, "a", "f", ""),
        ToolCallDelta(0, "a", "f", "{}"),
    ]
    assert assembler.finished


NO_DELTA = {"choices": [{"index": 0, "delta": None, "finish_reason": None}]}


@pytest.mark.parametrize(
    "odd", [{}, {"choices": []}, {"choices": None}, NO_DELTA, chunk({}), {"choices": [{"index": 0}]}]
)
def test_empty_chunks_give_no_events(odd: Delta) -> None:
    """Azure's filter results, usage-only chunks and keep-alives carry no delta."""
    assembler = Assembler()
    assert assembler.feed(odd) == []
    assert not assembler.finished
    assert assembler.done().message == {"role": "assistant", "content": ""}


def test_other_choices_are_ignored() -> None:
    assembler = Assembler()
    assert assembler.feed(chunk({"content": "a"}, {"content": "b"})) == [TextDelta("a")]
    assert assembler.feed({"choices": [{"index": 1, "delta": {"content": "b"}}]}) == []
    assert assembler.done().message.get("content") == "a"


def test_model_id_and_usage() -> None:
    """Azure's first chunk has an empty id and model; the usage comes last, without choices."""
    assembler = Assembler()
    assembler.feed({"id": "", "model": "", "choices": []})
    assembler.feed(chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 0}))
    assembler.feed({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})
    done = assembler.done()
    assert (done.response_id, done.model) == ("r1", "m")
    assert done.usage == Usage(requests=1, input_tokens=5, output_tokens=7)


def test_content_is_none_beside_calls_and_text_stays() -> None:
    one = {"tool_calls": [call("{}", index=0, id="a", name="f")]}
    assert assemble(one).message.get("content", "missing") is None
    assert assemble({"content": " "}, one).message.get("content") == " "


def test_a_gemini_thought_signature_leaves_the_id() -> None:
    done = assemble({"tool_calls": [call("{}", index=0, id="call_1__thought__c2ln", name="f")]})
    made = done.message.get("tool_calls", [])[0]
    assert made["id"] == "call_1"
    assert made.get("provider_specific_fields") == {"thought_signature": "c2ln"}


def test_a_signature_beside_the_id_is_not_overwritten() -> None:
    piece = call("{}", index=0, id="a__thought__old", name="f")
    piece["provider_specific_fields"] = {"thought_signature": "kept"}
    made = assemble({"tool_calls": [piece]}).message.get("tool_calls", [])[0]
    assert made.get("provider_specific_fields") == {"thought_signature": "kept"}


def test_unknown_keys_of_calls_survive() -> None:
    """Gemini's OpenAI endpoint carries its signature in extra_content."""
    piece = call("{}", index=0, id="a", name="f")
    piece["extra_content"] = {"google": {"thought_signature": "s"}}
    made: Any = assemble({"tool_calls": [piece]}).message.get("tool_calls", [])[0]
    assert made["extra_content"] == {"google": {"thought_signature": "s"}}


def test_calls_that_the_vendor_runs_itself_are_kept_apart() -> None:
    assembler = Assembler()
    server = call('{"q":1}', index=0, id="srvtoolu_1", name="web_search")
    assert assembler.feed(chunk({"tool_calls": [server]})) == []
    events = assembler.feed(chunk({"tool_calls": [call("{}", index=1, id="a", name="f")]}))
    assert events == [ToolCallDelta(0, "a", "f", "{}")]
    message = assembler.done().message
    assert [made["id"] for made in message.get("tool_calls", [])] == ["a"]
    kept = message.get("provider_specific_fields", {})["server_tool_calls"]
    assert [made["id"] for made in kept] == ["srvtoolu_1"]


def test_reply_with_only_server_side_calls_has_no_calls() -> None:
    message = assemble({"tool_calls": [call("{}", index=0, id="srvtoolu_1", name="s")]}).message
    assert "tool_calls" not in message
    assert message.get("content") == ""


def test_server_side_call_is_recognised_by_a_late_id() -> None:
    assembler = Assembler()
    assembler.feed(chunk({"tool_calls": [call("{", index=0, name="web_search")]}))
    assembler.feed(chunk({"tool_calls": [call("}", index=0, id="srvtoolu_1")]}))
    events = assembler.feed(chunk({"tool_calls": [call("{}", index=1, id="a", name="f")]}))
    assert events == [ToolCallDelta(0, "a", "f", "{}")]


def steps_for(count: int) -> int:
    """How many functions are called for a reply of so many calls."""
    calls = [call("{}", index=place, id=f"c{place}", name="f") for place in range(count)]
    reply, steps = chunk({"tool_calls": calls}), 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(step)
    try:
        Assembler().feed(reply)
    finally:
        sys.setprofile(None)
    return steps


def test_many_calls_take_time_that_grows_with_their_number() -> None:
    assert steps_for(400) < 3 * steps_for(200)


def test_thinking_blocks_grow_until_their_signature() -> None:
    """litellm streams the text and the signature of an Anthropic thought as separate blocks."""
    done = assemble(
        {"thinking_blocks": [{"type": "thinking", "thinking": "let ", "signature": None}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "me", "signature": None}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S1"}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "R"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "see", "signature": ""}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S2"}]},
    )
    assert done.message.get("thinking_blocks") == [
        {"type": "thinking", "thinking": "let me", "signature": "S1"},
        {"type": "redacted_thinking", "data": "R"},
        {"type": "thinking", "thinking": "see", "signature": "S2"},
    ]


def test_whole_thinking_blocks_stay_as_they_are() -> None:
    blocks = [
        {"type": "thinking", "thinking": "", "signature": "S1"},
        {"type": "thinking", "thinking": "b", "signature": "S2"},
    ]
    assert assemble({"thinking_blocks": blocks}).message.get("thinking_blocks") == blocks


def test_repeated_reasoning_is_one_event_under_both_keys() -> None:
    details = [{"type": "reasoning.text", "text": "hm", "index": 0, "format": "f"}]
    assembler = Assembler()
    assert assembler.feed(chunk({"reasoning": "hm", "reasoning_details": details})) == [ReasoningDelta("hm")]
    more = [{"type": "reasoning.text", "text": "m", "index": 0, "format": "f", "signature": "S"}]
    secret = [{"type": "reasoning.encrypted", "data": "x", "index": 1}]
    assembler.feed(chunk({"reasoning": "m", "reasoning_details": more}))
    assembler.feed(chunk({"reasoning_details": secret}))
    message: Any = assembler.done().message
    assert message["reasoning"] == "hmm"
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "hmm", "index": 0, "format": "f", "signature": "S"},
        *secret,
    ]


def test_thinking_blocks_give_events_without_other_reasoning() -> None:
    events = Assembler().feed(chunk({"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}))
    assert events == [ReasoningDelta("hm")]


def test_unknown_keys_survive() -> None:
    message: Any = assemble(
        {"refusal": "I ", "annotations": [{"a": 1}], "audio": {"id": "x", "transcript": "he"}, "odd": 1},
        {"refusal": "won't", "annotations": [{"a": 2}], "audio": {"transcript": "llo"}, "odd": 2},
        {"provider_specific_fields": {"thought_signatures": ["s1"]}, "reasoning_items": [{"id": "r1"}]},
        {"provider_specific_fields": {"thought_signatures": ["s2"], "x": None}, "images": [{"i": 1}]},
    ).message
    assert message == {
        "role": "assistant",
        "content": "",
        "refusal": "I won't",
        "annotations": [{"a": 1}, {"a": 2}],
        "audio": {"id": "x", "transcript": "hello"},
        "odd": 2,
        "provider_specific_fields": {"thought_signatures": ["s1", "s2"]},
        "reasoning_items": [{"id": "r1"}],
        "images": [{"i": 1}],
    }


def test_content_in_parts_becomes_text() -> None:
    done = assemble({"content": [{"type": "text", "text": "a"}]}, {"content": "b"})
    assert done.message.get("content") == "ab"


def test_mistral_thinking_parts_keep_their_place() -> None:
    def thought(text: str) -> Delta:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    assembler = Assembler()
    assert assembler.feed(chunk(thought("h"))) == [ReasoningDelta("h")]
    assembler.feed(chunk(thought("m")))
    assert assembler.feed(chunk({"content": "Yes"})) == [TextDelta("Yes")]
    pieces = [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]
    assert assembler.done().message.get("content") == [
        {"type": "thinking", "thinking": pieces},
        {"type": "text", "text": "Yes"},
    ]


def test_fed_chunks_are_not_changed() -> None:
    first = chunk({"annotations": [1], "thinking_blocks": [{"type": "thinking", "thinking": "a", "x": [1]}]})
    before = json.dumps(first)
    assembler = Assembler()
    assembler.feed(first)
    assembler.feed(chunk({"annotations": [2], "thinking_blocks": [{"type": "thinking", "x": [2]}]}))
    assembler.done()
    assert json.dumps(first) == before


def test_done_can_be_called_twice() -> None:
    assembler = Assembler()
    assembler.feed(chunk({"content": "a", "refusal": "b"}))
    assert assembler.done() == assembler.done()
    assembler.feed(chunk({"content": "c", "refusal": "d"}))
    assert assembler.done().message.get("content") == "ac"


def test_a_message_instead_of_a_delta() -> None:
    """Some gateways answer a streaming request with one whole completion."""
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [call("{}", name="f"), call("{}", name="f")],
    }
    done = completion_done({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert done.message.get("content") == "Hi"
    assert len(done.message.get("tool_calls", [])) == 2


def test_a_completion_with_an_empty_delta_beside_its_message() -> None:
    """Perplexity answers so."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "message": {"content": "Hi"}}
    assert completion_done({"choices": [choice]}).message.get("content") == "Hi"


def test_labels_are_not_joined() -> None:
    """Groq repeats the channel in each delta."""
    message: Any = assemble({"channel": "analysis", "reasoning": "a"}, {"channel": "analysis"}).message
    assert message["channel"] == "analysis"


def test_completions_without_choices() -> None:
    assert completion_done({"choices": []}).message == {"role": "assistant", "content": ""}


def test_usage_details() -> None:
    usage = to_usage(
        {
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 4},
        }
    )
    expected = Usage(requests=1, input_tokens=10, output_tokens=20, cached_tokens=3, reasoning_tokens=4)
    assert usage == expected


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"cost": 0.25, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.25}}, 0.25),
        ({"cost": 0.25, "is_byok": True, "cost_details": {"upstream_inference_cost": 4}}, 4.25),
        ({"cost": 0.25, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, 0.25),
        ({"cost": 0, "is_byok": True, "cost_details": "x"}, 0.0),
        ({"cost": {"input_tokens_cost": 0.5, "total_cost": 1.5}}, 1.5),
        *[({"cost": odd}, None) for odd in (None, True, "0.25", -1, float("nan"), float("inf"), [], {})],
        ({}, None),
    ],
)
def test_cost_in_the_usage_is_read(told: dict[str, Any], cost: float | None) -> None:
    """OpenRouter and Perplexity do. What cannot be read costs no token count."""
    usage = to_usage({"prompt_tokens": 2, "completion_tokens": 1, **told})
    assert usage == Usage(requests=1, input_tokens=2, output_tokens=1, cost=cost)


@pytest.mark.parametrize(
    "nothing",
    [
        None,
        {},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": "12", "completion_tokens": 3},
        {"prompt_tokens": 1, "prompt_tokens_details": "x"},
        "x",
    ],
)
def test_usage_without_numbers_is_none(nothing: Any) -> None:
    assert to_usage(nothing) is None


def test_half_a_usage() -> None:
    nulls = {"prompt_tokens": 2, "completion_tokens": None, "prompt_tokens_details": None}
    assert to_usage(nulls) == Usage(requests=1, input_tokens=2)


@pytest.mark.parametrize(
    ("deltas", "finish", "usage", "why"),
    [
        ([{"content": "Hi"}], "stop", None, None),
        ([{"content": "Hi"}], None, {"prompt_tokens": 1}, None),
        ([{"content": "Hi"}], None, None, "text that may be cut"),
        ([], None, None, "nothing"),
        ([{"tool_calls": [call("{}", index=0, id="a", name="f")]}], None, None, "calls that may be cut"),
        ([{"tool_calls": [call("", index=0, id="a", name="f")]}], None, None, "calls that may be cut"),
        ([{"tool_calls": [call("{}", index=0, id="a", name="f")]}], "tool_calls", None, None),
        (
            [{"tool_calls": [call("{", index=0, id="a", name="f")]}],
            None,
            None,
            "half of the arguments of 'f'",
        ),
    ],
)
def test_why_incomplete(deltas: list[Delta], finish: str | None, usage: Any, why: str | None) -> None:
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(chunk(delta))
    assembler.feed(chunk({}, finish=finish, usage=usage))
    assert why_incomplete(assembler.done()) == why


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        ({"content": "Hi"}, None),
        ({"content": ""}, "nothing"),
        ({"tool_calls": [call("{}", index=0, id="a", name="f")]}, None),
        ({"tool_calls": [call("{", index=0, id="a", name="f")]}, "half of the arguments of 'f'"),
    ],
)
def test_end_marker_proves_that_a_reply_is_complete(delta: Delta, why: str | None) -> None:
    assert why_incomplete(assemble(delta), ended=True) == why


# Any way of splitting a completion into chunks assembles to what the completion itself says.

texts = st.text(max_size=30)
names = st.sampled_from(["f", "g", "transfer_to_billing"])
arguments = st.dictionaries(st.text(max_size=5), st.integers() | texts, max_size=3).map(json.dumps)
thoughts = st.fixed_dictionaries(
    {"type": st.just("thinking"), "thinking": texts, "signature": st.text(min_size=1, max_size=10)}
)


@st.composite
def messages(draw: st.DrawFn) -> Delta:
    made = draw(st.lists(st.tuples(names, arguments | st.just("") | st.just('{"x": ')), max_size=4))
    message: Delta = {"role": "assistant", "content": draw(texts | st.none())}
    if made:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": text}}
            for i, (name, text) in enumerate(made)
        ]
    for key in draw(st.sets(st.sampled_from(["reasoning_content", "reasoning", "refusal"]))):
        message[key] = draw(texts)
    if blocks := draw(st.lists(thoughts, max_size=3)):
        message["thinking_blocks"] = blocks
    if items := draw(st.lists(st.fixed_dictionaries({"id": texts}), max_size=3)):
        message["reasoning_items"] = items
    return message


def pieces_of(draw: st.DrawFn, text: str | None) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(text or "")), max_size=6).map(sorted))
    return [(text or "")[i:j] for i, j in zip([0, *cuts], [*cuts, len(text or "")], strict=True)]


@st.composite
def splits(draw: st.DrawFn) -> tuple[Delta, list[Delta]]:
    """A message and the deltas that a vendor might make of it."""
    message = draw(messages())
    lanes: list[list[Delta]] = []  # deltas of one lane keep their order; lanes interleave
    for key in ("content", "reasoning_content", "reasoning", "refusal"):
        lanes.append([{key: piece} for piece in pieces_of(draw, message.get(key))])
    thinking: list[Delta] = []
    for block in message.get("thinking_blocks", []):
        for piece in pieces_of(draw, block["thinking"]):
            thinking.append({"thinking_blocks": [{"type": "thinking", "thinking": piece}]})
        thinking.append({"thinking_blocks": [{**block, "thinking": ""}]})
    lanes.append(thinking)
    lanes.append([{"reasoning_items": [item]} for item in message.get("reasoning_items", [])])
    opened: list[Delta] = []
    for index, made in enumerate(message.get("tool_calls", [])):
        function = made["function"]
        opened.append({"tool_calls": [call("", index=index, id=made["id"], name=function["name"])]})
        rest = pieces_of(draw, function["arguments"])
        lanes.append([{"tool_calls": [call(piece, index=index)]} for piece in rest])
    deltas: list[Delta] = []
    while lanes := [lane for lane in lanes if lane]:
        deltas.append(draw(st.sampled_from(lanes)).pop(0))
    return message, [*opened, *deltas]


@given(splits())
def test_any_split_assembles_to_the_whole(split: tuple[Delta, list[Delta]]) -> None:
    message, deltas = split
    whole = completion_done({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assembler = Assembler()
    events = [event for delta in deltas for event in assembler.feed(chunk(delta))]
    assembler.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    assert assembler.done().message == whole.message
    told = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert told == (message.get("content") or "")


@given(messages())
def test_a_whole_message_keeps_its_calls(message: Delta) -> None:
    kept = completion_done({"choices": [{"message": message}]}).message.get("tool_calls", [])
    expected = [made["function"]["arguments"] or "{}" for made in message.get("tool_calls", [])]
    assert [made["function"]["arguments"] for made in kept] == expected


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (['{"city":"Paris"}', '{"cit', 'y":"Paris"', "}"], '{"city":"Paris"}'),
        (["{}", "{", "}", "{}"], "{}"),
        (['{"a":"}{"}'], '{"a":"}{"}'),
        (['{"a":1}', '{"a":', "2}"], '{"a":1}{"a":2}'),
        (['{"a":1}', '{"a":'], '{"a":1}{"a":'),
        (["[" * 9000, "}{"], "[" * 9000 + "}{"),
    ],
)
def test_repeated_arguments_count_once(pieces: list[str], arguments: str) -> None:
    """litellm simulates a stream like this; two different objects stay two."""
    assembler = Assembler()
    for index, piece in enumerate(pieces):
        delta = {"index": 0, "function": {"name": "weather" if not index else None, "arguments": piece}}
        call = delta | ({"id": "call_1", "type": "function"} if not index else {})
        assembler.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    (made,) = assembler.done().message.get("tool_calls", [])
    assert made["function"]["arguments"] == arguments


def test_split_character_is_joined_in_each_field() -> None:
    """Servers that cut by UTF-16 units send it in two chunks."""
    assembler = Assembler()
    events: list[HandlerEvent] = []
    for half in ("\ud83d", "\ude00"):
        events += assembler.feed(chunk({"content": f"a{half}" if half == "\ud83d" else half}))
        events += assembler.feed(
            chunk({"reasoning_content": half, "tool_calls": [call(half, index=0, id="c", name="f")]})
        )
    message: Any = assembler.done().message
    assert (message["content"], message["reasoning_content"]) == ("a😀", "😀")
    assert message["tool_calls"][0]["function"]["arguments"] == "😀"
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "😀"]


def test_half_a_character_at_the_end_is_not_lost() -> None:
    assert assemble({"content": "a\ud83d"}).message.get("content") == "a\ud83d"
