"""A2A messages become input of runs, and outputs of runs become A2A parts."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import agent

from routelock import RunConfig, Runner
from routelock.errors import LimitExceeded
from routelock.serving.a2a.messages import answer_parts, message_of
from routelock.serving.errors import Refusal
from routelock.testing import ScriptedReply


def test_texts_are_one_text_and_data_is_json_as_it_was() -> None:
    parts = [{"text": "Look: é"}, {"data": {"order": 7.0, "share": 0.5, "lines": [1.0, None, True]}}]
    said = 'Look: é\n{"order": 7, "share": 0.5, "lines": [1, null, true]}'
    assert message_of({"parts": parts}) == {"role": "user", "content": said}


@pytest.mark.parametrize("parts", [[], [{}], [{"url": "https://example.com/a.png"}]])
def test_parts_that_cannot_be_shown_are_refused(parts: Any) -> None:
    with pytest.raises(Refusal) as caught:
        message_of({"parts": parts})
    assert caught.value.status == 400


@pytest.mark.anyio
async def test_output_of_another_type_is_wrapped_in_an_object() -> None:
    result = await Runner.run(agent("A", '{"response": [1, 2]}', output_type=list[int]), "Hi")
    assert answer_parts(result, "ignored")[0]["data"] == {"response": [1, 2]}
    nothing = await Runner.run(agent("A", "Hello."), "Hi")
    assert (answer_parts(nothing, "Hello."), answer_parts(nothing, "")) == ([{"text": "Hello."}], [])


@pytest.mark.anyio
async def test_the_output_of_a_limit_is_data_too() -> None:
    def late(error: LimitExceeded) -> list[int]:
        return [0]

    mine = agent("A", "That is no list.", output_type=list[int])
    result = await Runner.run(mine, "Hi", max_turns=1, run_config=RunConfig(on_limit=late))
    assert answer_parts(result, "ignored")[0]["data"] == {"response": [0]}


PIXEL = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("media", "part"),
    [
        ({"type": "image_url", "image_url": {"url": PIXEL}}, {"raw": "aGk=", "mediaType": "image/png"}),
        (
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png?size=1"}},
            {"url": "https://x.example/a.png?size=1", "mediaType": "image/png"},
        ),
        (
            {"type": "input_audio", "input_audio": {"format": "mp3", "data": "aGk="}},
            {"raw": "aGk=", "mediaType": "audio/mp3"},
        ),
        (
            {"type": "file", "file": {"filename": "a.csv", "file_data": "data:;base64,aGk="}},
            {"raw": "aGk=", "filename": "a.csv", "mediaType": "text/csv"},
        ),
        (
            {"type": "file", "file": {"file_id": "https://x.example/a", "format": "application/pdf"}},
            {"url": "https://x.example/a", "mediaType": "application/pdf"},
        ),
        (
            {"type": "file", "file": {"file_url": "https://x.example/a"}},
            {"url": "https://x.example/a", "mediaType": "application/octet-stream"},
        ),
    ],
)
@pytest.mark.anyio
async def test_a_file_that_a_model_made_is_a_part(media: dict[str, Any], part: dict[str, Any]) -> None:
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "Here."}, media]}
    result = await Runner.run(agent("A", ScriptedReply(message=message)), "Hi")
    assert answer_parts(result, "Here.") == [{"text": "Here."}, part]


@pytest.mark.anyio
async def test_an_image_beside_the_text_is_a_part() -> None:
    """Chat APIs answer the images that a model made in a key of their own."""
    images = [{"type": "image_url", "image_url": {"url": PIXEL}}]
    message: Any = {"role": "assistant", "content": "Here.", "images": images}
    result = await Runner.run(agent("A", ScriptedReply(message=message)), "Hi")
    assert answer_parts(result, "Here.")[1:] == [{"raw": "aGk=", "mediaType": "image/png"}]


@pytest.mark.anyio
async def test_a_file_that_only_its_vendor_has_is_no_part() -> None:
    content = [{"type": "text", "text": "Here."}, {"type": "file", "file": {"file_id": "file-1"}}]
    message: Any = {"role": "assistant", "content": content}
    result = await Runner.run(agent("A", ScriptedReply(message=message)), "Hi")
    assert answer_parts(result, "Here.") == [{"text": "Here."}]
