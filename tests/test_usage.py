"""Tokens and costs add up, and an unknown value never counts as zero."""

from __future__ import annotations

import functools
import operator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_and_streamed import both

from routelock import Agent, Request, Retry, RunConfig, Runner, Usage, function_tool, handler
from routelock.errors import ProviderTimeout
from routelock.handlers.events import MessageDone
from routelock.testing import ScriptedHandler, call, reply

COUNTS = ("requests", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
count = st.integers(0, 1000)
usages = st.builds(
    Usage,
    requests=st.integers(0, 3),
    input_tokens=count,
    output_tokens=count,
    cached_tokens=count,
    reasoning_tokens=count,
    cost=st.none() | st.integers(0, 100).map(float),
    estimated=st.booleans(),
)


@given(st.lists(usages, max_size=6))
def test_every_number_is_the_sum(parts: list[Usage]) -> None:
    """Also of a part that made no request itself, such as what a tool reports."""
    total = functools.reduce(operator.add, parts, Usage())
    for name in COUNTS:
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    assert total.total_tokens == total.input_tokens + total.output_tokens


@given(usages, usages, usages)
def test_the_order_of_adding_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@given(usages)
def test_nothing_added_changes_nothing(usage: Usage) -> None:
    assert usage + Usage() == Usage() + usage == usage


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    """An unknown price is None, not zero."""
    known, unknown = Usage(requests=1, cost=0.5), Usage(requests=1)
    assert (known + known).cost == 1.0
    assert (known + unknown).cost is None
    assert (unknown + known + known).cost is None


def test_one_estimate_marks_the_sum() -> None:
    assert (Usage(requests=1) + Usage(requests=1, estimated=True)).estimated
    assert not (Usage(requests=1) + Usage(requests=1)).estimated


def test_usage_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Usage(requests=1).requests = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_adding_changes_neither_of_the_two() -> None:
    first, second = Usage(requests=1, input_tokens=3), Usage(requests=1, input_tokens=4)
    assert (first + second, first, second) == (Usage(2, 7), Usage(1, 3), Usage(1, 4))


def desk() -> Agent[Any]:
    def said(text: str | None, tokens: int, **more: Any) -> Any:
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=1, cached_tokens=1, reasoning_tokens=1)
        return reply(text, usage=usage, **more)

    billing = Agent(
        "billing", model=ScriptedHandler([said(None, 200, calls=[call("x")]), said("Paid.", 300)])
    )
    script = [said(None, 100, calls=[call("transfer_to_billing")])]
    return Agent("triage", model=ScriptedHandler(script), handoffs=[billing])


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_the_run_adds_up_all_calls_and_each_agents(stream: bool) -> None:
    """Per agent the sum is the total, streamed or not."""
    result = await (Runner.run_streamed(desk(), "Hi").drain() if stream else Runner.run(desk(), "Hi"))
    assert result.usage == Usage(3, 600, 3, 3, 3)
    assert {name: usage.input_tokens for name, usage in result.usage_by_agent.items()} == {
        "triage": 100,
        "billing": 500,
    }
    assert functools.reduce(operator.add, result.usage_by_agent.values()) == result.usage


@pytest.mark.anyio
async def test_reply_without_usage_counts_as_estimated() -> None:
    """The tokens are missing, and the sum says so."""
    silent = MessageDone(message={"role": "assistant", "content": "Hi"})
    result = await Runner.run(Agent("A", model=ScriptedHandler([silent])), "Hi")
    assert result.usage == Usage(requests=1, estimated=True)


@pytest.mark.anyio
async def test_failed_call_without_usage_counts_as_estimated() -> None:
    agent = Agent("A", model=ScriptedHandler([ProviderTimeout("late")]))
    with pytest.raises(ProviderTimeout) as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(retry=Retry(attempts=1)))
    assert caught.value.result.usage == Usage(requests=1, estimated=True)


@function_tool
def look() -> str:
    return "seen"


def _used(tokens: int, cached: int, cost: float | None) -> Usage:
    return Usage(requests=1, input_tokens=tokens, output_tokens=1, cached_tokens=cached, cost=cost)


@pytest.mark.anyio
async def test_usage_is_split_by_agent_handoff_and_model() -> None:
    """Cached tokens and money included, and the same when the run is streamed."""

    def make() -> Agent[Any]:
        first = reply(calls=[call("transfer_to_b")], usage=_used(10, 4, 0.1), model="small-1")
        look_it_up = reply(calls=[call("look")], usage=_used(20, 8, 1.0), model="large-1")
        small = ScriptedHandler([first], name="small")
        large = ScriptedHandler(
            [look_it_up, reply("Done.", usage=_used(30, 16, 2.0), model="large-1")], name="large"
        )
        b = Agent("b", model=large, tools=[look])
        return Agent("a", model=small, handoffs=[b])

    result = (await both(make)).result
    first, rest = _used(10, 4, 0.1), _used(20, 8, 1.0) + _used(30, 16, 2.0)
    assert result.usage_by_agent == {"a": first, "b": rest}
    assert result.usage_by_model == {"small-1": first, "large-1": rest}
    assert result.usage_by_edge == {("a", "b"): rest}
    assert result.usage == first + rest
    assert (rest.cached_tokens, rest.cost) == (24, 3.0)


@pytest.mark.anyio
async def test_models_of_sub_runs_are_counted() -> None:
    silent = MessageDone(message={"role": "assistant", "content": "x"})

    @handler
    async def unknown(request: Request) -> MessageDone:
        return silent

    inner = Agent("inner", model=unknown)
    outer = ScriptedHandler([call("inner", {"input": "?"}), "Done."])
    result = await Runner.run(Agent("a", model=outer, tools=[inner.as_tool()]), "Hi")
    by_model = result.usage_by_model
    assert by_model["unknown"] == Usage(requests=1, estimated=True)
    assert sum((used.requests for used in by_model.values()), 0) == result.usage.requests == 3
