"""The agents with which the kit tests engines."""

from __future__ import annotations

import pytest

from routelock import RunConfig, Runner
from routelock.testing.executor_scenes import Killed, World, is_killed, paying, support_team

pytestmark = pytest.mark.anyio


async def test_the_support_team_does_all_that_a_run_can() -> None:
    world = World()
    result = await Runner.run(support_team(world), "Hi", run_config=RunConfig(fallback=True))
    assert result.final_output == "All is paid."
    assert sorted(name for name, _ in world.done) == ["charge", "look", "pay", "stamp"]
    assert sorted(result.nested) == ["a", "c"]
    assert [(record.source, record.target) for record in result.handoffs] == [("triage", "billing")]
    assert {problem.kind for problem in result.errors} == {"fallback", "tool"}


async def test_effects_are_the_same_for_each_run_and_keys_are_not() -> None:
    first, second = World(), World()
    for run_id, world in (("r1", first), ("r2", second)):
        await Runner.run(paying(world), "Hi", run_config=RunConfig(run_id=run_id))
    assert first.done == second.done == [("pay", "1:p")]
    assert (first.keys_of("pay"), second.keys_of("pay")) == (["r1:1:p"], ["r2:1:p"])


def test_a_group_is_killed_if_all_of_it_is() -> None:
    assert is_killed(BaseExceptionGroup("all", [Killed(), Killed()]))
    assert not is_killed(BaseExceptionGroup("one", [Killed(), ValueError("no")]))
