"""What a compaction keeps, and what it replaces; the run around it is in tests/run/test_compact.py."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import agent

from routelock.errors import CallbackError, ConfigError
from routelock.history import Compact
from routelock.history.compaction import (
    Limit,
    ViewSize,
    cut_old_results,
    cut_to_fit,
    estimated_tokens,
    fold_of,
    is_summary,
    notice_of,
    opened,
    pieces,
    reuse,
    summary_of,
    summary_request,
    summary_text,
)
from routelock.history.input import to_messages
from routelock.history.messages import RunItem, text_of
from routelock.testing import call


def turn(number: int, size: int = 100) -> list[Any]:
    """A reply with a call, and its result."""
    calls = [call("read", {"page": number}, id=f"c{number}")]
    result = {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}".ljust(size, "x")}
    return [{"role": "assistant", "content": None, "tool_calls": calls}, result]


def view(*messages: Any) -> list[RunItem]:
    kinds: Any = {"user": "input", "assistant": "model", "tool": "tool", "system": "input"}
    return [
        RunItem(id=place, kind=kinds[message["role"]], message=message)
        for place, message in enumerate(to_messages(list(messages)))
    ]


SYSTEM: Any = {"role": "system", "content": "Be brief."}
ASKED: Any = {"role": "user", "content": "Read."}
LONG = [ASKED, *(message for number in range(1, 9) for message in turn(number))]


def folded(settings: Compact, *messages: Any, fixed: int = 0, is_forced: bool = False) -> Any:
    limit = Limit(tokens=settings.at_tokens, messages=settings.at_messages)
    return fold_of(view(*messages), settings, limit, fixed=fixed, is_forced=is_forced)


def ids(items: Any) -> list[int]:
    return [item.id for item in items]


# -- settings --


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"at_tokens": 0}, "at_tokens must be a whole number above 0"),
        ({"at_messages": True}, "at_messages must be a whole number"),
        ({"tool_results": -1}, "tool_results must be"),
        ({"keep_turns": 0}, "keep_turns must be at least 1"),
        ({"down_to": 1}, "down_to must be from 0 to 0.9"),
        ({"keep": "all"}, "keep must be a function"),
        ({"rest": "fold"}, "rest must be 'drop', 'cut', or what writes a summary"),
        ({"rest": 7}, "rest must be"),
    ],
)
def test_a_wrong_setting_says_what_to_write(given: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        Compact(**given)


@pytest.mark.parametrize("rest", ["openai/gpt-4o-mini", agent("A", "Hi"), lambda messages: ""])
def test_what_can_write_a_summary_is_taken(rest: Any) -> None:
    assert Compact(rest=rest).summarises
    assert not Compact().summarises


# -- what is kept --


def test_the_question_and_the_last_turns_are_kept() -> None:
    fold = folded(Compact(at_messages=12, keep_turns=2, down_to=0), *LONG)
    assert ids(fold.kept) == [0, 13, 14, 15, 16]
    assert ids(fold.folded) == list(range(1, 13))


def test_more_turns_are_kept_if_they_fit() -> None:
    fold = folded(Compact(at_messages=16, keep_turns=1), *LONG)
    assert ids(fold.kept) == [0, 11, 12, 13, 14, 15, 16]


def test_fewer_turns_are_kept_if_they_would_fill_most_of_the_limit() -> None:
    fold = folded(Compact(at_messages=8, keep_turns=8), *LONG)
    assert ids(fold.kept) == [0, 13, 14, 15, 16]


def test_the_newest_turn_is_kept_however_long_it_is() -> None:
    fold = folded(Compact(at_tokens=300), *LONG[:5], *turn(9, 10_000))
    assert ids(fold.kept) == [0, 5, 6]


def test_system_messages_are_kept_where_they_are() -> None:
    fold = folded(Compact(at_messages=8, keep_turns=1, down_to=0), SYSTEM, *LONG)
    assert ids(fold.kept) == [0, 1, 16, 17]


def test_a_pinned_result_is_kept_with_its_call() -> None:
    settings = Compact(at_messages=8, keep_turns=1, down_to=0, keep=lambda item: item.id == 4)
    assert ids(folded(settings, *LONG).kept) == [0, 3, 4, 15, 16]


def test_little_is_not_worth_it_unless_the_provider_has_refused() -> None:
    settings = Compact(at_messages=100, keep_turns=7, down_to=0)
    assert folded(settings, *LONG) is None
    assert folded(settings, *LONG, is_forced=True) is not None


def test_a_keep_function_that_raises_is_named() -> None:
    def is_good(item: RunItem) -> bool:
        raise ValueError("no")

    with pytest.raises(CallbackError, match="'is_good' of Compact"):
        folded(Compact(at_messages=5, keep=is_good), *LONG)


def test_what_replaces_older_messages_stands_before_the_question() -> None:
    said = [ASKED, {"role": "assistant", "content": "Done."}, ASKED, *LONG[1:]]
    fold = folded(Compact(at_messages=8, keep_turns=1, down_to=0), *said)
    shown = fold.with_items(notice_of(fold.new))
    assert [item.message["role"] for item in shown] == ["user", "user", "assistant", "tool"]
    assert shown[0].kind == "summary"


# -- what replaces it --


def test_a_summary_covers_what_it_stands_for() -> None:
    items = view(*LONG)
    summary = summary_of(" They were read. ", items[1:5])
    assert is_summary(summary)
    assert summary_text(summary) == "They were read."
    assert ids(summary.covers) == [1, 2, 3, 4]
    assert "4 earlier messages" in text_of(summary.message)


def test_a_view_uses_a_summary_that_covers_items_of_it() -> None:
    items = view(*LONG)
    summary = summary_of("They were read.", items[1:5])
    assert reuse(items, summary, Compact()) == [items[0], summary, *items[5:]]


def test_a_view_that_lacks_an_item_does_not_use_it() -> None:
    items = view(*LONG)
    summary = summary_of("They were read.", items[1:5])
    assert reuse(items[3:], summary, Compact()) == items[3:]


def test_a_view_with_another_text_does_not_use_it() -> None:
    items = view(*LONG)
    summary = summary_of("They were read.", items[1:5])
    edited = view(ASKED, *turn(1, 50), *LONG[3:])
    assert reuse(edited, summary, Compact()) == edited


def test_a_view_with_cut_results_uses_it() -> None:
    items = view(*LONG)
    summary = summary_of("They were read.", items[1:5])
    cut = cut_old_results(items, Compact(keep_turns=1), 0)
    assert reuse(cut, summary, Compact())[1] is summary


def test_a_notice_is_unfolded_for_a_summary() -> None:
    items = view(*LONG)
    shown = [notice_of(items[1:5]), items[0], *items[5:]]
    assert opened(shown, Compact(rest="openai/gpt-4o-mini")) == items
    assert opened(shown, Compact()) == shown


# -- tool results --


def results(items: list[RunItem]) -> list[Any]:
    return [item.message.get("content") for item in items if item.message["role"] == "tool"]


def test_old_results_become_notices_and_cover_the_whole_ones() -> None:
    items = view(*LONG)
    cut = cut_old_results(items, Compact(keep_turns=2), 0)
    assert results(cut) == ["[... cut: 100 bytes in all]"] * 6 + results(items)[6:]
    assert cut[2].covers == (items[2],)


def test_old_results_stay_as_far_as_they_fit() -> None:
    cut = cut_old_results(view(*LONG), Compact(keep_turns=2), 400)
    assert [len(each) > 90 for each in results(cut)] == [False] * 4 + [True] * 4


def test_what_is_left_of_a_result_is_cut_like_a_whole_one() -> None:
    items = view(ASKED, *turn(1, 4000), *turn(2, 4000))
    size = ViewSize(0).of(items)
    cut = cut_to_fit(items, size.tokens - 500, size)
    assert len(results(cut)[0]) == 2000
    again = cut_old_results(cut, Compact(keep_turns=1), 0)
    assert results(again)[0] == "[... cut: 4000 bytes in all]"
    assert again[2].covers == (items[2],)


def test_small_results_are_not_cut() -> None:
    items = view(ASKED, *turn(1, 40), *turn(2, 40), *turn(3, 40))
    assert cut_old_results(items, Compact(keep_turns=1), 0) == items


def test_the_newest_results_are_cut_last() -> None:
    items = view(ASKED, *turn(1, 4000), *turn(2, 4000))
    size = ViewSize(0).of(items)
    cut = cut_to_fit(items, size.tokens - 1500, size)
    assert [len(each) for each in results(cut)] == [len("[... cut: 4000 bytes in all]"), 2000]


# -- sizes --


def test_the_size_grows_with_new_items_only() -> None:
    items, size = view(*LONG), ViewSize(50)
    size.add(items[:3], 3)
    size.add(items, len(items))
    assert size.tokens == 50 + sum(estimated_tokens(item.message) for item in items)
    assert size.results == 800


def test_the_providers_count_replaces_the_estimate() -> None:
    items, size = view(*LONG), ViewSize(50)
    size.add(items, 3)
    size.asked = 3
    size.count(items, 1000)
    assert (size.tokens, size.items) == (1000, 4)
    assert size.scale == 4.0, "it is not believed without limits"


def test_a_server_that_counts_nothing_is_not_believed() -> None:
    items, size = view(*LONG), ViewSize(0)
    size.add(items, len(items) - 1)
    size.asked = len(items) - 1
    size.count(items, 1)
    assert size.tokens == round(size.estimated / 4)


@pytest.mark.parametrize(
    ("message", "least"),
    [
        ({"role": "user", "content": "x" * 400}, 100),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, 800),
        ({"role": "assistant", "content": None, "reasoning_content": "x" * 400}, 100),
        ({"role": "assistant", "content": None, "thinking_blocks": [{"thinking": "x" * 400}]}, 100),
        (turn(1)[0], 20),
        ({"role": "assistant", "content": "Rain.", "vendor_items": {"items": ["x" * 400]}}, 100),
    ],
)
def test_each_kind_of_content_has_tokens(message: Any, least: int) -> None:
    assert least <= estimated_tokens(message) < least + 50


# -- what the writer is shown --


def test_a_long_conversation_is_told_in_parts() -> None:
    items = view(*LONG)
    parts = pieces(items, 100)
    assert [item for part in parts for item in part] == items
    assert len(parts) > 3


def test_the_writer_gets_lines_of_json_and_the_summary_so_far() -> None:
    text = summary_request(view(*LONG)[1:3], "It began.")
    assert text.startswith(
        "The summary so far:\nIt began.\n\nThe messages since, one line of JSON each:\n1. {"
    )
    assert len(text.splitlines()) == 6
