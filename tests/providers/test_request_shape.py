"""Requests with any history fit the rules of their vendor."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_checks import MODELS

from routelock.history.messages import Message, calls_of
from routelock.history.validity import problems
from routelock_providers.litellm.request import as_sent
from routelock_providers.request_shape import OutgoingMessages, prepare, tools_for
from routelock_providers.vendors import VendorRules, vendor_rules

USER: Message = {"role": "user", "content": "Hi"}
PROVIDERS = ["groq", "openai", "anthropic", "bedrock", "gemini", "mistral", "openrouter", "somebody_new"]
SHAPES = [vendor_rules(provider) for provider in PROVIDERS]
STRICT = vendor_rules("somebody_new")
OPENAI = vendor_rules("openai")
MISTRAL = vendor_rules("mistral")
GEMINI = vendor_rules("gemini")


def turn(
    call_id: str = "call_1", arguments: str = "{}", output: Any = "ok", name: str = "f"
) -> list[Message]:
    """A call and its answer."""
    function: Any = {"name": name, "arguments": arguments}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


DEEP = f'{{"x": {"[" * 300}1{"]" * 300}}}'
"""Nested deeper than the reader of tools goes, which has refused it; further down no library can send it."""


def sent_arguments(text: str) -> str:
    sent = prepare([USER, *turn(arguments=text)], STRICT)
    return calls_of(sent[1])[0]["function"]["arguments"]


@pytest.mark.parametrize("rules", SHAPES, ids=PROVIDERS)
def test_fitting_messages_are_the_same_object(rules: VendorRules) -> None:
    messages = [USER, *turn("abcDEF123", '{"x": "é"}')]
    assert prepare(messages, rules) is messages


def test_equal_ids_need_not_be_one_object() -> None:
    messages = [USER, *turn("".join(["a", "bc"]))]
    messages[2] = {**messages[2], "tool_call_id": "".join(["ab", "c"])}
    assert prepare(messages, STRICT) is messages


@pytest.mark.parametrize(
    ("provider", "model", "kept"),
    [
        ("groq", "llama", {"role", "content", "name"}),
        ("groq", "openai/gpt-oss-120b", {"role", "content", "name", "reasoning"}),
        ("cerebras", "qwen", {"role", "content", "name", "reasoning"}),
        ("mistral", "magistral", {"role", "content"}),
        ("deepseek", "r1", {"role", "content", "name", "reasoning", "reasoning_content"}),
    ],
)
def test_keys_that_a_vendor_sends_and_refuses(provider: str, model: str, kept: set[str]) -> None:
    said: Any = {"role": "assistant", "content": "a", "name": "n", "reasoning": "r", "reasoning_content": "r"}
    assert set(prepare([USER, said, USER], vendor_rules(provider, model))[1]) == kept


def test_keys_of_calls_that_a_vendor_refuses() -> None:
    calling, answer = turn()
    extra: Any = {**calls_of(calling)[0], "index": 0, "provider_specific_fields": {}}
    messages: list[Message] = [USER, {**calling, "tool_calls": [extra]}, answer]
    assert prepare(messages, vendor_rules("gemini")) is messages
    assert prepare(messages, vendor_rules("groq"))[1] == calling


def test_fitting_message_in_a_changed_list_is_the_same_object() -> None:
    messages = [USER, *turn(output="")]
    sent = prepare(messages, STRICT)
    assert sent is not messages
    assert sent[0] is messages[0]
    assert sent[1] is messages[1]


def test_private_keys_are_not_sent() -> None:
    marked: Any = {"role": "assistant", "content": "Hi", "_origin": "anthropic", "x": 1}
    assert prepare([USER, marked, USER], STRICT)[1] == {"role": "assistant", "content": "Hi", "x": 1}


def test_input_is_not_changed() -> None:
    messages = [*turn("a b", "", "", "f f"), {"role": "assistant", "content": " "}]
    before = json.dumps(messages)
    prepare(messages, MISTRAL)  # type: ignore[arg-type]
    assert json.dumps(messages) == before


@pytest.mark.parametrize("nothing", ["", " \n", None, [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("rules", SHAPES, ids=PROVIDERS)
def test_empty_tool_results_get_a_text(rules: VendorRules, nothing: Any) -> None:
    """litellm drops an empty result for Mistral, and with it the pairing."""
    assert prepare([USER, *turn(output=nothing)], rules)[2].get("content") == "(no output)"


def test_parts_of_a_tool_result_with_content_stay() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": " "}]
    assert prepare([USER, *turn(output=parts)], vendor_rules("anthropic"))[2].get("content") == parts[:1]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("", "{}"),
        ("{}", "{}"),
        ('{"x": 1}', '{"x": 1}'),
        ('{"x": ', '{"_invalid_arguments": "{\\"x\\": "}'),
        ("[1]", '{"_invalid_arguments": "[1]"}'),
        ("null", '{"_invalid_arguments": "null"}'),
        ('{"x": NaN}', '{"_invalid_arguments": "{\\"x\\": NaN}"}'),
        ('{"x": 1e400}', '{"_invalid_arguments": "{\\"x\\": 1e400}"}'),
        (f'{{"x": {"[" * 190}1{"]" * 190}}}', f'{{"x": {"[" * 190}1{"]" * 190}}}'),
        (DEEP, json.dumps({"_invalid_arguments": DEEP[:800]})),
        ('{"x":1}{"y":2}', '{"_invalid_arguments": "{\\"x\\":1}{\\"y\\":2}"}'),
    ],
)
def test_arguments(text: str, sent: str) -> None:
    assert sent_arguments(text) == sent


def test_broken_arguments_do_not_fill_the_prompt() -> None:
    assert len(sent_arguments("junk" * 250_000)) < 1000


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("f", "f"),
        ("browser.tabs.open", "browser_tabs_open"),
        ("functions read_file", "functions_read_file"),
        ("", "unknown_tool"),
        ("é" * 70, "_" * 64),
    ],
)
def test_invented_tool_names(name: str, sent: str) -> None:
    out = prepare([USER, *turn(name=name)], OPENAI)
    assert calls_of(out[1])[0]["function"]["name"] == sent


def test_an_empty_list_of_calls_is_left_out() -> None:
    sent = prepare([USER, {"role": "assistant", "content": "Hi", "tool_calls": []}, USER], OPENAI)
    assert sent[1] == {"role": "assistant", "content": "Hi"}


@pytest.mark.parametrize("blank", ["", "  ", None, [], [{"type": "text", "text": "\n"}]])
def test_blank_texts(blank: Any) -> None:
    """Anthropic refuses them; a user's are replaced, others are left out."""
    messages: list[Message] = [
        {"role": "system", "content": blank},
        {"role": "user", "content": blank},
        {"role": "assistant", "content": blank},
        USER,
    ]
    assert prepare(messages, STRICT) == [{"role": "user", "content": "(empty message)"}, USER]


