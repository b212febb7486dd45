"""A file of traces: whole lines, no secrets, and no run that fails because of it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples
from waiting import PATIENCE

from routelock import Agent, ModelSettings, Retry, RunConfig, Runner, function_tool
from routelock.errors import ConfigError, ConnectionFailed
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolQuestion
from routelock.tracing.file import TraceFile, as_line
from routelock.tracing.reader import read_trace
from routelock.tracing.records import ItemTraced, RunStarted, ToolEnded

pytestmark = pytest.mark.anyio

SECRET = "sk-" + "a1" * 20
PRIVATE = f"-----BEGIN PRIVATE KEY-----\n{'MII' * 100}\n-----END PRIVATE KEY-----"


@function_tool
async def look(word: str) -> str:
    return f"seen {word}"


def looking(word: str = "moss") -> Agent[Any]:
    model = ScriptedHandler([call("look", {"word": word}), f"There is {word}."])
    return Agent("A", f"Look for {word}.", model=model, tools=[look])


async def test_no_secret_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    agent = looking(SECRET)
    settings: ModelSettings = {
        "extra_headers": {"Authorization": "Bearer word"},
        "extra_body": {"api_key": "word"},
    }
    config = RunConfig(trace=path, model_settings=settings)
    await Runner.run(agent, f"My password is in postgres://me:{SECRET}@db", run_config=config)
    text = path.read_text("utf-8")
    assert SECRET not in text
    assert "word" not in text.replace("password", "").replace('"word"', "").replace('\\"word\\"', "")
    assert "[redacted]" in text


async def test_content_can_be_left_out(tmp_path: Path) -> None:
    @function_tool
    async def fail(word: str) -> str:
        raise ValueError(word)

    path = tmp_path / "t.jsonl"
    replies = [[call("look", {"word": "quince"}), call("fail", {"word": "quince"}), call("quince")], "quince"]
    target = Agent("B", "quince", model=ScriptedHandler(replies), tools=[look, fail])
    model = ScriptedHandler([ConnectionFailed("quince"), call("transfer_to_b", {"reason": "quince"})])
    agent = Agent("A", "quince", model=model, handoffs=[target], model_settings={"stop": ["quince"]})
    config = RunConfig(trace=TraceFile(path, content=False), retry=Retry(first_delay=0.0))
    await Runner.run(agent, "quince", run_config=config)
    text = path.read_text("utf-8")
    assert text.count("quince") == text.count('"name":"quince"'), "a name that a model made up is a name"
    [run] = read_trace(path).runs
    assert [item.message["role"] for item in run.calls[0].items] == ["system", "user"]
    assert run.end is not None
    assert run.end.usage.requests == 4


async def test_question_of_a_tool_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"

    @function_tool
    def lend() -> ToolQuestion:
        """Lend a book."""
        return ToolQuestion(message="Is Emma for Ada?")

    agent = Agent("A", model=ScriptedHandler([call("lend")]), tools=[lend])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace=TraceFile(path, content=False)))
    assert "Ada" not in path.read_text("utf-8")


async def test_a_vendors_tool_is_named_without_its_options(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    search = {"type": "web_search", "allowed_domains": ["quince.example"]}
    agent = Agent("A", model=ScriptedHandler(["Hi."]), tools=[search])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace=TraceFile(path, content=False)))
    assert read_trace(path).runs[0].calls[0].tools == [{"type": "web_search"}]
    assert "quince" not in path.read_text("utf-8")


async def test_runs_that_go_on_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"

    async def one(number: int) -> None:
        await Runner.run(looking(f"w{number}"), "Hi", run_config=RunConfig(trace=path))

    def thread(number: int) -> None:
        Runner.run_sync(looking(f"w{number}"), "Hi", run_config=RunConfig(trace=path))

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    async with anyio.create_task_group() as group:
        for number in range(4, 8):
            group.start_soon(one, number)
    for each in threads:
        each.join()
    log = read_trace(path)
    assert log.unreadable == []
    outputs = sorted(str(run.end.output) for run in log.runs if run.end is not None)
    assert outputs == [f"There is w{number}." for number in range(8)]
    for run in log.runs:
        [tool] = run.tools
        assert tool.end is not None
        assert run.end is not None
        assert tool.end.output.removeprefix("seen ") in str(run.end.output)


async def test_file_stays_when_a_tool_changes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)

    @function_tool
    def go() -> str:
        os.chdir(tmp_path / "inner")
        return "there"

    clerk = Agent("Clerk", model=ScriptedHandler(["Yes."]))
    model = ScriptedHandler([call("go"), call("ask_clerk", {"input": "Well?"}), "Done."])
    agent = Agent("A", model=model, tools=[go, clerk.as_tool("ask_clerk", "Asks.")])
    await Runner.run(agent, "Hi", run_config=RunConfig(trace="t.jsonl"))
    assert [*(tmp_path / "inner").iterdir()] == []
    [run] = read_trace(tmp_path / "t.jsonl").runs
    assert run.end is not None
    assert [each.end.output for each in run.nested.values() if each.end] == ["Yes."]


_KILLED = """
import os, sys
from routelock import Agent, RunConfig, Runner, function_tool
from routelock.testing import ScriptedHandler, call

