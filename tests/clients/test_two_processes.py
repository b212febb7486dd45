"""Agents of two served processes hand over to each other, and whoever asks sees one answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from clients.peer import MAX_HOPS, OPENING, PASSING, REST
from clients.served import KEY, PATIENCE, comes_true
from paths import REPO, SUPPORT

from routelock import Agent, ProviderError, Runner
from routelock.handlers.events import TextDelta
from routelock_providers.remote.agent import RemoteAgent

ROOTS = os.pathsep.join(str(REPO / folder) for folder in ("runtime", "providers", "skills", "tests/support"))

ROUTES = {
    "desk": [PASSING, OPENING + REST],
    "relay": [PASSING, PASSING, OPENING + REST],
}
"""Whom one asks, and what is said: the desk's specialist is in the other process; the relay's desk is
there too, and its specialist here again."""


@dataclass(frozen=True)
class Pair:
    """Two processes, each of which knows the other's URL."""

    processes: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]
    clients: tuple[openai.OpenAI, openai.OpenAI]

    def ask(self, agent: str, text: str, *, at: int = 0, stream: bool = False) -> Any:
        messages: Any = [{"role": "user", "content": text}]
        create: Any = self.clients[at].chat.completions.create
        more = {"stream_options": {"include_usage": True}} if stream else {}
        return create(model=agent, messages=messages, stream=stream, **more)

    def begun(self, text: str) -> int:
        """How often a specialist, or an agent of a circle, was asked these words."""
        answers = [
            self.ask("begun", text, at=at) for at, alive in enumerate(self.processes) if alive.poll() is None
        ]
        return sum(int(answer.choices[0].message.content) for answer in answers)

    def open_gate(self, text: str) -> None:
        """Let the specialists of both processes finish what they say to these words."""
        for at in (0, 1):
            assert self.ask("gate", text, at=at).choices[0].message.content == "open"


@contextmanager
def started(errors: Path) -> Iterator[Pair]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    urls = [f"http://127.0.0.1:{each.getsockname()[1]}/v1" for each in listeners]

    def start(which: int) -> subprocess.Popen[bytes]:
        listener = listeners[which].fileno()
        command = [sys.executable, str(SUPPORT / "clients" / "peer.py"), str(listener), urls[1 - which]]
        environment = {**os.environ, "PYTHONPATH": ROOTS}
        with errors.open("ab") as log:
            return subprocess.Popen(
                command, env=environment, pass_fds=[listener], stdin=subprocess.DEVNULL, stderr=log
            )

    def client(url: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=PATIENCE)

    processes = start(0), start(1)
    for listener in listeners:
        listener.close()  # the processes have them now, and what they do not accept is to be refused
    try:
        with client(urls[0]) as one, client(urls[1]) as other:
            yield Pair(processes, (one, other))
    finally:
        for process in processes:
            process.kill()
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with started(tmp_path_factory.mktemp("peers") / "errors") as pair:
        yield pair


def texts(stream: Any) -> Iterator[str]:
    for chunk in stream:
        for choice in chunk.choices:
            assert not choice.delta.tool_calls, "a transfer is nothing for the client to run"
            if choice.delta.content:
                yield choice.delta.content


def read_until(words: str, pieces: Iterator[str]) -> str:
    """Read on until the text so far ends with these words."""
    said = ""
    for piece in pieces:
        said += piece
        if said.endswith(words):
            return said
    pytest.fail(f"the stream ended after {said!r}")


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("agent", ROUTES)
def test_the_remote_agents_words_arrive_while_it_still_speaks(pair: Pair, agent: str, at: int) -> None:
    """It cannot finish before the gate is open, and that happens only after its first words were read."""
    words = f"streamed {agent} {at}"
    with pair.ask(agent, words, at=at, stream=True) as stream:
        pieces = texts(stream)
        assert REST not in read_until(OPENING, pieces)
        pair.open_gate(words)
        assert read_until(REST, pieces) == REST


@pytest.mark.parametrize("agent", ROUTES)
def test_an_answer_is_the_same_streamed_and_whole(pair: Pair, agent: str) -> None:
    words = f"both {agent}"
    pair.open_gate(words)
    whole = pair.ask(agent, words)
    chunks = list(pair.ask(agent, words, stream=True))
    expected = "\n\n".join(ROUTES[agent])
    assert whole.choices[0].message.content == expected
    assert "".join(texts(chunks)) == expected
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == [whole.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", ["circle", "carousel"])
def test_agents_that_hand_over_in_a_circle_are_stopped(pair: Pair, agent: str, stream: bool) -> None:
    """All are asked once more than hops are allowed, and never again; a carousel's say something first."""
    words = f"Round and round, {agent} {stream}"
    with pytest.raises(openai.APIError):
        list(texts(pair.ask(agent, words, stream=stream)))
    assert pair.begun(words) == MAX_HOPS + 1


def test_a_process_that_dies_in_mid_stream_is_an_error(tmp_path: Path) -> None:
    """Never a short answer: the caller is told, and no finish reason came before."""
    finishes: list[str] = []

    def watched(stream: Any) -> Iterator[Any]:
        for chunk in stream:
            finishes.extend(choice.finish_reason for choice in chunk.choices if choice.finish_reason)
            yield chunk

    with started(tmp_path / "errors") as pair, pair.ask("desk", "never opened", stream=True) as stream:
        pieces = texts(watched(stream))
        read_until(OPENING, pieces)
        pair.processes[1].kill()
        with pytest.raises(openai.APIError):
            list(pieces)
        assert finishes == []


def test_a_process_that_dies_while_a_whole_answer_is_awaited_is_an_error(tmp_path: Path) -> None:
    with started(tmp_path / "errors") as pair, ThreadPoolExecutor(1) as elsewhere:
        answer = elsewhere.submit(pair.ask, "desk", "never opened")
        assert comes_true(lambda: pair.begun("never opened"))
        pair.processes[1].kill()
        with pytest.raises(openai.InternalServerError):
            answer.result(PATIENCE)


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_a_run_whose_remote_agent_dies_ends_with_a_typed_error(tmp_path: Path) -> None:
    shown: list[str] = []
    with started(tmp_path / "errors") as pair:
        remote = RemoteAgent(str(pair.clients[1].base_url), model="specialist", api_key=KEY)

        async def watch() -> None:
            async with Runner.run_streamed(Agent("caller", model=remote), "never opened") as running:
                async for event in running:
                    if isinstance(event, TextDelta):
                        shown.append(event.text)
                        pair.processes[1].kill()

        with pytest.raises(ProviderError) as raised:
            await watch()
        await remote.aclose()
    assert shown == [OPENING]
    assert raised.value.result.stop_reason == "error"
