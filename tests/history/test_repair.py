"""Whatever a list of messages looks like, `repair` makes it one that providers accept, and loses nothing."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.repair import NO_ANSWER, NOTHING_LEFT, repair
from routelock.history.validity import problems

USER: Message = {"role": "user", "content": "Hi"}
SYSTEM: Message = {"role": "system", "content": "Be kind."}


def call(call_id: str, name: str = "f") -> ToolCall:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def asks(*ids: str, text: str | None = None) -> Message:
    return {"role": "assistant", "content": text, "tool_calls": [call(one) for one in ids]}


def answers(call_id: str, text: str = "42") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


VALID: list[Message] = [SYSTEM, USER, asks("a", "b"), answers("a"), answers("b"), USER]


# -- problems --


def test_a_valid_list_has_no_problems() -> None:
    assert problems(VALID) == []


def test_answers_may_come_in_any_order() -> None:
    assert problems([USER, asks("a", "b"), answers("b"), answers("a")]) == []


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([USER, asks("a")], ["at the end: tool call a has no answer"]),
        ([USER, asks("a"), USER], ["message 2: tool call a has no answer before it"]),
        ([USER, answers("a")], ["message 1: orphan tool result a"]),
        ([USER, asks("a"), answers("a"), answers("a")], ["message 3: orphan tool result a"]),
        ([USER, asks(""), answers("")], ["message 1: tool call without an id"]),
        (
            [USER, asks("a", "a"), answers("a"), answers("a")],
            ["message 1: tool call id a is used twice"],
        ),
        (
            [USER, asks("a"), answers("a"), asks("a"), answers("a")],
            ["message 3: tool call id a is used twice"],
        ),
        (
            [USER, {"role": "assistant", "content": ""}],
            ["message 1: assistant message without text or calls"],
        ),
        (
            [USER, {"role": "assistant", "content": "", "tool_call_id": "a"}],
            ["message 1: assistant message without text or calls"],
        ),
        ([SYSTEM], ["nothing to answer: no user, assistant or tool message"]),
        ([], ["nothing to answer: no user, assistant or tool message"]),
    ],
)
def test_each_problem_is_named_with_its_place(messages: list[Message], found: list[str]) -> None:
    assert problems(messages) == found


def test_a_call_in_between_does_not_count_as_answered() -> None:
    """A result after another message is two problems: its call has no result, and it has no call."""
    assert problems([USER, asks("a"), USER, answers("a")]) == [
        "message 2: tool call a has no answer before it",
        "message 3: orphan tool result a",
    ]


def test_refusal_is_content() -> None:
    assert problems([USER, {"role": "assistant", "content": None, "refusal": "No."}]) == []


# -- repair: one rule each --


def test_a_valid_list_comes_back_with_the_same_objects() -> None:
    repaired, notes = repair(VALID)
    assert notes == []
    assert repaired is not VALID
    assert [id(message) for message in repaired] == [id(message) for message in VALID]


def test_a_missing_answer_is_filled_in() -> None:
    repaired, notes = repair([USER, asks("a", "b"), answers("b", "B"), USER])
    assert repaired == [USER, asks("a", "b"), answers("a", NO_ANSWER), answers("b", "B"), USER]
    assert notes == ["added a missing answer to tool call 'a'"]


def test_a_displaced_answer_moves_to_its_call() -> None:
    repaired, notes = repair([USER, asks("a"), USER, answers("a", "A")])
    assert repaired == [USER, asks("a"), answers("a", "A"), USER]
    assert notes == ["moved the answer to tool call 'a' to its call"]


def test_an_answer_before_its_call_moves_after_it() -> None:
    repaired, notes = repair([answers("a", "A"), USER, asks("a")])
    assert repaired == [USER, asks("a"), answers("a", "A")]
    assert notes == ["moved the answer to tool call 'a' to its call"]


def test_valid_turns_are_not_changed_by_a_repair() -> None:
    """Else a view that grew, of which only the new part is looked at, would differ from one made afresh."""
    sound = [asks("a", "b"), answers("b", "B"), answers("a", "A")]
    repaired, notes = repair([USER, *sound, asks("c")])
    assert [id(message) for message in repaired[1:4]] == [id(message) for message in sound]
    assert notes == ["added a missing answer to tool call 'c'"]


def test_the_orphan_of_sw4rms_example_becomes_a_legal_history() -> None:
    """The example of sw4rm's page on context serialization answers a call that was never recorded."""
    found: list[Message] = [
        USER,
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "tool_call_id": "call_abc123", "name": "search", "content": "3 results"},
    ]
    assert problems(found) == ["message 2: orphan tool result call_abc123"]
    repaired, notes = repair(found)
    assert problems(repaired) == []
    assert repaired[2].get("tool_calls") == [call("call_abc123", "search")]
    assert repaired[3] is found[2]
    assert notes == ["added the missing call for orphan tool result 'call_abc123' (message 2)"]