@pytest.mark.parametrize("blank", ["", " "])
def test_openai_takes_blank_texts(blank: str) -> None:
    messages: list[Message] = [{"role": "user", "content": blank}, {"role": "assistant", "content": blank}]
    assert prepare(messages, OPENAI) is messages


def test_openai_takes_no_null_without_calls() -> None:
    nothing: Message = {"role": "assistant", "content": None}
    assert prepare([USER, nothing, USER], OPENAI)[1] == {"role": "assistant", "content": ""}


def test_blank_parts_beside_others_are_left_out() -> None:
    said = {"type": "text", "text": "Hi"}
    message: Message = {"role": "user", "content": [{"type": "text", "text": ""}, said]}
    assert prepare([message], STRICT) == [{"role": "user", "content": [said]}]


@pytest.mark.parametrize("blank", [" \n", "", [], [{"type": "text", "text": ""}]])
def test_blank_text_beside_calls_is_null(blank: Any) -> None:
    """Of empty text litellm makes an empty part for Gemini, which refuses it."""
    calling, answer = turn()
    assert prepare([USER, {**calling, "content": blank}, answer], STRICT)[1].get("content", "") is None


THOUGHTS = {
    "reasoning_content": "Hm.",
    "reasoning": "Hm.",
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}],
    "provider_specific_fields": {"thought_signatures": ["c2ln"]},
}
TAKING_NO_EMPTY_TURN = [model for model in MODELS.values() if not model.startswith(("openai/", "azure/"))]


