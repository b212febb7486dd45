"""A run over a real connection, cancelled at every step, leaves no connection in use.

Cancelled runs that keep theirs exhaust a client's pool in the end (openai/openai-agents-python 1895).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest
from faults import STREAM, hello, said
from full_run import Strikes
from provider_benches import BOTH, MATRIX, Bench, Provider, bench_for, run
from raw_server import Raw, body, in_chunks
from thoroughness import THOROUGH
from waiting import PATIENCE

from routelock import function_tool
from routelock.testing import assert_valid

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.every_loop,
    # litellm's coroutine between two threads, and httpx's body under trio: objects, not connections
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

STRIDE = 1 if THOROUGH else 9
MOST = 2000
"""More steps than the run has."""

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLING = Raw(
    sent=in_chunks(said({"tool_calls": [{"index": 0, **CALL}]}), said({}, finish="tool_calls"), *STREAM[3:])
)
CALLED = body(
    {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
                "finish_reason": "tool_calls",
            }
        ],
    }
)


@pytest.fixture(scope="module")
async def bench(anyio_backend: str, provider: Provider) -> AsyncGenerator[Bench]:
    async with bench_for(provider) as made:  # which sees to it that all connections are closed in the end
        yield made


@function_tool
async def add(a: int) -> str:
    """Add one."""
    await anyio.lowlevel.checkpoint()
    return str(a + 1)


@MATRIX
@BOTH
async def test_a_cancelled_run_leaves_no_connection_in_use(bench: Bench, watched: bool) -> None:
    for k in range(1, MOST, STRIDE):
        before = len(anyio.get_running_tasks())
        bench.server.say(CALLING if watched else CALLED, hello(watched))
        with anyio.CancelScope() as scope:
            await Strikes(run(bench.handler(), watched, tools=[add]), k, scope.cancel)
        assert await bench.server.all_left(but=1), (
            f"step {k}: more than the one that is kept for the next call"
        )
        with anyio.fail_after(PATIENCE):  # what only has to come to its end may do so
            while len(anyio.get_running_tasks()) > before:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.002)
        if not scope.cancelled_caught:
            break
    assert 1 < k < MOST - STRIDE
    bench.server.say(CALLING if watched else CALLED, hello(watched))
    outcome = await run(bench.handler(), watched, tools=[add])
    assert outcome.result.final_output == "Hello"
    assert_valid(outcome.result.to_input_list())