def test_an_orphan_without_a_name_is_given_one() -> None:
    repaired, _ = repair([USER, answers("a")])
    assert calls_of(repaired[1])[0]["function"]["name"] == "unknown_tool"


def test_orphans_in_a_row_each_get_their_call() -> None:
    repaired, notes = repair([USER, answers("a", "A"), answers("b", "B")])
    assert problems(repaired) == []
    assert [text_of(message) for message in repaired if message["role"] == "tool"] == ["A", "B"]
    assert len(notes) == 2


def test_a_second_answer_is_joined_to_the_first() -> None:
    """Two results for one id are refused by providers; both texts stay."""
    repaired, notes = repair([USER, asks("a"), answers("a", "one"), answers("a", "two")])
    assert repaired == [USER, asks("a"), answers("a", "one\ntwo")]
    assert notes == ["joined 2 answers to tool call 'a'"]


def test_the_same_answer_twice_stays_one_and_the_same() -> None:
    first = answers("a", "one")
    repaired, notes = repair([USER, asks("a"), first, answers("a", "one")])
    assert repaired[2] is first
    assert notes == ["joined 2 answers to tool call 'a'"]


def test_joined_results_keep_their_media() -> None:
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    first: Message = {
        "role": "tool",
        "tool_call_id": "a",
        "content": [{"type": "text", "text": "one"}, image],
    }
    repaired, _ = repair([USER, asks("a"), first, answers("a", "two")])
    assert repaired[2].get("content") == [
        {"type": "text", "text": "one"},
        image,
        {"type": "text", "text": "two"},
    ]


def test_a_repeated_id_is_renamed_together_with_its_answer() -> None:
    """Some providers number their calls anew in every turn."""
    repaired, notes = repair([USER, asks("a"), answers("a", "1"), USER, asks("a"), answers("a", "2")])
    assert repaired == [USER, asks("a"), answers("a", "1"), USER, asks("a_2"), answers("a_2", "2")]
    assert notes == ["renamed tool call 'a' to 'a_2'"]


def test_a_repeated_id_in_one_message_is_renamed() -> None:
    repaired, _ = repair([USER, asks("a", "a"), answers("a", "1"), answers("a", "2")])
    assert repaired == [USER, asks("a", "a_2"), answers("a", "1"), answers("a_2", "2")]


def test_result_stays_with_the_call_before_it() -> None:
    """An interrupted call must not be given the result of a later one."""
    repaired, _ = repair([USER, asks("a"), USER, asks("a"), answers("a", "second")])
    assert repaired == [USER, asks("a"), answers("a", NO_ANSWER), USER, asks("a_2"), answers("a_2", "second")]


def test_displaced_result_belongs_to_the_call_before_it() -> None:
    repaired, _ = repair([USER, asks("a"), USER, answers("a", "1"), asks("a"), answers("a", "2")])
    assert repaired == [USER, asks("a"), answers("a", "1"), USER, asks("a_2"), answers("a_2", "2")]


def test_missing_ids_are_made_up_and_pairs_stay_together() -> None:
    """Ollama and Gemini send no ids at all."""
    repaired, notes = repair([USER, asks("", ""), answers("", "1"), answers("", "2")])
    assert repaired == [USER, asks("call_1", "call_2"), answers("call_1", "1"), answers("call_2", "2")]
    assert notes == ["renamed tool call '' to 'call_1'", "renamed tool call '' to 'call_2'"]


def test_a_call_without_an_id_key_is_repaired_too() -> None:
    bare: Any = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    repaired, _ = repair([USER, {"role": "assistant", "content": None, "tool_calls": [bare]}])
    assert problems(repaired) == []


def test_new_id_differs_from_all_other_ids() -> None:
    messages = [USER, asks("a"), answers("a"), asks("a_2"), answers("a_2"), asks("a"), answers("a")]
    repaired, _ = repair(messages)
    assert [calls_of(message)[0]["id"] for message in repaired if calls_of(message)] == ["a", "a_2", "a_3"]


def test_an_empty_assistant_message_is_dropped() -> None:
    empty: list[Message] = [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant"},
    ]
    repaired, notes = repair([USER, *empty])
    assert repaired == [USER]
    assert len(notes) == 3


