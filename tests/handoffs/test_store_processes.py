"""A store of an app's own, between two processes: the contract of `HandoffStore` is enough."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlite_handoff_store
from sqlite_handoff_store import SqliteStore

from routelock import Agent, HandoffRequest, Runner, handoff
from routelock.errors import HandoffStateError
from routelock.handoffs.context import HandoffContext, serialize_context
from routelock.handoffs.store import HandoffStore, asks, decided, finished
from routelock.testing import ScriptedHandler, call

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]  # the loops are tested beside the store


@contextmanager
def worker(path: Path, agent: str) -> Iterator[None]:
    """Another process, which takes one handoff from the store."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, sqlite_handoff_store.__file__, str(path), agent]
    with subprocess.Popen(arguments, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, told


async def test_a_run_waits_for_another_process(tmp_path: Path) -> None:
    store: HandoffStore = SqliteStore(tmp_path / "handoffs")
    boss = Agent("boss", model=ScriptedHandler(["I do it."]), on_handoff_request=asks(store, poll=0.02))
    model = ScriptedHandler([call("transfer_to_boss", {"reason": "urgent"})])
    clerk = Agent("clerk", model=model, handoffs=[handoff(boss, ask_reason=True, timeout=60)])
    with worker(tmp_path / "handoffs", "boss"):
        result = await Runner.run(clerk, "Hi")
        response = await decided(store, f"{result.handoffs[0].id}:boss")
    assert result.final_output == "I do it."
    assert response.metadata == {"reason": "urgent"}


async def test_a_worker_in_another_process_is_sent_the_context(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "handoffs")
    context = HandoffContext([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}])
    request = HandoffRequest(
        "b", from_agent="a", request_id="r1", reason="why", context_snapshot=serialize_context(context)
    )
    handoff_id = store.request(request)
    assert handoff_id == store.request(request)
    with worker(tmp_path / "handoffs", "b"):
        response = await finished(store, handoff_id, poll=0.02)
    assert (response.status, response.metadata) == ("COMPLETED", {"reason": "why", "messages": 2})
    with pytest.raises(HandoffStateError, match=r"current: COMPLETED"):
        store.accept(handoff_id)
