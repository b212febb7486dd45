"""The budget of tool results: it is kept, the oldest pay for it, and calls keep their answers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thoroughness import examples

from routelock import Agent, Runner, handoff, nest_handoff_history, tool
from routelock._callables import resolve
from routelock.errors import ConfigError
from routelock.history.filters import (
    HandoffInputData,
    HandoffInputFilter,
    compose,
    keep_last,
    remove_all_tools,
    tool_results_budget,
)
from routelock.history.input import to_messages
from routelock.history.messages import Message, RunItem, calls_of, text_of
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, assert_valid, call


def asked(*ids: str, words: str | None = None) -> Any:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": words, "tool_calls": calls}


def told(call_id: str, content: Any) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER: Any = {"role": "user", "content": "Look."}
ACCEPTED: Any = {**told("t", '{"assistant": "b"}'), "_kind": "handoff"}


def items(*messages: Any) -> tuple[RunItem, ...]:
    made: list[RunItem] = []
    for place, message in enumerate(messages):
        plain: Any = {key: value for key, value in message.items() if key != "_kind"}
        kind: Any = message.get("_kind") or {"tool": "tool", "user": "input"}.get(message["role"], "model")
        made.append(RunItem(id=place, kind=kind, message=plain))
    return tuple(made)


def data(*messages: Any, new: int = 0) -> HandoffInputData:
    made = items(*messages)
    cut = len(made) - new
    return HandoffInputData(input_history=made[:1], pre_handoff_items=made[1:cut], new_items=made[cut:])


def shown(messages: list[Any], *budgets: int | HandoffInputFilter, new: int = 0) -> list[Message]:
    """What is seen of these messages through filters, one after the other; a number is a budget."""
    made: Any = data(*messages, new=new)
    for each in budgets:
        made = (tool_results_budget(each) if isinstance(each, int) else each)(made)
    return [item.message for item in made.all_items]


def size(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    return sum(size(part["text"]) for part in content or ())


def results(messages: list[Message]) -> list[Any]:
    return [message.get("content") for message in messages if message["role"] == "tool"]


# -- what must always hold --

CONTENT = (
    st.text(max_size=60)
    | st.text("aé€😀\ud800", max_size=60)
    | st.lists(st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=30)), max_size=2)
    | st.none()
)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """User messages, texts, calls with all results, and handoffs: a valid history of a run."""
    made: list[Any] = [USER]
    for number in range(draw(st.integers(0, 4))):
        ids = [f"c{number}-{each}" for each in range(draw(st.integers(1, 3)))]
        made.append(asked(*ids, words=draw(st.none() | st.just("I look."))))
        made += [told(each, draw(CONTENT)) for each in ids]
        made += draw(st.sampled_from([[], [USER], [{"role": "assistant", "content": "Hm."}]]))
    if draw(st.booleans()):
        made += [asked("t"), ACCEPTED]
    return made


BUDGETS = st.integers(0, 200)


def counted(messages: list[Message]) -> int:
    """The bytes of all results; the result of a handoff does not count."""
    return sum(size(content) for content in results(messages) if content != ACCEPTED["content"])


@examples(20)
@given(histories(), BUDGETS)
def test_the_budget_is_kept(history: list[Any], max_bytes: int) -> None:
    assert counted(shown(history, max_bytes)) <= max_bytes


@examples(20)
@given(histories(), BUDGETS)
def test_a_call_keeps_its_answer(history: list[Any], max_bytes: int) -> None:
    assert problems(history) == []
    assert problems(shown(history, max_bytes)) == []


@examples(20)
@given(histories(), BUDGETS)
def test_twice_is_once(history: list[Any], max_bytes: int) -> None:
    once = shown(history, max_bytes)
    assert shown(history, max_bytes, max_bytes) == once


@examples(20)
@given(histories(), BUDGETS)
def test_results_within_the_budget_are_not_changed(history: list[Any], more: int) -> None:
    same = [{key: value for key, value in message.items() if key != "_kind"} for message in history]
    assert shown(history, sum(map(size, results(history))) + more) == same


@examples(20)
@given(histories(), BUDGETS)
def test_the_input_is_not_changed(history: list[Any], max_bytes: int) -> None:
    before = copy.deepcopy(history)
    shown(history, max_bytes)
    assert history == before


@examples(20)
@given(histories(), BUDGETS)
def test_budget_adds_and_moves_no_message(history: list[Any], max_bytes: int) -> None:
    """A result is unchanged, or its beginning with a notice; texts keep their place."""
    known: dict[Any, str] = {
        each["tool_call_id"]: text_of(each) for each in history if each["role"] == "tool"
    }
    seen = shown(history, max_bytes)
    for message in seen:
        if message["role"] == "tool":
            beginning = text_of(message).partition("[... cut: ")[0]
            assert known[message.get("tool_call_id")].startswith(beginning)
    said = [each["content"] for each in history if each["role"] != "tool" and each["content"]]
    assert [
        message.get("content") for message in seen if message["role"] != "tool" and message.get("content")
    ] == said


@examples(20)
@given(histories(), BUDGETS)
def test_older_results_are_cut_before_newer_ones(history: list[Any], max_bytes: int) -> None:
    """From the newest back: whole results, then at most one beginning, then notices."""
    contents: dict[Any, Any] = {
        each["tool_call_id"]: each["content"] for each in history if each["role"] == "tool"
    }
    states: list[str] = []
    for message in reversed(shown(history, max_bytes)):
        if message["role"] == "tool" and message.get("tool_call_id") != "t":
            content = message.get("content")
            if content != contents[message.get("tool_call_id")]:
                states.append("notice" if str(content).startswith("[... cut: ") else "beginning")
            elif size(content) > len("[... cut: 100 bytes in all]"):
                states.append("whole")
    assert states == sorted(states, key=["whole", "beginning", "notice"].index)
    assert states.count("beginning") <= 1


@given(st.text("aé€😀", min_size=30), st.integers(30, 120))
@example("😀" * 20, 31)
def test_a_character_is_never_cut_in_two(text: str, max_bytes: int) -> None:
    [content] = results(shown([USER, asked("a"), told("a", text)], max_bytes))
    beginning = content.partition("[... cut: ")[0]
    assert text.startswith(beginning)
    assert "\ufffd" not in content


# -- what it looks like --


def test_oldest_result_is_cut_first_with_a_notice() -> None:
    history = [USER, asked("a"), told("a", "x" * 1000), asked("b"), told("b", "y" * 500)]
    oldest, newest = results(shown(history, 600))
    assert (oldest, newest) == ("x" * 72 + "[... cut: 1000 bytes in all]", "y" * 500)


def test_last_result_of_a_reply_is_the_newest() -> None:
    history = [USER, asked("a", "b"), told("a", "x" * 100), told("b", "y" * 100)]
    notice = "[... cut: 100 bytes in all]"
    assert results(shown(history, 100 + len(notice))) == [notice, "y" * 100]


def test_a_result_shorter_than_the_notice_stays() -> None:
    history = [USER, asked("a"), told("a", "42"), asked("b"), told("b", "y" * 100)]
    assert results(shown(history, 50))[0] == "42"


def test_calls_are_hidden_with_results_if_notices_do_not_fit() -> None:
    history = [USER, asked("a", words="I look."), told("a", "x" * 99), asked("b"), told("b", "y" * 99)]
    assert shown(history, 30) == [
        USER,
        {"role": "assistant", "content": "I look."},
        asked("b"),
        told("b", "yyyy[... cut: 99 bytes in all]"),
    ]
    assert shown(history, 0) == [USER, {"role": "assistant", "content": "I look."}]


def test_result_without_a_call_counts_for_the_budget() -> None:
    """A history of foreign make; the run repairs it afterwards."""
    assert shown([USER, told("a", "x" * 99)], 10) == [USER]


def test_result_of_a_handoff_does_not_count() -> None:
    assert shown([USER, asked("t"), ACCEPTED], 0, new=2) == [
        USER,
        asked("t"),
        told("t", '{"assistant": "b"}'),
    ]


def test_an_empty_result_costs_nothing() -> None:
    history = [USER, asked("a"), told("a", ""), asked("b"), told("b", None)]
    assert shown(history, 0) == history


def test_media_of_a_result_count_and_are_cut() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500}}
    history = [USER, asked("a"), told("a", [{"type": "text", "text": "Here."}, image])]
    [content] = results(shown(history, 300))
    assert content == "Here.[... cut: 574 bytes in all]"
    assert shown(history, 600) == history


def test_all_parts_share_the_budget() -> None:
    history = [USER, asked("a"), told("a", "x" * 100), asked("b"), told("b", "y" * 100)]
    assert results(shown(history, 130, new=2))[1] == "y" * 100


def test_only_shown_items_count_for_the_budget() -> None:
    whole = data(USER, asked("a"), told("a", "x" * 100), new=2)
    seen: Any = tool_results_budget(10)(whole.clone(input_items=()))
    assert (seen.new_items, seen.input_items) == (whole.new_items, ())


def test_repeated_message_counts_twice_for_the_budget() -> None:
    whole = data(USER, asked("a"), told("a", "x" * 100))
    twice = whole.clone(new_items=whole.pre_handoff_items)
    seen: Any = tool_results_budget(150)(twice)
    assert counted([item.message for item in seen.all_items]) == 150


def test_the_default_is_8192_bytes() -> None:
    history = [USER, asked("a"), told("a", "x" * 9000)]
    [content] = results(shown(history, tool_results_budget()))
    assert len(content) == 8192


def test_budget_must_not_be_negative() -> None:
    with pytest.raises(ConfigError, match="needs 0 bytes or more, not -1"):
        tool_results_budget(-1)


# -- with others --


@examples(20)
@given(histories(), BUDGETS, st.integers(1, 6))
def test_budget_composes_with_keep_last(history: list[Any], max_bytes: int, count: int) -> None:
    for filters in ((max_bytes, keep_last(count)), (keep_last(count), max_bytes)):
        seen = shown(history, *filters)
        assert not seen or problems(seen) == []
        assert counted(seen) <= max_bytes


def test_budget_after_remove_all_tools_cuts_nothing() -> None:
    history = [USER, asked("a", words="I look."), told("a", "x" * 99)]
    assert shown(history, remove_all_tools, 0) == [USER, {"role": "assistant", "content": "I look."}]


@pytest.mark.anyio
async def test_summary_is_made_from_the_cut_results() -> None:
    history = [USER, asked("a"), told("a", "x" * 500)]
    both = compose(tool_results_budget(100), nest_handoff_history)
    made = await resolve(both(data(*history, new=2)))
    summary, _ = [item.message for item in made.all_items]
    assert "[... cut: 500 bytes in all]" in text_of(summary)
    assert "x" * 100 not in text_of(summary)


@tool
def look_up(what: str) -> str:
    """Look something up."""
    return what * 5000


@pytest.mark.anyio
@pytest.mark.parametrize("own", [[], [look_up]], ids=["told", "shown"])
async def test_budget_does_not_change_the_transcript(own: list[Any]) -> None:
    """The target has the tool and sees the calls, or lacks it and sees notes."""
    target = Agent("b", model=ScriptedHandler(["Done."]), tools=own)
    calls = [call("look_up", {"what": "x"}), call("look_up", {"what": "y"}), call("transfer_to_b")]
    declared = handoff(target, input_filter=tool_results_budget(6000))
    source = Agent("a", model=ScriptedHandler(calls), tools=[look_up], handoffs=[declared])
    result = await Runner.run(source, "Look.")
    seen = [*result.calls[-1].messages]
    assert_valid(seen)
    text = "".join(map(text_of, seen))
    assert "y" * 5000 in text
    assert "x" * 900 in text
    assert "x" * 1001 not in text
    assert "[... cut: 5000 bytes in all]" in text
    assert [each for each in results([*result.messages]) if len(each) == 5000] == ["x" * 5000, "y" * 5000]
    assert to_messages(result.to_input_list())
    assert calls_of(result.messages[1])
