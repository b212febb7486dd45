"""One place for all that a run may consume, as an error or as a result, streamed or not."""

from __future__ import annotations

from typing import Any

import pytest
from plain_and_streamed import both
from scripted_agents import agent, look_up

from routelock import Agent, Retry, RunConfig, Runner, RunState, handoff
from routelock.errors import (
    BudgetExceeded,
    ConfigError,
    LimitExceeded,
    MaxHandoffsExceeded,
    MaxTurnsExceeded,
    RateLimited,
)
from routelock.history.messages import text_of
from routelock.run.limits import Limits
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

LOOK = call("look_up", {"order": 1})
TEN = Usage(requests=1, input_tokens=6, output_tokens=4, cost=0.01)


def busy(*, times: int = 5, **options: Any) -> Agent[Any]:
    """An agent that looks something up in every turn; each reply costs ten tokens and a cent."""
    turns = [reply(None, calls=[call("look_up", {"order": n})], usage=TEN) for n in range(times)]
    return agent("A", *turns, reply("Done.", usage=TEN), tools=[look_up], **options)


@pytest.mark.parametrize(
    ("limits", "why", "requests"),
    [
        (Limits(requests=2), "2 of 2 requests are made", 2),
        (Limits(tokens=25), "30 of 25 tokens are used", 3),
        (Limits(cost=0.02), "0.0200 of 0.0200 US dollars are spent", 2),
        (Limits(tool_calls=3), "3 of 3 tool calls are made, and agent 'A' wanted another tool call", 4),
    ],
)
async def test_a_run_ends_with_the_work_that_is_done(limits: Limits, why: str, requests: int) -> None:
    played = await both(busy, limits=limits)
    assert type(played.error) is BudgetExceeded
    assert why in str(played.error)
    assert played.result.usage.requests == requests


async def test_as_a_result_if_asked() -> None:
    played = await both(busy, limits=Limits(tokens=25), on_limit="return")
    assert (played.error, played.result.stop_reason) == (None, "limit")


@pytest.mark.parametrize(
    ("turns", "options", "most"),
    [
        (2, {"max_turns": 9}, 2),
        (20, {"max_turns": 5}, 5),
        (12, {}, 12),
        (12, {"max_turns": None}, 12),
        (None, {}, 10),
        (None, {"max_turns": 3}, 3),
    ],
)
async def test_of_turns_and_max_turns_the_smaller_holds(
    turns: int | None, options: dict[str, Any], most: int
) -> None:
    """The default of max_turns says nothing beside a limit."""
    settings = RunConfig(limits=Limits(turns=turns))
    with pytest.raises(MaxTurnsExceeded, match=rf"Max turns \({most}\)"):
        await Runner.run(busy(times=15), "Hi", run_config=settings, **options)


@pytest.mark.parametrize(
    ("limit", "option", "most"), [(3, {"max_handoffs": 1}, 1), (1, {"max_handoffs": 3}, 1), (7, {}, 7)]
)
async def test_of_handoffs_and_max_handoffs_the_smaller_holds(
    limit: int, option: dict[str, Any], most: int
) -> None:
    b = agent("B", *([call("transfer_to_a")] * 9), handoffs=["A"])
    a = agent("A", *([call("transfer_to_b")] * 9), handoffs=[handoff(b)])
    settings = RunConfig(limits=Limits(handoffs=limit, turns=20), detect_loops=False, **option)
    with pytest.raises(MaxHandoffsExceeded, match=f"limit of {most} transfers"):
        await Runner.run(a, "Hi", run_config=settings)


@pytest.mark.parametrize(("seconds", "timeout"), [(5, 0.001), (0.001, 5)])
async def test_of_seconds_and_timeout_the_smaller_holds(seconds: float, timeout: float) -> None:
    settings = RunConfig(limits=Limits(seconds=seconds), timeout=timeout)
    raised = "timeout=" if timeout < seconds else r"limits=Limits\(seconds="
    with pytest.raises(LimitExceeded, match=rf"its timeout of 0\.001 s.* Raise RunConfig\({raised}"):
        await Runner.run(busy(times=500), "Hi", max_turns=None, run_config=settings)


async def test_the_error_names_what_was_set() -> None:
    with pytest.raises(MaxTurnsExceeded, match=r"Raise RunConfig\(limits=Limits\(turns=\.\.\.\)\), or"):
        await Runner.run(busy(), "Hi", run_config=RunConfig(limits=Limits(turns=3)))
    with pytest.raises(MaxTurnsExceeded, match="Raise max_turns, or"):
        await Runner.run(busy(), "Hi", max_turns=3, run_config=RunConfig(limits=Limits(turns=4)))


async def test_no_handoff_may_be_allowed() -> None:
    b = agent("B", "Done.")
    a = agent("A", call("transfer_to_b"), "Mine.", handoffs=[handoff(b)])
    result = await Runner.run(a, "Hi", run_config=RunConfig(limits=Limits(handoffs=0)))
    assert result.final_output == "Mine."


async def test_seconds_are_the_timeout() -> None:
    with pytest.raises(LimitExceeded, match=r"its timeout of 0\.001 s"):
        await Runner.run(
            busy(times=500), "Hi", max_turns=None, run_config=RunConfig(limits=Limits(seconds=0.001))
        )