@function_tool
async def die() -> str:
    os._exit(7)

model = ScriptedHandler([call("die"), "Done."])
Runner.run_sync(Agent("A", model=model, tools=[die]), "Hi", run_config=RunConfig(trace=sys.argv[1]))
"""


def test_died_process_leaves_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], env=env, timeout=PATIENCE, check=False)
    assert done.returncode == 7
    [run] = read_trace(path).runs
    [tool] = run.tools
    assert (run.end, tool.end) == (None, None)
    assert tool.start is not None
    assert tool.start.name == "die"
    assert run.calls[0].reply is not None


async def test_run_after_an_incomplete_line_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type": "item", "run": "old", "ti')
    await Runner.run(looking(), "Hi", run_config=RunConfig(trace=path))
    log = read_trace(path)
    assert log.unreadable == [1]
    assert [run.end is not None for run in log.runs] == [True]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
async def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await Runner.run(looking(), "Hi", run_config=RunConfig(trace=path))
    assert path.stat().st_mode & 0o077 == 0


async def test_missing_folder_raises_before_the_run(tmp_path: Path) -> None:
    model = ScriptedHandler(["Hello."])
    with pytest.raises(ConfigError, match=r"make the folder .*nowhere first"):
        await Runner.run(
            Agent("A", model=model), "Hi", run_config=RunConfig(trace=tmp_path / "nowhere" / "t.jsonl")
        )
    assert model.requests == []


@pytest.mark.parametrize("given", [Path, TraceFile])
async def test_folder_as_path_raises_before_the_run(given: Callable[[Path], Any], tmp_path: Path) -> None:
    model = ScriptedHandler(["Hello."])
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        await Runner.run(Agent("A", model=model), "Hi", run_config=RunConfig(trace=given(tmp_path)))
    assert model.requests == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is forbidden")
@pytest.mark.parametrize("there", [True, False])
def test_unwritable_file_raises_before_the_run(there: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    if there:
        path.touch(0o400)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="this user may not write to"):
        Runner.run_sync(looking(), "Hi", run_config=RunConfig(trace=path))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@examples(60)
@given(st.text(st.characters()), st.dictionaries(st.sampled_from(["content", "extra", "\u2028"]), anything))
def test_what_is_written_is_read_back(text: str, more: dict[str, Any]) -> None:
    """Line separators and halves of surrogate pairs included; but for what looks like a secret."""
    message = {"role": "user", "name": text, **more}
    item = ItemTraced(run="r", time=1.5, id=3, kind="input", message=message, covers=((0, 2),))
    line = as_line(item, longest=None)
    assert line.count(b"\n") == 1
    [run] = read_trace([as_line(RunStarted(run="r", time=1.0)), line]).runs
    if b"[redacted]" not in line:
        assert json.loads(json.dumps(run.items[3].message)) == json.loads(json.dumps(message))
        assert dataclasses.replace(run.items[3], message={}) == dataclasses.replace(
            item, message={}, covers=[(0, 2)]
        )


def test_long_text_is_truncated_with_a_note() -> None:
    end = ToolEnded(run="r", time=1.0, call_id="c", output="x" * 50)
    assert json.loads(as_line(end, longest=10))["output"] == "xxxxxxxxxx[40 more characters]"


@pytest.mark.parametrize("more", [0, 50, 200_000])
def test_a_secret_in_long_json_is_replaced_as_in_short(more: int) -> None:
    """Also where only reading the JSON tells that it is one."""
    text = json.dumps({"connection_string": "hunter2", "notes": "x" * more})
    output = json.loads(as_line(ToolEnded(run="r", time=1.0, call_id="c", output=text), longest=100))[
        "output"
    ]
    assert output.startswith('{"connection_string": "[redacted]", "notes": "')
    assert len(output) < 140


@pytest.mark.parametrize("more", [0, 1, 30_000])
@pytest.mark.parametrize("secret", [SECRET, PRIVATE, "https://me:hunter22@example.com"])
def test_no_part_of_a_secret_at_the_cut_stays(secret: str, more: int) -> None:
    text = f"{'x' * 60} {secret} {'y' * more}"
    for longest in range(60, len(text) - more):
        end = ToolEnded(run="r", time=1.0, call_id="c", output=text)
        output = json.loads(as_line(end, longest=longest))["output"]
        assert not any(part in output for part in ("a1", "MII", "hunter")), longest


def test_secret_at_the_cut_is_removed_after_earlier_replacements() -> None:
    text = " ".join([*[PRIVATE] * 300, "x" * 70_000])
    for longest in (1000, 10_000):
        end = ToolEnded(run="r", time=1.0, call_id="c", output=text)
        assert "MII" not in json.loads(as_line(end, longest=longest))["output"]


def test_what_is_no_json_is_text() -> None:
    end = ToolEnded(run="r", time=float("inf"), call_id="c", usage={1, 2})  # type: ignore[arg-type]
    line = json.loads(as_line(end))
    assert (line["time"], line["usage"]) == ("inf", [1, 2])