@pytest.mark.pairwise
@pytest.mark.parametrize("blank", ["", " \n", [{"type": "text", "text": " "}]])
@pytest.mark.parametrize("keys", [THOUGHTS.keys(), *([key] for key in THOUGHTS)], ids=" ".join)
@pytest.mark.parametrize("model", [*TAKING_NO_EMPTY_TURN, "openrouter/x/y", "unknown/new"])
def test_reply_of_thoughts_alone_is_left_out(model: str, keys: Any, blank: Any) -> None:
    """It left an empty turn and, on Mistral, a user turn after a tool result."""
    before, nudge = [USER, *turn("abcDEF123")], cast(Message, {"role": "user", "content": "It was empty."})
    thought: Any = {"role": "assistant", "content": blank, **{key: THOUGHTS[key] for key in keys}}
    assert list(as_sent(model, [*before, thought, nudge])[0]) == list(as_sent(model, [*before, nudge])[0])


def test_a_refusal_is_the_text_elsewhere() -> None:
    refused: Message = {"role": "assistant", "content": None, "refusal": "I won't"}
    assert prepare([USER, refused, USER], STRICT)[1].get("content") == "I won't"


def test_content_without_text_is_kept() -> None:
    said: Any = {"role": "assistant", "content": "", "audio": {"id": "x"}}
    messages = [USER, said, USER]
    assert prepare(messages, STRICT) is messages


def test_a_request_does_not_end_on_an_assistant() -> None:
    said: Message = {"role": "assistant", "content": "Hi"}
    assert prepare([USER, said], STRICT)[-1] == {"role": "user", "content": "Continue."}
    assert prepare([USER, said], OPENAI)[-1] is said


def test_a_request_does_not_begin_with_an_assistant() -> None:
    system: Message = {"role": "system", "content": "Be kind."}
    sent = prepare([system, *turn()], STRICT)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]


def test_a_system_message_in_the_middle_is_untouched() -> None:
    messages: list[Message] = [USER, {"role": "system", "content": "Note"}]
    assert prepare(messages, STRICT) is messages


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "Be kind."}]])
def test_request_has_a_user_turn(messages: list[Message]) -> None:
    assert prepare(messages, STRICT) == [*messages, {"role": "user", "content": "Continue."}]


def test_mistral_wants_an_assistant_between_tool_and_user() -> None:
    sent = prepare([USER, *turn("abcDEF123"), USER], MISTRAL)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]


def test_lone_surrogates_can_be_sent() -> None:
    """The name of a file that is not UTF-8 would else poison the conversation for ever."""
    sent = prepare(
        [{"role": "user", "content": "a\ud83d"}, *turn(output="\udcff", arguments='{"\udc00": 1}')], OPENAI
    )
    json.dumps(sent, ensure_ascii=False).encode()
    assert sent[0].get("content") == "a\ufffd"


def test_lone_surrogates_can_be_sent_wherever_they_stand() -> None:
    said: Message = {"role": "assistant", "content": "Hi", "reasoning_content": "a\ud83d"}
    details = [{"text": "b\ud83d", "\ud83d": 1, "n": 2}]
    more: Any = {"reasoning_details": details, "refusal": "c\ude00", "name": "é"}
    sent = prepare([USER, cast(Message, {**said, **more}), USER], OPENAI)
    json.dumps(sent, ensure_ascii=False).encode()
    assert sent[1].get("reasoning_content") == "a\ufffd"


