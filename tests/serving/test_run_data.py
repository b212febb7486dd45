"""What a run has brought, as data."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import agent

from routelock import Runner
from routelock.serving.run_data import MadeFile, delta_text, made_files, output_data, usage_data
from routelock.testing.scripted import ScriptedReply
from routelock.usage import Usage


def test_usage_has_names_in_camel_case() -> None:
    assert usage_data(Usage(input_tokens=2, output_tokens=3))["totalTokens"] == 5


def test_refusals_are_part_of_what_is_said() -> None:
    assert delta_text([{"content": "a"}, {"refusal": "b"}, {"x_agent": {}}]) == "ab"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reply", "kind", "data"),
    [
        ("Hello.", None, None),
        ('{"response": 7}', int, {"response": 7}),
        ('{"a": 1}', dict[str, int], {"a": 1}),
    ],
)
async def test_an_output_is_an_object(reply: str, kind: Any, data: Any) -> None:
    assert output_data(await Runner.run(agent("A", reply, output_type=kind), "Hi")) == data


async def made(*content: Any, **more: Any) -> list[MadeFile]:
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "Here."}, *content], **more}
    return [*made_files(await Runner.run(agent("A", ScriptedReply(message=message)), "Hi"))]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("about", "file"),
    [
        (
            {"filename": "a.csv", "file_data": "data:;base64,aGk="},
            MadeFile(kind="text/csv", name="a.csv", data="aGk="),
        ),
        (
            {"file_data": "data:text/plain;charset=utf-8;base64,aGk="},
            MadeFile(kind="text/plain", data="aGk="),
        ),
        (
            {"file_url": "https://x.example/a.pdf?b=c"},
            MadeFile(
                kind="application/pdf",
                url="https://x.example/a.pdf?b=c",
            ),
        ),
    ],
)
async def test_a_file_has_its_bytes_or_its_address(about: dict[str, Any], file: MadeFile) -> None:
    assert await made({"type": "file", "file": about}) == [file]


@pytest.mark.anyio
async def test_a_file_that_only_its_vendor_has_is_left_out() -> None:
    assert await made({"type": "file", "file": {"file_id": "file-1"}}) == []


@pytest.mark.anyio
async def test_images_may_be_in_a_key_of_their_own() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert await made(images=[image]) == [MadeFile(kind="image/png", data="aGk=")]
