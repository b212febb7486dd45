"""The replay of recordings: it finds every difference, and nothing differs in the sets at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import REPO
from servers import HELLO, USAGE, Server, chunk, said, streamed

from routelock.handlers.port import Request
from routelock.testing import use_cassette
from routelock_providers.litellm.handler import LiteLLM

SCRIPT = REPO / "benchmarks" / "replay_recordings.py"
sys.path.insert(0, str(SCRIPT.parent))  # a program beside the packages, not one of them

from replay_recordings import replay_all  # noqa: E402  # pyright: ignore[reportMissingImports]

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

RECORDINGS = Path(os.environ.get("ROUTELOCK_RECORDINGS") or REPO.parent / "shared" / "recordings")
CHAT = "https://api.openai.com/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]

Lines = Callable[[], list[str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Lines:
    return lambda: capsys.readouterr().out.splitlines()


def exchange(answer: Any, *, status: int = 200, url: str = CHAT, kind: str = "application/json") -> Any:
    """One recorded interaction, as vcrpy writes it."""
    asked = json.dumps({"model": "gpt-4o-mini", "messages": HI, "stream": kind == "text/event-stream"})
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return {
        "request": {"method": "POST", "uri": url, "body": asked, "headers": {}},
        "response": {
            "status": {"code": status, "message": "x"},
            "headers": {"content-type": [kind]},
            "body": {"string": body},
        },
    }


def completion(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "r1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}


def expected(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"text": text, "tool_calls": [], "usage": [5, 7], **more}


def described(expect: Any, *, stream: bool = False, **kwargs: Any) -> dict[str, Any]:
    return {
        "model": "openai/gpt-4o-mini",
        "kwargs": {"messages": HI, **kwargs},
        "connect": {},
        "stream": stream,
        "expect": expect,
    }


def write(directory: Path, *interactions: Any, calls: list[Any] | None = None, **more: Any) -> Path:
    """Make a set of one cassette; with ``calls`` it describes them."""
    (directory / "calls").mkdir(parents=True)
    (directory / "a.yaml").write_text(yaml.safe_dump({"version": 1, "interactions": list(interactions)}))
    (directory / "manifest.json").write_text(json.dumps([{"file": "a.yaml", "provider": "openai"}]))
    if calls is not None:
        (directory / "calls" / "a.json").write_text(json.dumps({"calls": calls, **more}))
    return directory


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ROME = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CALLED = {"id": "c1", "name": "weather", "arguments": {"city": "Rome"}}


async def test_call_that_matches_its_description_passes(tmp_path: Path, printed: Lines) -> None:
    directory = write(tmp_path / "set", exchange(completion(content="Hello")), calls=[described(expected())])
    assert await replay_all([directory]) == (1, 1)
    assert printed() == []


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        (expected("Bye"), "text: recorded 'Bye', got 'Hello'"),
        (expected(usage=[5, 8]), "usage: recorded (5, 8), got (5, 7)"),
        (expected(tool_calls=[CALLED]), "tool calls: recorded"),
        ({"error_status": 429}, "an error was recorded (status 429)"),
    ],
)
async def test_each_difference_is_reported(tmp_path: Path, printed: Lines, expect: Any, reason: str) -> None:
    directory = write(tmp_path / "set", exchange(completion(content="Hello")), calls=[described(expect)])
    assert await replay_all([directory]) == (0, 1)
    (miss,) = printed()
    assert miss.startswith("MISS a.yaml call 1/1: ")
    assert reason in miss


async def test_another_call_id_is_a_difference(tmp_path: Path, printed: Lines) -> None:
    expect = expected("", tool_calls=[{**CALLED, "id": "c2"}])
    answer = exchange(completion(content=None, tool_calls=[ROME]))
    directory = write(tmp_path / "set", answer, calls=[described(expect, tools=[WEATHER])])
    assert await replay_all([directory]) == (0, 1)
    assert "call id: recorded 'c2', got 'c1'" in printed()[0]


async def test_an_error_must_have_its_status_and_its_class(tmp_path: Path, printed: Lines) -> None:
    answer = exchange({"error": {"message": "no"}}, status=429)
    right = write(tmp_path / "right", answer, calls=[described({"error_status": 429})])
    wrong = write(tmp_path / "wrong", answer, calls=[described({"error_status": 500})])
    assert await replay_all([right]) == (1, 1)
    assert await replay_all([wrong]) == (0, 1)
    assert "recorded error 500, got 429" in printed()[0]


async def test_a_loop_is_one_run_whose_tools_return_what_was_recorded(tmp_path: Path, printed: Lines) -> None:
    first = exchange(completion(content=None, tool_calls=[ROME]))
    calls = [
        described(expected("", tool_calls=[CALLED]), tools=[WEATHER]),
        described(expected("Sunny"), tools=[WEATHER]),
    ]
    outputs = [{"name": "weather", "arguments": {"city": "Rome"}, "output": "sun"}]
    set_of = write(
        tmp_path / "set",
        first,
        exchange(completion(content="Sunny")),
        calls=calls,
        chain=True,
        tool_outputs=outputs,
    )
    assert await replay_all([set_of]) == (2, 2)
    described_too_long = write(
        tmp_path / "long",
        exchange(completion(content="Hello")),
        calls=calls,
        chain=True,
        tool_outputs=outputs,
    )
    assert await replay_all([described_too_long]) == (0, 2)
    assert any("the run did not make this call" in line for line in printed())


async def test_loop_with_an_unrecorded_call_is_reported(tmp_path: Path, printed: Lines) -> None:
    first = exchange(completion(content=None, tool_calls=[ROME]))
    calls = [
        described(expected("", tool_calls=[CALLED]), tools=[WEATHER]),
        described(expected("Sunny"), tools=[WEATHER]),
    ]
    set_of = write(
        tmp_path / "set",
        first,
        exchange(completion(content="Sunny")),
        calls=calls,
        chain=True,
        tool_outputs=[],
    )
    assert await replay_all([set_of]) == (1, 2)
    assert "tools were called that the recording does not answer: weather" in printed()[0]


async def test_unused_recordings_are_reported(tmp_path: Path, printed: Lines) -> None:
    answer = exchange(completion(content="Hello"))
    directory = write(tmp_path / "set", answer, answer, calls=[described(expected())])
    assert await replay_all([directory]) == (0, 1)
    assert "recorded and not asked for: POST" in printed()[0]


async def test_unrecorded_requests_are_reported(tmp_path: Path, printed: Lines) -> None:
    answer = exchange(completion(content="Hello"), url="https://api.openai.com/v1/elsewhere")
    directory = write(tmp_path / "set", answer, calls=[described(expected())])
    assert await replay_all([directory]) == (0, 1)
    assert any("not in the cassette" in line for line in printed())


async def test_one_recording_that_cannot_be_run_does_not_hide_the_others(
    tmp_path: Path, printed: Lines
) -> None:
    answer = exchange(completion(content="Hello"))
    broken = described(expected(), messages=[{"role": "function", "content": "?"}])
    directories = [
        write(tmp_path / "broken", answer, calls=[broken]),
        write(tmp_path / "fine", answer, calls=[described(expected())]),
    ]
    assert await replay_all(directories) == (1, 2)


async def test_a_set_without_descriptions_is_read_from_its_traffic(tmp_path: Path) -> None:
    events = b"".join(streamed(chunk({"content": "Hel"}), chunk({"content": "lo"}, finish="stop")).pieces)
    directory = write(
        tmp_path / "set",
        exchange(completion(content="Hello")),
        exchange(events.decode(), kind="text/event-stream"),
        exchange({"error": {"message": "gone"}}, status=500),
        exchange({"error": {"message": "x", "code": "insufficient_quota"}}, status=429),
        exchange("", status=200),
    )
    assert await replay_all([directory]) == (4, 4), "a failure that was asked again is one call"


async def test_a_failure_that_was_asked_again_is_tried_again(tmp_path: Path, printed: Lines) -> None:
    busy = exchange({"error": {"message": "slow"}}, status=503)
    directory = write(tmp_path / "set", busy, busy, exchange(completion(content="Hello")))
    assert await replay_all([directory]) == (1, 1)
    assert printed() == []


async def test_traffic_that_was_recorded_here_replays(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    directory.mkdir()
    with Server(HELLO, said({"content": None, "tool_calls": [ROME]}, usage=USAGE)) as server:
        with use_cassette(directory / "a.yaml", record_mode="rewrite"):
            handler = LiteLLM("openai/m-1", api_base=server.url, api_key="test-not-a-key")
            for _ in range(2):
                async for _ in handler.stream(Request(messages=[{"role": "user", "content": "Hi"}])):
                    pass
    (directory / "manifest.json").write_text(json.dumps([{"file": "a.yaml"}]))
    assert await replay_all([directory]) == (2, 2)


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )


def test_the_script_says_how_it_is_used_when_there_is_nothing_to_replay(tmp_path: Path) -> None:
    done = run_script(str(tmp_path))
    assert done.returncode == 2
    assert "replay_recordings.py DIRECTORY" in done.stdout


def test_the_script_fails_when_a_call_does(tmp_path: Path) -> None:
    answer = exchange(completion(content="Hello"))
    directory = write(
        tmp_path / "set", answer, answer, calls=[described(expected()), described(expected("Bye"))]
    )
    done = run_script(str(directory))
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "1/2"


def test_the_recordings_at_hand_replay_without_a_difference() -> None:
    """Without a key, without a network, with an empty environment."""
    sets = [RECORDINGS / name for name in ("public", "synthetic", "known_bad")]
    there = [str(directory) for directory in sets if (directory / "manifest.json").is_file()]
    if not there:
        pytest.skip(f"there are no recordings at {RECORDINGS}")
    done = run_script(*there)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    passed, total = done.stdout.splitlines()[-1].split("/")
    assert passed == total != "0"