def test_a_message_whose_other_keys_can_be_sent_is_sent_as_it_is() -> None:
    said: Any = {"role": "assistant", "content": "Hi", "reasoning_details": [{"text": "😀"}]}
    messages: list[Message] = [USER, said, USER]
    assert prepare(messages, OPENAI)[1] is said


def test_a_surrogate_pair_becomes_its_character() -> None:
    assert prepare([{"role": "user", "content": "\ud83d\ude00"}], OPENAI)[0].get("content") == "😀"


def test_ids_for_mistral_are_stable_across_processes() -> None:
    sent = prepare([USER, *turn("call_PTLP8xhu3uwZk4l3nlnrrJha")], MISTRAL)
    assert sent[2].get("tool_call_id") == calls_of(sent[1])[0]["id"] == "6bb3dqp3j"


def test_valid_ids_are_kept() -> None:
    for fine in ("abc", "toolu_01-x", "x" * 40, "a.b:c|d"):
        messages = [USER, *turn(fine)]
        assert prepare(messages, OPENAI) is messages


def test_made_id_avoids_a_taken_one() -> None:
    made = calls_of(prepare([USER, *turn("!")], STRICT)[1])[0]["id"]
    sent = prepare([USER, *turn(made), *turn("!")], STRICT)
    ids = [call["id"] for message in sent for call in calls_of(message)]
    assert ids[0] == made
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("provider", "model", "id_length", "needs_tools"),
    [
        ("openai", "gpt-4o", 29, False),
        ("Anthropic", "claude-haiku-4-5", 29, True),
        ("mistral", "mistral-large-latest", 9, False),
        ("openrouter", "mistralai/devstral-small", 9, False),
        ("bedrock", "mistral.mixtral-8x7b", 9, True),
        ("vertex_ai", "claude-sonnet-4", 29, True),
        ("vertex_ai", "gemini-2.5-pro", 29, False),
        ("openrouter", "anthropic/claude-haiku-4.5", 29, True),
    ],
)
def test_vendor_rules(provider: str, model: str, id_length: int, needs_tools: bool) -> None:
    rules = vendor_rules(provider, model)
    assert (rules.id_length, rules.needs_tools) == (id_length, needs_tools)


def test_placeholder_tools_for_a_history_with_calls() -> None:
    """Anthropic and Bedrock refuse calls in the history when the request has no tools."""
    messages = [USER, *turn("a", name="f"), *turn("b", name="g"), *turn("c", name="f")]
    stand_ins = tools_for(messages, (), vendor_rules("anthropic"))
    assert [tool["function"]["name"] for tool in stand_ins] == ["f", "g"]
    assert tools_for([USER], (), vendor_rules("anthropic")) == []
    assert tools_for(messages, (), OPENAI) == ()
    offered = [{"type": "function", "function": {"name": "h"}}]
    assert tools_for(messages, offered, vendor_rules("anthropic")) is offered


# Whatever valid history goes in, for every vendor.

