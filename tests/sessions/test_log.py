"""The records of a session are read as one conversation, of any program and however often written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.errors import ConfigError, SessionError
from routelock.history.messages import RunItem
from routelock.sessions.log import (
    NOTHING,
    Entry,
    conversation_of,
    entries_of,
    item_document,
    newest_part,
    parts_of,
    record_text,
)


def item(place: int, text: str = "", role: str = "user", **more: Any) -> RunItem:
    message: Any = {"role": role, "content": text or str(place), **more}
    return RunItem(id=place, kind="input", message=message)


def entry(*texts: str, run: str = "r", **more: Any) -> Entry:
    return Entry(items=[item_document(item(0, text)) for text in texts], run=run, **more)


def read(*records: str) -> tuple[list[Any], list[str]]:
    entries, unread = entries_of(enumerate(records, 1))
    items, notes = conversation_of(parts_of(entries))
    return [each.message.get("content") for each in items], [*unread, *notes]


def test_what_is_written_is_read() -> None:
    first, second = entry("a", "b", turn=1), entry("c", turn=2, first=2)
    assert entries_of([(1, record_text([first])), (2, record_text([second]))]) == ([first, second], [])
    assert entries_of([(1, record_text([first, second]))]) == ([first, second], [])


def test_a_turn_that_is_made_again_takes_the_place_of_what_was_there() -> None:
    records = [record_text([each]) for each in (entry("a"), entry("b", first=1), entry("B", first=1))]
    assert read(*records) == (["a", "B"], [])


def test_another_run_goes_on_behind_it() -> None:
    assert read(record_text([entry("a")]), record_text([entry("b", run="s")])) == (["a", "b"], [])


def test_what_others_have_written_is_messages() -> None:
    assert read(json.dumps([{"role": "user", "content": "Hi"}])) == (["Hi"], [])
    assert read(json.dumps({"role": "user", "content": "Hi"})) == (["Hi"], [])
    assert read(NOTHING) == ([], [])


@pytest.mark.parametrize("record", ["no JSON", "7", "[" * 100_000])
def test_what_cannot_be_read_is_left_out_and_told(record: str) -> None:
    texts, (note,) = read(record_text([entry("a")]), record)
    assert texts == ["a"]
    assert note.startswith("session: left out record 2, which is not readable")


def test_what_a_newer_version_wrote_is_refused() -> None:
    with pytest.raises(SessionError, match=r"format 99.*Update routelock"):
        entries_of([(1, json.dumps({"format_version": 99}))])


def test_what_is_no_json_is_refused_where_it_is() -> None:
    with pytest.raises(ConfigError, match="A session keeps JSON"):
        record_text([Entry(items=[{"x": object()}])])


def test_a_number_that_is_none_is_null() -> None:
    assert json.loads(record_text([Entry(items=[{"x": float("nan")}], run="r")]))["items"] == [{"x": None}]


def test_the_newest_items_are_kept_within_the_limits() -> None:
    items = [item(place) for place in range(5)]
    assert newest_part(items, None, None) == (items, False)
    assert newest_part(items, 2, None) == (items[3:], True)
    assert newest_part(items, None, 1) == ([], True)


def test_no_answer_is_kept_whose_call_is_left_out() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    items = [
        item(0, role="assistant", tool_calls=[call]),
        item(1, role="tool", tool_call_id="a"),
        item(2),
    ]
    assert newest_part(items, 2, None) == (items[2:], True)
    assert newest_part(items, 3, None) == (items, False)