def test_unknown_key_may_be_content() -> None:
    """A spoken answer has no text."""
    spoken: Any = {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    assert repair([USER, spoken]) == ([USER, spoken], [])


@pytest.mark.parametrize("key", ["reasoning_content", "thinking_blocks", "annotations", "odd", "_private"])
def test_reasoning_or_empty_fields_are_not_content(key: str) -> None:
    silent: Any = {"role": "assistant", "content": None, key: [] if key == "odd" else ["x"]}
    assert repair([USER, silent])[0] == [USER]


@pytest.mark.parametrize("messages", [[], [SYSTEM], [SYSTEM, {"role": "assistant", "content": ""}]])
def test_repaired_list_has_a_message_to_answer(messages: list[Message]) -> None:
    repaired, notes = repair(messages)
    assert problems(repaired) == []
    assert repaired[-1]["role"] == "user"
    assert NOTHING_LEFT in notes


def test_unknown_keys_survive_a_repair() -> None:
    """A provider gets back the fields that it sent with a call."""
    signed = cast(ToolCall, {**call("a"), "provider_specific_fields": {"thought_signature": "s"}})
    first: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [signed],
        "thinking_blocks": [{"x": 1}],
    }
    again = copy.deepcopy(first)
    repaired, _ = repair([USER, first, answers("a"), again, answers("a")])
    assert repaired[3] == {**first, "tool_calls": [{**signed, "id": "a_2"}]}


# -- what must hold always --

IDS = st.sampled_from(["a", "b", "c", "a_2", "call_1", ""])
TEXTS = st.text(max_size=6)
TOOL_CALLS = st.builds(call, IDS, st.sampled_from(["f", "g"]))
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "system", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "assistant", "content": text}, st.one_of(TEXTS, st.none())),
    st.builds(
        lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls},
        st.one_of(TEXTS, st.none()),
        st.lists(TOOL_CALLS, max_size=3),
    ),
    st.builds(
        lambda call_id, text: {"role": "tool", "tool_call_id": call_id, "content": text},
        IDS,
        st.one_of(TEXTS, st.just([{"type": "text", "text": "part"}])),
    ),
)
TRANSCRIPTS = st.lists(MESSAGES, max_size=14)


@given(TRANSCRIPTS)
def test_repaired_list_has_no_problems(messages: list[Message]) -> None:
    """Any list whatsoever becomes valid."""
    assert problems(repair(messages)[0]) == []


@given(TRANSCRIPTS)
def test_repairing_twice_is_repairing_once(messages: list[Message]) -> None:
    once, _ = repair(messages)
    twice, notes = repair(once)
    assert notes == []
    assert [id(message) for message in twice] == [id(message) for message in once]


@given(TRANSCRIPTS)
def test_the_input_is_not_changed(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    repair(messages)
    assert messages == before


@given(TRANSCRIPTS)
def test_each_repair_is_reported(messages: list[Message]) -> None:
    repaired, notes = repair(messages)
    assert bool(notes) == bool(problems(messages))
    if not notes:
        assert [id(message) for message in repaired] == [id(message) for message in messages]


def _said(messages: list[Message], *roles: str) -> list[str]:
    return [text_of(message) for message in messages if message["role"] in roles and text_of(message)]


@given(TRANSCRIPTS)
@example([answers("", "A"), asks(""), answers("", "B"), asks(""), answers("", "A")])
def test_repair_keeps_all_texts_in_order(messages: list[Message]) -> None:
    repaired, notes = repair(messages)
    if NOTHING_LEFT in notes:
        repaired = repaired[:-1]
    assert _said(repaired, "user", "system", "assistant") == _said(messages, "user", "system", "assistant")


@given(TRANSCRIPTS)
def test_no_text_of_a_tool_is_lost(messages: list[Message]) -> None:
    kept = [text_of(message) for message in repair(messages)[0] if message["role"] == "tool"]
    for text in _said(messages, "tool"):
        assert any(text in one for one in kept)


@given(TRANSCRIPTS)
def test_no_call_is_lost(messages: list[Message]) -> None:
    def made(of: list[Message]) -> list[str]:
        return [one["function"]["name"] for message in of for one in calls_of(message)]

    repaired, notes = repair(messages)
    adopted = sum(note.startswith("added the missing call") for note in notes)
    assert len(made(repaired)) == len(made(messages)) + adopted
    assert [name for name in made(repaired) if name != "unknown_tool"] == made(messages)


@given(TRANSCRIPTS)
def test_messages_that_need_no_change_are_the_same_objects(messages: list[Message]) -> None:
    given_ids = {id(message) for message in messages}
    for message in repair(messages)[0]:
        if message["role"] in ("user", "system") and message.get("content") != "Please continue.":
            assert id(message) in given_ids


@given(TRANSCRIPTS)
def test_repair_is_deterministic(messages: list[Message]) -> None:
    """Call ids must not change from turn to turn, or prompt caches and replays miss."""
    assert repair(messages) == repair(copy.deepcopy(messages))


@pytest.mark.parametrize("odd", [{}, {"type": None}, {"type": "tool_use"}])
def test_a_call_without_its_type_gets_it(odd: dict[str, Any]) -> None:
    """OpenAI refuses it, and litellm loses it for Claude, and keeps its result."""
    untyped: Any = {**odd, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [untyped]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
    repaired, notes = repair(messages)
    assert repaired[1].get("tool_calls") == [{**untyped, "type": "function"}]
    assert (repaired[0], repaired[2]) == (messages[0], messages[2])
    assert notes == ["added the type of tool call 'a'"]
    assert repair(repaired) == (repaired, [])