texts = st.sampled_from(["", " ", "Hi", "\ud800x", "naïve"]) | st.text(max_size=5)
contents = texts | st.none() | st.lists(texts.map(lambda text: {"type": "text", "text": text}), max_size=2)
ids = st.sampled_from(["a", "abcDEF123", "x" * 41, "x" * 65, "é", "a b", "call_1"]) | st.text(min_size=1)
arguments = st.sampled_from(["", "{}", '{"x":1}', "[1]", '{"x"', "NaN", '"\ud800"'])
names = st.sampled_from(["f", "transfer_to_x", "a.b", "é", "x" * 80])


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Messages of a run: one result per call, distinct ids."""
    out: list[Any] = [{"role": "system", "content": draw(contents)}] if draw(st.booleans()) else []
    used: set[str] = set()
    for role in draw(st.lists(st.sampled_from(["user", "assistant", "calls", "system"]), max_size=6)):
        if role != "calls":
            out.append({"role": role, "content": draw(contents)} | draw(st.sampled_from([{}, {"_x": 1}])))
            continue
        fresh = [one for one in draw(st.lists(ids, min_size=1, max_size=3, unique=True)) if one not in used]
        used.update(fresh)
        calls = [
            {"id": one, "type": "function", "function": {"name": draw(names), "arguments": draw(arguments)}}
            for one in fresh
        ]
        out.append({"role": "assistant", "content": draw(contents), "tool_calls": calls})
        out += [{"role": "tool", "tool_call_id": one, "content": draw(contents)} for one in fresh]
    return out


@given(histories(), st.sampled_from(SHAPES))
def test_preparing_twice_is_preparing_once(messages: list[Message], rules: VendorRules) -> None:
    once = prepare(messages, rules)
    assert prepare(once, rules) is once


@given(histories(), st.sampled_from(SHAPES))
def test_calls_and_answers_stay_pairs(messages: list[Message], rules: VendorRules) -> None:
    sent = prepare(messages, rules)
    # the core repairs what is wrong with empty messages before; here only the pairing counts
    assert [found for found in problems(sent) if "tool" in found] == []
    assert sum(len(calls_of(message)) for message in sent) == sum(len(calls_of(m)) for m in messages)


@given(histories(), st.sampled_from(SHAPES))
def test_requests_are_acceptable(messages: list[Message], rules: VendorRules) -> None:
    sent = prepare(messages, rules)
    json.dumps([message.get("content") for message in sent], ensure_ascii=False).encode()
    for message in sent:
        assert not any(key.startswith("_") for key in message)
        assert message.get("tool_calls", ["none"]) != []
        assert message["role"] != "tool" or message.get("content")
        for call in calls_of(message):
            assert rules.id_pattern.fullmatch(call["id"])
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    if rules.refuses_blank:
        said = [message for message in sent if not calls_of(message)]
        assert all(message.get("content") and str(message.get("content")).strip() for message in said)
    roles = [message["role"] for message in sent]
    spoken = [role for role in roles if role != "system"]
    assert spoken
    assert not (rules.starts_with_user and spoken[0] != "user")
    assert not (rules.ends_with_user and roles[-1] == "assistant")
    if not rules.user_after_tool:
        assert ("tool", "user") not in list(pairwise(roles))


def test_strict_is_sent_only_to_vendors_that_know_it() -> None:
    """The arguments are checked here anyway."""
    spec = {"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}
    search = {"type": "web_search"}
    assert tools_for([], [spec, search], vendor_rules("openai")) == [spec, search]
    told = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert list(tools_for([], [spec, search], vendor_rules("anthropic"))) == [told, search]
    assert "strict" in spec["function"]


# What one vendor alone refuses; `test_vendor_rules` proves it of any history.

IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
DEEPSEEK = vendor_rules("deepseek")
COHERE = vendor_rules("cohere_chat")


def test_mistral_takes_no_system_message_after_an_answer() -> None:
    """In front it keeps its authority; SurfSense 287, and mistral-common's validator."""
    first: Message = {"role": "system", "content": "Be kind."}
    late: Message = {"role": "system", "content": "Be brief."}
    said: Message = {"role": "assistant", "content": "Hi"}
    sent = prepare([first, USER, said, late, USER], MISTRAL)
    assert sent == [first, late, USER, said, USER]
    assert prepare(sent, MISTRAL) is sent


def test_system_message_is_not_the_last_turn() -> None:
    """litellm moves it to the front for Gemini, and the request would end on the assistant's turn."""
    messages: list[Message] = [
        USER,
        {"role": "assistant", "content": "Hi"},
        {"role": "system", "content": "Go on."},
    ]
    assert prepare(messages, STRICT) == [*messages, {"role": "user", "content": "Continue."}]


@pytest.mark.parametrize("reasoning", [None, ""])
def test_deepseek_wants_reasoning_with_every_answer(reasoning: str | None) -> None:
    """Also if the reply had none, or came from another model (craft-agents-oss 703)."""
    said: Any = {"role": "assistant", "content": "Hi"} | (
        {} if reasoning is None else {"reasoning_content": ""}
    )
    assert prepare([USER, said, USER], DEEPSEEK)[1] == {**said, "reasoning_content": " "}


