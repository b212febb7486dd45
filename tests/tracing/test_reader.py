"""What is written of a run can be read back, and says exactly what happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scenes import SCENES, Stage
from trace_checks import accounted_for, only, same

from routelock import Agent, RunConfig, Runner, RunResult, function_tool, handoff
from routelock.errors import ConfigError, RoutelockError
from routelock.history.filters import remove_all_tools
from routelock.testing import ScriptedHandler, call
from routelock.tools.outcome import ToolResult
from routelock.tracing.reader import read_trace
from routelock.tracing.records import numbers

pytestmark = pytest.mark.anyio


async def play(scene: str, path: Path, *, stream: bool = False) -> RunResult[Any]:
    """Run a scene and trace it; return its result, partial if it failed."""
    it = SCENES[scene]
    config = it.settings(trace=path, clock=lambda: 1.0)
    try:
        if stream:
            return await Runner.run_streamed(
                it.agent(Stage()), "Hi", max_turns=it.max_turns, run_config=config
            ).drain()
        return await Runner.run(it.agent(Stage()), "Hi", max_turns=it.max_turns, run_config=config)
    except RoutelockError as error:
        return error.result or pytest.fail("an error of a run carries the partial result")


@pytest.mark.parametrize("scene", SCENES)
async def test_the_trace_of_a_run_says_what_its_result_says(scene: str, tmp_path: Path) -> None:
    result = await play(scene, tmp_path / "runs.jsonl")
    same(result, only(tmp_path / "runs.jsonl"))


@pytest.mark.parametrize("scene", SCENES)
async def test_a_streamed_run_is_traced_as_a_plain_one(scene: str, tmp_path: Path) -> None:
    await play(scene, tmp_path / "plain.jsonl")
    await play(scene, tmp_path / "streamed.jsonl", stream=True)
    plain, streamed = (_told(tmp_path / f"{name}.jsonl") for name in ("plain", "streamed"))
    assert plain == streamed


def _told(path: Path) -> list[dict[str, Any]]:
    """The lines of a file without what may differ: the order among tools that run at the same time, and
    whether it was streamed."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line.pop("stream", None)
    return sorted(lines, key=str)


@pytest.mark.parametrize("scene", SCENES)
async def test_every_message_of_the_transcript_is_accounted_for(scene: str, tmp_path: Path) -> None:
    await play(scene, tmp_path / "t.jsonl")
    accounted_for(only(tmp_path / "t.jsonl"))


async def test_what_a_filter_hides_is_removed_and_named(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    model = ScriptedHandler([call("look"), call("transfer_to_b"), "Done."])
    target = Agent("B", model=model)
    agent = Agent("A", model=model, tools=[look], handoffs=[handoff(target, input_filter=remove_all_tools)])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace=tmp_path / "t.jsonl"))
    run = only(tmp_path / "t.jsonl")
    assert numbers(run.calls[-1].start.removed) == [1, 2, 3, 4]
    [moved] = [record for record in run.records if record.type == "took_over"]
    assert moved.shaped_by == "input_filter of the handoff: remove_all_tools"  # type: ignore[union-attr]


@pytest.mark.parametrize("shows", [False, True])
async def test_what_a_note_tells_is_told_also_with_an_image(tmp_path: Path, shows: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

    @function_tool
    def look() -> ToolResult:
        return ToolResult("seen", media=[image] if shows else ())

    model = ScriptedHandler([call("look"), call("transfer_to_b"), "Done."])
    agent = Agent("A", model=model, tools=[look], handoffs=[Agent("B", model=model)])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace=tmp_path / "t.jsonl"))
    last = only(tmp_path / "t.jsonl").calls[-1]
    assert (numbers(last.start.told), numbers(last.start.removed)) == ([1, 2, 3, 4], [])
    assert [item.kind for item in last.items] == ["note", "input"]


async def test_a_summary_says_what_it_covers(tmp_path: Path) -> None:
    model = ScriptedHandler([call("transfer_to_b"), "Done."])
    agent = Agent("A", model=model, handoffs=[Agent("B", model=model)])
    config = RunConfig(trace=tmp_path / "t.jsonl", nest_handoff_history=True)
    await Runner.run(agent, "Hi", run_config=config)
    last = only(tmp_path / "t.jsonl").calls[-1]
    assert numbers(last.start.summarised) == [1, 2]
    assert [item.kind for item in last.items] == ["summary", "input"]


async def test_an_empty_line_is_no_lost_one(tmp_path: Path) -> None:
    """A run that begins while another one writes may end that one's line once more."""
    await play("transfer", tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    log = read_trace([b"\n", lines[0], b"\n", *lines[1:]])
    assert log.unreadable == []
    assert len(log.runs) == 1


async def test_what_is_cut_or_unknown_is_left_out(tmp_path: Path) -> None:
    await play("transfer", tmp_path / "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    more = b'{"type": "from the future", "run": "r", "time": 1}\n'
    odd = [
        lines[0],
        b"no json\n",
        b"[" * 9000 + b"]" * 9000 + b"\n",
        more,
        lines[1].replace(b'"kind"', b'"new": 1, "kind"'),
    ]
    log = read_trace([*odd, *lines[2:-1], lines[-1][:20]])
    assert log.unreadable == [2, 3, 3 + len(lines)]
    [run] = log.runs
    assert run.end is None
    assert run.calls[-1].reply is not None


async def test_a_later_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="by a newer routelock"):
        read_trace([b'{"type": "run_start", "run": "r", "time": 1, "format": 99}\n'])
