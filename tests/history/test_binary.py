"""Images, sound and files by reference."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.history.binary import externalize_binary, restore_binary

IMAGE = "data:image/png;base64," + "A" * 5000
SOUND = "B" * 5000


def image(url: str = IMAGE) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": IMAGE},
    image(),
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}]},
    {"role": "user", "content": [{"type": "file", "file": {"file_data": IMAGE, "filename": "a.png"}}]},
    {
        "role": "tool",
        "tool_call_id": "a",
        "content": [
            {"type": "image", "source": {"type": "base64", "data": SOUND}},
            {"type": "text", "text": IMAGE},
        ],
    },
]


def test_references_stand_for_binary_data_and_back() -> None:
    store: dict[str, str] = {}
    light = externalize_binary(MESSAGES, store)
    assert len(str(light[1:4])) < 1000
    assert sorted(store.values()) == sorted([IMAGE, SOUND])
    assert restore_binary(light, store) == MESSAGES


def test_a_store_can_be_two_functions() -> None:
    """Such as those of a bucket; the same data comes with the same reference."""
    kept: list[tuple[str, str]] = []
    light = externalize_binary([image(), image()], lambda ref, text: kept.append((ref, text)))
    ref = "ref:sha256:" + hashlib.sha256(IMAGE.encode()).hexdigest()
    assert kept == [(ref, IMAGE)] * 2
    assert restore_binary(light, dict(kept).__getitem__) == [image(), image()]


def test_words_are_never_looked_into() -> None:
    """Text is text, even if it looks like binary data."""
    store: dict[str, str] = {}
    light = externalize_binary(MESSAGES, store)
    assert light[0] == MESSAGES[0]
    assert light[4].get("content", [])[1] == {"type": "text", "text": IMAGE}  # type: ignore[index]


@pytest.mark.parametrize(("over", "kept"), [(len(IMAGE), 0), (len(IMAGE) - 1, 1), (0, 1)])
def test_small_data_is_not_externalized(over: int, kept: int) -> None:
    store: dict[str, str] = {}
    externalize_binary([image()], store, over=over)
    assert len(store) == kept


def test_an_address_stays() -> None:
    messages = [image("https://example.com/" + "a" * 5000)]
    assert externalize_binary(messages, {}) == messages


def test_nothing_is_changed_in_place() -> None:
    before = copy.deepcopy(MESSAGES)
    light = externalize_binary(MESSAGES, {})
    light[0]["content"] = "changed"
    assert before == MESSAGES


def test_unknown_reference_is_an_error() -> None:
    light = externalize_binary([image()], {})
    with pytest.raises(ValueError, match=r"nothing under ref:sha256:[0-9a-f]{64}"):
        restore_binary(light, {})


def test_changed_text_in_the_store_is_an_error() -> None:
    store: dict[str, str] = {}
    light = externalize_binary([image()], store)
    with pytest.raises(ValueError, match="has another text"):
        restore_binary(light, dict.fromkeys(store, "data:text/html,other"))


def test_an_error_of_the_stores_own_comes_through() -> None:
    def broken(ref: str) -> str:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        restore_binary(externalize_binary([image()], {}), broken)


def test_text_like_a_reference_is_not_restored() -> None:
    messages = [image("ref:sha256:short"), {"role": "user", "content": "ref:sha256:" + "0" * 64}]
    assert restore_binary(messages, {}) == messages


@given(st.lists(st.sampled_from(MESSAGES)), st.integers(0, 6000))
def test_restored_messages_equal_the_originals(messages: list[Any], over: int) -> None:
    store: dict[str, str] = {}
    assert restore_binary(externalize_binary(messages, store, over=over), store) == messages