async def test_the_answer_that_goes_over_is_the_answer() -> None:
    result = await Runner.run(busy(times=0), "Hi", run_config=RunConfig(limits=Limits(tokens=5)))
    assert result.final_output == "Done."


async def test_reply_over_the_call_limit_makes_no_calls() -> None:
    a = agent("A", [LOOK, LOOK, LOOK], tools=[look_up])
    with pytest.raises(BudgetExceeded, match="0 of 2 tool calls are made") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(limits=Limits(tool_calls=2)))
    assert caught.value.result is not None
    assert all("order" not in text_of(each) for each in caught.value.result.messages[2:])


async def test_what_an_agent_uses_that_is_asked_counts() -> None:
    inner = busy(times=3)
    boss = agent(
        "boss", reply(None, calls=[call("a", {"input": "?"})], usage=TEN), "Done.", tools=[inner.as_tool()]
    )
    with pytest.raises(BudgetExceeded, match="agent 'boss' wanted another model call") as caught:
        await Runner.run(boss, "Hi", run_config=RunConfig(limits=Limits(tokens=25)))
    assert caught.value.result is not None
    assert caught.value.result.usage.total_tokens == 30


@pytest.mark.pairwise
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(tool_calls=5), 5), (Limits(requests=3), 3), (Limits(tokens=45), 70), (Limits(cost=0.03), 0.07)],
)
async def test_agents_that_are_asked_at_once_have_one_budget(
    limits: Limits, most: float, watched: bool
) -> None:
    """What has begun comes to its end: three at once may go over by three calls, and no more."""
    helpers = [
        agent(f"h{n}", *(reply(None, calls=[LOOK], usage=TEN) for _ in range(3)), "Done.", tools=[look_up])
        for n in range(3)
    ]
    asks = reply(None, calls=[call(each.name, {"input": "?"}, id=each.name) for each in helpers], usage=TEN)
    boss = agent("boss", asks, "Done.", tools=[each.as_tool() for each in helpers])
    settings = RunConfig(limits=limits, on_limit="return")
    if watched:
        stream = Runner.run_streamed(boss, "Hi", max_turns=None, run_config=settings)
        result = await stream.drain()
    else:
        result = await Runner.run(boss, "Hi", max_turns=None, run_config=settings)
    used = result.usage
    looked = sum(len([i for i in each.items if i.kind == "tool"]) for each in result.nested.values())
    what = {
        "tool_calls": 3 + looked,
        "requests": used.requests,
        "tokens": used.total_tokens,
        "cost": used.cost,
    }
    (name,) = (name for name in what if getattr(limits, name) is not None)
    assert what[name] <= most


async def test_an_unknown_price_is_no_limit() -> None:
    model = ScriptedHandler([reply(None, calls=[LOOK], usage=Usage(requests=1)), "Done."])
    result = await Runner.run(
        Agent("A", model=model, tools=[look_up]), "Hi", run_config=RunConfig(limits=Limits(cost=0.001))
    )
    assert result.final_output == "Done."
    (warning,) = result.warnings
    assert "Limits(cost=...) has no effect" in warning


@pytest.mark.parametrize("limits", [None, Limits(tokens=100), Limits(cost=5)])
async def test_known_or_irrelevant_prices_cause_no_warning(limits: Limits | None) -> None:
    price = None if limits is None or limits.cost is None else 0.01
    model = ScriptedHandler([reply("Done.", usage=Usage(requests=1, cost=price))])
    result = await Runner.run(Agent("A", model=model), "Hi", run_config=RunConfig(limits=limits))
    assert result.warnings == ()


async def test_attempts_that_failed_are_requests() -> None:
    async def at_once(seconds: float) -> None:
        pass

    a = agent("A", RateLimited("Slow down."), LOOK, "Done.", tools=[look_up])
    settings = RunConfig(limits=Limits(requests=2), retry=Retry(sleep=at_once))
    with pytest.raises(BudgetExceeded, match="2 of 2 requests"):
        await Runner.run(a, "Hi", run_config=settings)


async def test_attempts_stop_at_the_request_limit() -> None:
    async def at_once(seconds: float) -> None:
        pass

    a = agent("A", *[RateLimited("Slow down.")] * 5, "Done.")
    settings = RunConfig(limits=Limits(requests=2), retry=Retry(attempts=6, sleep=at_once))
    with pytest.raises(BudgetExceeded, match="2 of 2 requests") as caught:
        await Runner.run(a, "Hi", run_config=settings)
    assert caught.value.result is not None
    assert caught.value.result.usage.requests == 2


async def test_resumed_run_keeps_its_earlier_usage() -> None:
    a = busy()
    result = await Runner.run(a, "Hi", run_config=RunConfig(limits=Limits(tool_calls=1), on_limit="return"))
    state = RunState.from_json(result.state().to_json(), agents=[a])
    again = await Runner.run(a, state, run_config=RunConfig(limits=Limits(tool_calls=3), on_limit="return"))
    assert sum(item.message["role"] == "tool" for item in again.items) == 3
    done = await Runner.run(a, again.state())
    assert done.final_output == "Done."


@pytest.mark.parametrize(
    "wrong", [{"turns": 0}, {"tokens": -1}, {"requests": 1.5}, {"cost": "much"}, {"seconds": True}]
)
async def test_what_cannot_be_meant_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"limits.{next(iter(wrong))} must be a number"):
        RunConfig(limits=Limits(**wrong))
