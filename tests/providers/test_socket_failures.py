"""Everything that can go wrong on a socket, for every provider: one typed error, and nothing left behind.

The providers are in provider_benches.py, what goes wrong in faults.py.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from faults import FAULTS, KEY, STREAM, Fault, hello, said
from paths import REPO
from provider_benches import BOTH, MATRIX, Bench, Outcome, Provider, bench_for, run
from raw_server import Raw, in_chunks
from servers import refused_url
from thoroughness import THOROUGH
from waiting import PATIENCE

from routelock import function_tool
from routelock.errors import ConnectionFailed, IncompleteResponse, ProviderError, ProviderTimeout
from routelock.testing import assert_valid

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def bench(anyio_backend: str, provider: Provider) -> AsyncGenerator[Bench]:
    async with bench_for(provider) as made:
        yield made


def combinations() -> Iterable[Any]:
    for fault in FAULTS:
        for watched in (True,) if fault.streamed_only else (False, True):
            yield pytest.param(fault, watched, id=f"{fault.name}-{'streamed' if watched else 'whole'}")


@pytest.mark.pairwise
@MATRIX
@pytest.mark.parametrize(("fault", "watched"), list(combinations()))
async def test_a_failure_is_one_typed_error(bench: Bench, fault: Fault, watched: bool) -> None:
    answer = fault.answer(watched)
    server, handler = bench.server, bench.handler(fault.limits)
    server.hang_up()  # on a connection that was used before, some of this would be met with another request
    server.say(answer, hello(watched))
    before = set(anyio.get_running_tasks())
    outcome = await run(handler, watched, server=server)
    error = outcome.error
    assert isinstance(error, ProviderError), outcome.result.final_output
    assert type(error) is fault.error, error
    assert error.retryable is fault.may_pass
    assert len(server.requests) <= 1, "retrying is the run's business"
    assert await ended_but(before) == set()
    if isinstance(answer, Raw) and answer.then in ("close", "stall"):
        # a client without time may not have come as far as that
        assert not server.requests or await server.client_hung_up(), "the connection is of no use any more"
    check_message(error, fault)
    check_books(outcome, fault.text if watched else "")
    server.say(hello(watched))
    assert (await run(bench.handler(), watched)).result.final_output == "Hello", "and the next call is fine"


async def ended_but(before: set[anyio.TaskInfo]) -> set[anyio.TaskInfo]:
    """Return the tasks that are left; those that only have to come to their end may do so."""
    with anyio.move_on_after(PATIENCE):
        while left := set(anyio.get_running_tasks()) - before:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.001)
    return left


def check_message(error: ProviderError, fault: Fault) -> None:
    """The message is short, names the vendor, says what to do, and holds no secret."""
    text = str(error)
    assert KEY not in text
    assert len(text) < 1200
    assert "m-1" in text, "which model"
    assert fault.says in text
    assert ". " in text, "what to do"
    assert error.status in (fault.status, None if fault.status else 200), text
    assert error.provider


def check_books(outcome: Outcome, text: str) -> None:
    """The partial result has what was shown, and counts the call."""
    result = outcome.result
    assert result.usage.requests == 1
    assert outcome.shown == text
    kept = [item.message.get("content") for item in result.new_items]
    assert kept == ([text] if text else [])
    assert result.usage.estimated is bool(text) or isinstance(outcome.error, ProviderTimeout)


@pytest.mark.pairwise
@MATRIX
@pytest.mark.parametrize("then", ["close", "reset", "stall"])
@pytest.mark.parametrize("sent", [3, 4], ids=["before the usage", "before [DONE]"])
async def test_a_reply_that_has_finished_is_whole(bench: Bench, sent: int, then: Any) -> None:
    """A finish reason says that nothing of the message is missing: asking again would show it twice."""
    bench.server.say(Raw(sent=in_chunks(*STREAM[:sent], end=False), then=then))
    outcome = await run(bench.handler((20.0, 0.3)), watched=True)
    assert then == "reset" or await bench.server.client_hung_up()
    assert outcome.error is None
    assert outcome.result.final_output == outcome.shown == "Hello"
    if then != "stall":  # litellm keeps the usage until the stream ends
        assert outcome.result.usage.estimated is (sent == 3)


def test_documented_table_matches() -> None:
    """The table of docs/errors.md has every failure of the matrix, with its error."""
    page = (REPO / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \| `(\w+)` \| (yes|no) \|$", page, re.MULTILINE)
    told = [(name, error, again) for names, error, again in rows for name in names.split("; ")]
    known = [(each.name, each.error.__name__, "yes" if each.may_pass else "no") for each in FAULTS]
    assert sorted(told) == sorted(known)


@MATRIX
@BOTH
async def test_refused_connection(provider: Provider, watched: bool) -> None:
    handler = provider.make(refused_url())
    outcome = await run(handler, watched)
    await provider.close(handler)
    assert type(outcome.error) is ConnectionFailed
    assert outcome.error.retryable
    assert outcome.error.status is None


@MATRIX
async def test_idle_connection_that_was_closed(bench: Bench) -> None:
    """Servers close what is idle; that must not cost the next run its only attempt."""
    bench.server.say(Raw(sent=in_chunks(*STREAM), then="close"), hello(True))
    first = await run(bench.handler(), watched=True)
    assert await anyio.to_thread.run_sync(bench.server.said_goodbye.wait, PATIENCE)
    await anyio.sleep(0.02)  # for the event loop to hear it
    second = await run(bench.handler(), watched=True)
    assert first.result.final_output == second.result.final_output == "Hello"


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 12}'}}
CALLING = (said({"content": "é?"}), said({"tool_calls": [CALL]}), said({}, finish="tool_calls"), *STREAM[3:])
CALLED = b"".join(CALLING)
ENDS = [sum(map(len, CALLING[:count])) for count in range(1, len(CALLING))]
EVERY = 1 if THOROUGH else 61
CUTS = sorted({*range(1, len(CALLED), EVERY), *(end - less for end in ENDS for less in (0, 1, 2, 3))})
"""Where a stream is cut: within everything that it has, and around the ends of its events."""


@MATRIX
@pytest.mark.parametrize("then", ["close", "keep"], ids=["broken", "in good order"])
async def test_a_stream_that_is_cut_anywhere(bench: Bench, then: Any) -> None:
    """No tool runs, and nothing is a reply, before all of it has come; what was shown stays."""
    ran: list[int] = []

    @function_tool
    def add(a: int) -> str:
        """Add one."""
        ran.append(a)
        return str(a + 1)

    for cut in CUTS:
        ran.clear()
        bench.server.say(Raw(sent=in_chunks(CALLED[:cut], end=then == "keep"), then=then), hello(True))
        outcome = await run(bench.handler(), watched=True, tools=[add])
        assert ran == ([] if outcome.error else [12]), cut
        if outcome.error:
            assert type(outcome.error) is IncompleteResponse, cut
            assert cut < ENDS[2], "the finish reason had come"
            assert len(bench.server.requests) == outcome.result.usage.requests == 1
        else:
            assert outcome.result.final_output == "Hello"
            # in good order a call counts whose arguments are whole, for endpoints that give no finish reason
            assert cut >= ENDS[2] - 2 or (then == "keep" and cut >= ENDS[1] - 2), cut
        if not ENDS[0] - 2 <= cut < ENDS[0]:
            assert outcome.shown.startswith("é?") is (cut >= ENDS[0]), cut
        assert_valid(outcome.result.to_input_list())
