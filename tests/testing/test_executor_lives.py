"""How the kit for engines plays lives, and what it says."""

from __future__ import annotations

import pytest

from routelock.run.executor import Executor, InProcess
from routelock.testing.executor_lives import Lives, Use, check_same, new_id
from routelock.testing.executor_scenes import Killed


class Eager(Lives):
    """Tries a life again before the next one begins, as engines do that retry at once."""

    async def live(self, run_id: str, use: Use) -> None:
        for _ in range(2):
            try:
                await use(InProcess())
            except Killed:
                continue


def test_a_life_is_played_once_though_the_engine_tries_again() -> None:
    played: list[Executor] = []

    async def script(executor: Executor) -> str:
        played.append(executor)
        return "lived"

    assert Eager()._play(new_id(), script) == ["lived"]
    assert len(played) == 1


def test_only_what_differs_is_named() -> None:
    with pytest.raises(AssertionError) as caught:
        check_same({"a": 1, "b": 3}, {"a": 1, "b": 2}, "the same", "it has to be the same.")
    assert str(caught.value) == (
        "Expected: the same.\nFound: another one.\nb: 3\n  instead of 2\n"
        "Why it matters: it has to be the same."
    )


def test_an_engine_without_lives_is_told_what_it_needs() -> None:
    async def script(executor: Executor) -> None: ...

    with pytest.raises(NotImplementedError, match=r"Lives needs a method live\(run_id, use\)"):
        Lives()._play(new_id(), script)
