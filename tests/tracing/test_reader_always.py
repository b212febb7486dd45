"""Whatever a team does, however its run ends, streamed or left: its trace says what its result says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from random_teams import scripts, team
from thoroughness import examples
from trace_checks import accounted_for, only, same

from routelock import RunConfig, Runner, RunResult
from routelock.errors import RoutelockError


async def _play(
    made: list[list[Any]], path: Path, *, stream: bool, leave_after: int | None
) -> RunResult[Any]:
    first, *others = team(made)
    config = RunConfig(agents=others, trace=path, shared_memory={"looks": 0})
    run = Runner.run_streamed(first, "Hi", max_turns=12, run_config=config)
    try:
        if not stream:
            return await Runner.run(first, "Hi", max_turns=12, run_config=config)
        async with run:
            read = 0
            async for _ in run:
                read += 1
                if read == leave_after:
                    break
    except RoutelockError as error:
        assert error.result is not None  # noqa: PT017
        return error.result
    return run.result


@given(scripts, st.booleans(), st.none() | st.integers(1, 40))
@examples(40)
def test_a_trace_says_what_the_result_says(
    made: list[list[Any]], stream: bool, leave_after: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        result = anyio.run(lambda: _play(made, path, stream=stream, leave_after=leave_after))
        run = only(path)
    same(result, run)
    accounted_for(run)
