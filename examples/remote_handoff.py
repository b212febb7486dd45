"""Shows a handoff to an agent in another process, streamed: `routelock serve` there, `RemoteAgent` here."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

from routelock import Agent, Request, Runner, handler
from routelock.handlers import TextDelta
from routelock.history import text_of
from routelock.run import HandoffOccurred
from routelock.testing import ScriptedHandler, call
from routelock_providers import RemoteAgent


@handler
async def sommelier(request: Request) -> AsyncGenerator[str]:
    """Answer in small pieces, as a model would; this runs in the other process."""
    question = next(text_of(each) for each in reversed(request.messages) if each["role"] == "user")
    dish = question.rstrip("?").split()[-1]
    for word in f"With {dish} I suggest a dry Riesling.".split():
        yield f"{word} "
        await asyncio.sleep(0.05)


wine = Agent("wine", model=sommelier)  # what `routelock serve remote_handoff:wine` serves


@contextmanager
def served(spec: str) -> Generator[str]:
    """Serve agents of a module in a process of its own, and yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "routelock", "serve", spec, "--port", str(port), "--log-level", "error"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=env, cwd=Path(__file__).parent)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


async def main() -> None:
    """Ask a waiter, who hands over to the agent in the other process."""
    with served("remote_handoff:wine") as url:
        expert = RemoteAgent(url, name="sommelier", prompt="Knows which wine goes with a dish.")
        script = ScriptedHandler([call("transfer_to_sommelier")])
        waiter = Agent("waiter", "You serve guests.", model=script, handoffs=[expert])
        async with Runner.run_streamed(waiter, "Which wine goes with trout?") as stream:
            async for event in stream:
                if isinstance(event, HandoffOccurred):
                    print(f"[{event.source} -> {event.target}]")
                elif isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
        print(f"\n({stream.result.last_handler} answered, over HTTP)")
        await expert.aclose()


if __name__ == "__main__":
    asyncio.run(main())