def test_the_reasoning_of_deepseek_stays_as_it_is() -> None:
    messages: list[Message] = [
        USER,
        {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."},
        USER,
    ]
    assert prepare(messages, DEEPSEEK) is messages


def test_cohere_takes_the_text_beside_calls_as_a_plan() -> None:
    """It refuses the request otherwise: vercel/ai 5794."""
    calling, answer = turn()
    sent = prepare([USER, {**calling, "content": "I look."}, answer], COHERE)
    assert sent[1] == {**calling, "tool_plan": "I look."}


def test_xai_takes_no_null_beside_calls() -> None:
    messages = [USER, *turn()]
    assert prepare(messages, vendor_rules("xai"))[1] == {**messages[1], "content": ""}


def test_a_developer_is_the_system_to_all_but_openai() -> None:
    messages: list[Message] = [{"role": "developer", "content": "Be kind."}, USER]
    assert prepare(messages, OPENAI) is messages
    assert prepare(messages, DEEPSEEK)[0] == {"role": "system", "content": "Be kind."}


def test_gemini_knows_no_names_that_begin_with_a_digit() -> None:
    sent = prepare([USER, *turn(name="2fa")], vendor_rules("gemini"))
    assert calls_of(sent[1])[0]["function"]["name"] == "_2fa"
    untouched = [USER, *turn(name="2fa")]
    assert prepare(untouched, OPENAI) is untouched


def test_what_a_result_cannot_hold_is_shown_after_the_results() -> None:
    """OpenAI refuses images in them (openai-node 1030): the user's message may have them."""
    text = {"type": "text", "text": "A map."}
    calling = {**turn("a")[0], "tool_calls": [*calls_of(turn("a")[0]), *calls_of(turn("b")[0])]}
    messages: Any = [USER, calling, *turn("a", output=[text, IMAGE])[1:], *turn("b", output=[IMAGE])[1:]]
    sent = prepare(messages, OPENAI)
    shown = {"type": "text", "text": "(From the tool results above:)"}
    assert [message.get("content") for message in sent[2:]] == [
        [text],
        "(The result is shown below.)",
        [shown, IMAGE, IMAGE],
    ]
    assert sent[-1]["role"] == "user"
    assert prepare(sent, OPENAI) is sent
    assert prepare(messages, vendor_rules("anthropic")) is messages


def test_an_image_from_a_tool_reaches_mistral_too() -> None:
    """It takes it neither in the result nor right after it: LibreChat agents 344."""
    sent = prepare([USER, *turn("abcDEF123", output=[IMAGE])], MISTRAL)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]


def test_a_call_that_is_made_twice_has_a_turn_of_its_own_for_gemini() -> None:
    """litellm (1.105) would send one call and two results."""
    made = [turn(name, arguments) for name, arguments in (("a", '{"x": 1}'), ("b", '{"x":1.0}'), ("c", "{}"))]
    calling: Message = {**made[0][0], "tool_calls": [call for one, _ in made for call in calls_of(one)]}
    messages = [USER, calling, *(answer for _, answer in made)]
    sent = prepare(messages, GEMINI)
    assert [[call["id"] for call in calls_of(each)] or each.get("tool_call_id") for each in sent[1:]] == [
        ["a", "c"],
        "a",
        "c",
        ["b"],
        "b",
    ]
    assert prepare(sent, GEMINI) is sent
    assert prepare([*messages, USER], GEMINI) == [*sent, USER], "what came before stays as it was"
    assert prepare(messages, OPENAI) is messages


def test_arguments_nested_too_deep_to_be_read_are_quoted() -> None:
    deep = "[" * 100_000
    assert sent_arguments(deep) == json.dumps({"_invalid_arguments": deep[:800]})


