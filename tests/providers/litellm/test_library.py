"""The log queue of litellm is emptied when its event loop ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from paths import SUPPORT
from servers import HELLO, HELLO_STREAM, Server
from waiting import PATIENCE

from routelock import Agent, Runner
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import close_litellm, load_litellm

RUNS = 4


def agent_at(url: str) -> Agent:
    return Agent("a", model=LiteLLM("openai/m", api_base=url, api_key="test-not-a-key"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "LiteLLM"]


def test_runs_one_after_another_leave_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    load_litellm()
    with Server(HELLO) as server:
        for _ in range(RUNS):
            assert Runner.run_sync(agent_at(server.url), "Hi").final_output == "Hello"
    assert warnings(caplog) == []


def test_streams_between_runs_leave_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    load_litellm()
    with Server(HELLO, HELLO_STREAM, HELLO, HELLO_STREAM, HELLO) as server:
        for stream in (False, True, False, True, False):
            agent = agent_at(server.url)
            if stream:
                asyncio.run(Runner.run_streamed(agent, "Hi").drain())
            else:
                Runner.run_sync(agent, "Hi")
    assert warnings(caplog) == []


def test_closing_litellm_leaves_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main(url: str) -> None:
        await Runner.run(agent_at(url), "Hi")
        await close_litellm()

    load_litellm()
    with Server(HELLO) as server:
        for _ in range(RUNS):
            asyncio.run(main(server.url))
    assert warnings(caplog) == []


def test_a_loop_ends_while_another_one_goes_on() -> None:
    """litellm has one queue for all loops: a loop that ends must not empty it for another one."""
    first_is_over, second_began = threading.Event(), threading.Event()

    def second(url: str, said: list[object]) -> None:
        async def main() -> None:
            said.append((await Runner.run(agent_at(url), "Hi")).final_output)
            second_began.set()
            await asyncio.to_thread(first_is_over.wait, 60)
            said.append((await Runner.run(agent_at(url), "Hi")).final_output)

        asyncio.run(main())

    async def first(url: str) -> None:
        await Runner.run(agent_at(url), "Hi")
        await asyncio.to_thread(second_began.wait, 60)

    said: list[object] = []
    with Server(HELLO) as server:
        thread = threading.Thread(target=second, args=(server.url, said))
        thread.start()
        asyncio.run(first(server.url))
        first_is_over.set()
        thread.join(60)
    assert said == ["Hello", "Hello"]


_THREADS = """
import threading
from servers import HELLO, Server
from routelock import Agent, Runner
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import load_litellm

load_litellm()
with Server(HELLO) as server:
    agent = Agent("a", model=LiteLLM("openai/m", api_base=server.url, api_key="test-not-a-key"))
    said = []
    def work():
        for _ in range(12):
            said.append(Runner.run_sync(agent, "Hi").final_output)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(said.count("Hello"))
"""


def test_runs_in_many_threads_end_without_a_warning() -> None:
    """A loop that ends waited for ever for tasks of the loop that had taken over the queue."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["96"], done.stderr
    assert "WARNING" not in done.stderr


_PROGRAM = """
import asyncio, sys
from servers import HELLO, Server
from routelock import Agent, Runner
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import load_litellm

litellm = load_litellm()
from litellm.integrations.custom_logger import CustomLogger

class Log(CustomLogger):
    count = 0

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        await asyncio.sleep(0)
        Log.count += 1

litellm.callbacks = [Log()]
with Server(HELLO) as server:
    agent = Agent("a", model=LiteLLM("openai/m", api_base=server.url, api_key="test-not-a-key"))
    for _ in range(3):
        Runner.run_sync(agent, "Hi")
print(Log.count)
"""


def test_an_apps_own_log_has_every_reply() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["3"], done.stderr
    assert "LoggingWorker" not in done.stderr
