"""Tokens and money add up, and what is not known is never shown as nothing (pain 34)."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Agent, Retry, RunConfig, Runner, Usage
from interlock.errors import ProviderTimeout
from interlock.events import MessageDone
from interlock.testing import ScriptedHandler, call, reply

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
    """Pain 34: also of a part that made no request itself, such as what a tool reports."""
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
    """Pain 34: an unknown price is None, not zero."""
    known, unknown = Usage(requests=1, cost=0.5), Usage(requests=1)
    assert (known + known).cost == 1.0
    assert (known + unknown).cost is None
    assert (unknown + known + known).cost is None


def test_one_estimate_marks_the_sum() -> None:
    assert (Usage(requests=1) + Usage(requests=1, estimated=True)).estimated
    assert not (Usage(requests=1) + Usage(requests=1)).estimated


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
    """Row 2-24 and pain 34: per agent the sum is the total, streamed or not."""
    result = await (Runner.run_streamed(desk(), "Hi").drain() if stream else Runner.run(desk(), "Hi"))
    assert result.usage == Usage(3, 600, 3, 3, 3)
    assert {name: usage.input_tokens for name, usage in result.usage_by_agent.items()} == {
        "triage": 100,
        "billing": 500,
    }
    assert functools.reduce(operator.add, result.usage_by_agent.values()) == result.usage


@pytest.mark.anyio
async def test_a_reply_without_usage_counts_as_a_request_that_is_estimated() -> None:
    """Pain 34: the tokens are missing, and the sum says so."""
    silent = MessageDone(message={"role": "assistant", "content": "Hi"})
    result = await Runner.run(Agent("A", model=ScriptedHandler([silent])), "Hi")
    assert result.usage == Usage(requests=1, estimated=True)


@pytest.mark.anyio
async def test_a_call_that_failed_without_a_word_counts_as_a_request_that_is_estimated() -> None:
    agent = Agent("A", model=ScriptedHandler([ProviderTimeout("late")]))
    with pytest.raises(ProviderTimeout) as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(retry=Retry(attempts=1)))
    assert caught.value.result.usage == Usage(requests=1, estimated=True)
