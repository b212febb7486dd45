"""Private keys of messages say what the items of an earlier run knew."""

from __future__ import annotations

from typing import Any

from routelock.history.marked import KIND, ORIGIN, item_of
from routelock.history.messages import Message, RunItem

USER: Message = {"role": "user", "content": "Hi"}


def test_private_keys_become_fields_of_the_item() -> None:
    written: Any = {"role": "assistant", "content": "x", ORIGIN: "anthropic"}
    assert item_of(written, 3, "input") == RunItem(
        id=3, kind="input", message={"role": "assistant", "content": "x"}, origin="anthropic"
    )
    nudge: Any = {**USER, KIND: "nudge"}
    assert item_of(nudge, 4, "filter") == RunItem(id=4, kind="nudge", message=USER)


def test_a_message_without_private_keys_stays_the_same_object() -> None:
    assert item_of(USER, 0, "input").message is USER