@pytest.mark.parametrize("rules", SHAPES, ids=PROVIDERS)
def test_an_image_that_a_model_made_is_not_sent_back_to_it(rules: VendorRules) -> None:
    """No vendor takes one in an assistant's message (https://github.com/openai/openai-node/issues/1030)."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    said: Message = {"role": "assistant", "content": [{"type": "text", "text": "See:"}, image]}
    sent = prepare([USER, said, USER], rules)
    assert [part["type"] for part in sent[1]["content"] or ()] == ["text", "text"]  # type: ignore[index]


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_empty_message_with_a_call_id_is_left_out(role: Any) -> None:
    empty: Message = {"role": role, "content": "", "tool_call_id": "x"}
    assert prepare([empty, USER], STRICT) == [USER]


def test_results_come_in_the_order_of_their_calls_where_they_have_no_ids() -> None:
    """Otherwise Gemini and Ollama would silently swap the results of two calls."""
    calls = [call for one in "abc" for call in calls_of(turn(one, json.dumps({"x": one}))[0])]
    asks: Message = {"role": "assistant", "content": None, "tool_calls": calls}
    answers = [turn(one, output=one)[1] for one in "bca"]
    for vendor in ("gemini", "ollama_chat"):
        sent = prepare([USER, asks, *answers, USER], vendor_rules(vendor))
        assert [message.get("content") for message in sent[2:]] == ["a", "b", "c", "Hi"]
        assert prepare(sent, vendor_rules(vendor)) is sent
    messages = [USER, asks, *answers]
    assert prepare(messages, OPENAI) is messages


# -- what is missing, or not as it should be --


@pytest.mark.parametrize("model", [*MODELS.values(), "unknown/new"])
def test_a_call_without_its_type_gets_it(model: str) -> None:
    calling, answer = turn("abcDEF123")
    del cast(Any, calling)["tool_calls"][0]["type"]
    sent, _ = as_sent(model, [USER, calling, answer])
    assert [made["type"] for each in sent for made in calls_of(each)] == ["function"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Ann", "Ann"),
        ("ann-b_2", "ann-b_2"),
        ("John Smith", "John_Smith"),
        ("a.b@c.de", "a_b_c_de"),
        ("<|im_start|>", "__im_start__"),
        ("x" * 64, "x" * 64),
    ],
)
def test_names_of_speakers(name: str, sent: str) -> None:
    """OpenAI takes letters, digits, dashes and underscores alone."""
    messages: list[Message] = [{**USER, "name": name}]
    (message,) = prepare(messages, OPENAI)
    assert message.get("name") == sent
    assert (message is messages[0]) == (name == sent)
    assert prepare([message], OPENAI)[0] is message


@pytest.mark.parametrize(
    "names", [("\u674e\u96f7", "\u97e9\u6885\u6885"), ("x" * 65, "x" * 66), ("a\ud83d", "a\ud83e")]
)
def test_names_of_speakers_stay_different(names: tuple[str, str]) -> None:
    sent = [prepare([{**USER, "name": name}], OPENAI)[0].get("name") or "" for name in names]
    assert sent[0] != sent[1]
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in sent)


@pytest.mark.parametrize("name", ["", None])
def test_no_name_is_not_sent(name: Any) -> None:
    assert prepare([{**USER, "name": name}], OPENAI) == [USER]


@pytest.mark.parametrize(
    "model", ["unknown/new", "openrouter/x/y", "vercel_ai_gateway/x", "groq/llama-3.3-70b"]
)
def test_gateways_get_ids_that_all_vendors_take(model: str) -> None:
    """Any vendor may be behind it, and OpenAI takes 40 characters."""
    for call_id in ("x" * 41, "x" * 64):
        sent, _ = as_sent(model, [USER, *turn(call_id)])
        (made,) = calls_of(sent[1])
        assert len(made["id"]) <= 40
        assert sent[2].get("tool_call_id") == made["id"]


@pytest.mark.parametrize("model", ["mistral/mistral-large-latest", "openrouter/mistralai/devstral-small"])
def test_mistral_is_sent_no_text_beside_calls(model: str) -> None:
    """Some of its models take either alone, and consecutive turns of an assistant are one turn to them."""
    calling, answer = turn("abcDEF123")
    said: Message = {**calling, "content": "I look."}
    sent = list(as_sent(model, [USER, said, answer])[0])
    assert [each.get("content") for each in sent] == ["Hi", "I look.", "Continue.", None, "ok"]
    assert [each["role"] for each in sent] == ["user", "assistant", "user", "assistant", "tool"]
    assert calls_of(sent[3]) == calls_of(calling)
    assert list(as_sent(model, sent)[0]) == sent
    assert list(as_sent(model, [USER, calling, answer])[0]) == [USER, calling, answer]


def test_mistral_is_sent_text_in_parts_before_calls_as_well() -> None:
    calling, answer = turn("abcDEF123")
    parts: Any = [{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]
    sent = list(prepare([USER, {**calling, "content": parts}, answer, USER], MISTRAL))
    assert sent[1] == {"role": "assistant", "content": parts}
    assert sent[3].get("content") is None


def test_a_conversation_that_grows_is_sent_to_mistral_as_one_that_is_whole() -> None:
    calling, answer = turn("abcDEF123")
    messages: list[Message] = [
        USER,
        {**calling, "content": "I look."},
        answer,
        {**SAID, "content": "Done."},
        USER,
    ]
    outgoing = OutgoingMessages(MISTRAL)
    for end, message in enumerate(messages, 1):
        outgoing.add(message)
        assert outgoing.messages() == list(prepare(messages[:end], MISTRAL))


SAID: Message = {"role": "assistant", "content": "Hello"}


OWN: Any = {"timestamp": "2026-01-01T00:00:00Z", "metadata": {"user": 7}, "email": "a@b.test"}
"""Fields of an app's own, as from its database."""


