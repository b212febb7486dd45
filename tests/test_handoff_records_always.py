"""Whatever a team does, however its run ends: the books of the transfers are complete and consistent."""

from __future__ import annotations

from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from scenes import facts
from teams import agent

from interlock import Agent, RunConfig, Runner, RunResult, RunStream, function_tool, handoff
from interlock.capabilities import Capacity
from interlock.errors import InterlockError
from interlock.handoff_request import HandoffResponse, HandoffStatus
from interlock.testing import call
from interlock.usage import Usage

NAMES = ("m0", "m1", "m2", "m3")
WAYS = ("plain", "returns", "newest", "nested", "picky", "broken filter", "broken callback", "payload")

transfers = st.tuples(
    st.sampled_from(NAMES[1:] + NAMES), st.sampled_from((*WAYS, "plain", "returns", "payload"))
)
steps = st.one_of(transfers, transfers, transfers, transfers, st.sampled_from(["answer", "error", "tool"]))
scripts = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=len(NAMES), max_size=len(NAMES))


@function_tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def _no(request: Any) -> HandoffResponse | None:
    return HandoffResponse.reject("no") if len(request.request_id) % 2 else None


def _broken(*_: Any) -> Any:
    raise ValueError("no")


def _team(scripts: list[list[Any]]) -> list[Agent[Any]]:
    options: dict[str, dict[str, Any]] = {
        "returns": {"return_to_caller": True},
        "newest": {"preserve_context": False},
        "nested": {"nest_handoff_history": True},
        "picky": {"capabilities_required": ["sql"]},
        "broken filter": {"input_filter": lambda data: _broken()},
        "broken callback": {"on_handoff": lambda context: _broken()},
        "payload": {"payload": {"handoff_type": "x", "what": "moss"}},
    }
    team: list[Agent[Any]] = []
    for place, (name, script) in enumerate(zip(NAMES, scripts, strict=True)):
        replies: list[Any] = []
        edges: dict[str, Any] = {}
        for number, step in enumerate(script):
            if step == "answer":
                replies.append("Done.")
            elif step == "error":
                replies.append(ValueError("broken"))
            elif step == "tool" or step[0] == name:
                replies.append(call("look", {"n": number}, id=f"{name}.{number}"))
            else:
                target, way = step
                tool = f"transfer_to_{target}_{WAYS.index(way)}"
                edges[tool] = handoff(target, tool_name_override=tool, **options.get(way, {}))
                replies.append(call(tool, id=f"{name}.{number}"))
        replies += ["Done."] * 30
        hook = _no if place == 3 else None
        able = ["sql"] if place % 2 else []
        team.append(
            agent(
                name,
                *replies,
                tools=[look],
                handoffs=[*edges.values()],
                capabilities=able,
                on_handoff_request=hook,
            )
        )
    return team


async def _play(scripts: list[list[Any]], *, stream: bool, capacity: Capacity) -> tuple[RunResult[Any], str]:
    first, *others = _team(scripts)
    config = RunConfig(run_id="r", agents=others, capacity=capacity)
    try:
        if not stream:
            return await Runner.run(first, "Hi", max_turns=12, run_config=config), ""
        run: RunStream = Runner.run_streamed(first, "Hi", max_turns=12, run_config=config)
        async for _ in run:
            pass
    except InterlockError as error:
        return error.result, f"{type(error).__name__}: {error}"
    return run.result, ""


def _check(result: RunResult[Any]) -> None:
    records = result.handoffs
    assert [one.id for one in records] == [f"h-r-{n + 1}" for n in range(len(records))]
    known: set[str | None] = {None}
    for one in records:
        assert one.status is not HandoffStatus.PENDING
        assert one.started is not None
        assert one.ended is not None
        assert one.parent_id in known
        assert (one.usage is not None) == one.taken
        assert bool(one.error) == (one.status in ("REJECTED", "FAILED", "EXPIRED"))
        known.add(one.id)
    if result.stop_reason == "done":
        assert all(one.status is HandoffStatus.COMPLETED for one in records if one.taken)
    hops = sum((one.usage or Usage() for one in records), Usage())
    replies = sum((each.reply.usage or Usage() for each in result.calls if each.reply), Usage())
    before = hops.total_tokens
    assert before <= replies.total_tokens
    if not any(one.taken for one in records):
        assert before == 0
    assert "handoff_context" not in result.context.shared_memory


@given(scripts=scripts)
def test_the_books_of_any_run_are_in_order(scripts: list[list[Any]]) -> None:
    """Rows 0-14, 0-21, 0-27, 2-24, 3-23, 3-25, streamed and plain alike."""

    async def play() -> None:
        capacity = Capacity(dict.fromkeys(NAMES, 1))
        plain, why = await _play(scripts, stream=False, capacity=capacity)
        streamed, streamed_why = await _play(scripts, stream=True, capacity=capacity)
        assert facts(plain) == facts(streamed)
        assert why == streamed_why
        _check(plain)
        assert all(capacity.free(name) == 1 for name in NAMES)

    anyio.run(play)
