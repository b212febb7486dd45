"""The parts of a message that are no text, whichever API spelled them."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.history.content import chat_part, media_of, with_media, without_media

TEXT = {"type": "text", "text": "Look:"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("part", "chat"),
    [
        ({"type": "input_text", "text": "Hi"}, {"type": "text", "text": "Hi"}),
        (
            {"type": "input_image", "image_url": "https://a/b.png", "detail": "low"},
            {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
        ),
        ({"type": "input_file", "file_id": "f1"}, {"type": "file", "file": {"file_id": "f1"}}),
    ],
)
def test_parts_of_the_responses_api_become_those_of_chat(part: Any, chat: Any) -> None:
    assert chat_part(part) == chat


@pytest.mark.parametrize(
    "part", [TEXT, IMAGE, {"type": "input_file"}, {"type": "thinking", "thinking": "Hm"}]
)
def test_other_parts_stay_the_same_objects(part: Any) -> None:
    assert chat_part(part) is part


def test_media_parts_are_found_and_reasoning_parts_are_not() -> None:
    assert media_of([TEXT, IMAGE, {"type": "thinking", "thinking": "Hm"}]) == [IMAGE]
    assert not media_of("text")
    assert not media_of(None)


def test_text_stays_text_unless_something_is_shown_beside_it() -> None:
    assert with_media("Look:", []) == "Look:"
    assert with_media("Look:", [IMAGE]) == [TEXT, IMAGE]


def test_a_mark_stands_where_something_was_shown() -> None:
    content = [TEXT, IMAGE]
    assert without_media(content) == [TEXT, {"type": "image_url", "shown": "below"}]
    assert content == [TEXT, IMAGE], "what was given stays as it was"
    assert without_media("Hi") == "Hi"