@pytest.mark.parametrize("model", [*MODELS.values(), "unknown/new"])
def test_fields_of_the_app_are_not_sent(model: str) -> None:
    """Strict endpoints refuse them (hermes-agent 47868), and vendors must not see them."""
    system: Message = {"role": "system", "content": "Be kind."}
    calling, answer = turn("abcDEF123")
    bare: list[Message] = [system, USER, calling, answer, {"role": "assistant", "content": "Hello"}, USER]
    stored: list[Any] = [{**message, **(OWN if message["role"] != "assistant" else {})} for message in bare]
    assert list(as_sent(model, stored)[0]) == list(as_sent(model, bare)[0])


@pytest.mark.parametrize("model", [*MODELS.values(), "unknown/new"])
def test_fields_of_a_handoff_context_are_not_sent(model: str) -> None:
    said: Any = {"role": "assistant", "content": "Hello"}
    stored: Any = {**said, "timestamp": "2026-01-01T00:00:00Z", "metadata": {"user": 7}}
    assert list(as_sent(model, [USER, stored, USER])[0]) == list(as_sent(model, [USER, said, USER])[0])


@pytest.mark.parametrize("model", [*MODELS.values(), "unknown/new"])
@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_fields_of_the_app_in_a_text_part_are_not_sent(role: str, model: str) -> None:
    def asked(**own: Any) -> list[Any]:
        calling, answer = turn("abcDEF123")
        part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, **own}
        messages: list[Any] = [{"role": "system", "content": "Be kind."}, USER, calling, answer, USER]
        return [{**each, "content": [part]} if each["role"] == role else each for each in messages]

    assert list(as_sent(model, asked(**OWN))[0]) == list(as_sent(model, asked())[0])


def test_cache_marks_of_the_app_are_sent() -> None:
    message: Any = {"role": "user", "content": "Hi", "cache_control": {"type": "ephemeral"}}
    assert prepare([message], vendor_rules("anthropic"))[0] is message


def test_private_keys_of_a_provider_are_sent_back() -> None:
    said: Any = {"role": "assistant", "content": "Hello", "xyzzy": ["c2ln"]}
    assert prepare([USER, said, USER], STRICT)[1] is said
