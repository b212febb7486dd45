"""A run whose turns are made by different processes, which share nothing but the state as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from scenes import Scene, Stage, facts
from scenes_of_resuming import MORE
from waiting import PATIENCE

from routelock import RunConfig, Runner, RunState

HERE = Path(__file__)
NAMES = ("by a tool",)  # each turn costs the start of a process


def settings(scene: Scene) -> RunConfig:
    return RunConfig(**{**scene.config, "run_id": "r", "on_limit": "return", "clock": lambda: 7.0})


def one_turn(name: str, turn: int, text: str) -> dict[str, Any]:
    """Make one turn more; the scripts of the models begin where the earlier processes left them."""
    scene, stage = MORE[name], Stage()
    agent = scene.agent(stage)
    given: Any = RunState.from_json(text, agents=[agent]) if text else "Hi"
    for member in agent.graph.values():
        for each in member.registered.handlers:
            said = sum(item.origin == each.name for item in given.items) if text else 0
            del cast(Any, each.handler).replies[:said]
    result = Runner.run_sync(agent, given, max_turns=turn, run_config=settings(scene))
    return {
        "text": result.state().to_json(),
        "done": result.stop_reason == "done",
        "facts": repr(comparable(result)),
        "effects": stage.done,
    }


def comparable(result: Any) -> dict[str, Any]:
    known = {**facts(result), "calls": None}
    return {**known, "errors": [each for each in known["errors"] if each.kind != "limit"]}


@pytest.mark.parametrize("name", NAMES)
def test_each_turn_in_a_process_of_its_own(name: str) -> None:
    stage = Stage()
    whole = Runner.run_sync(MORE[name].agent(stage), "Hi", run_config=settings(MORE[name]))
    text, effects, last = "", list[str](), dict[str, Any]()
    for turn in range(1, 12):
        env = {**os.environ, "PYTHONHASHSEED": str(turn), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(HERE), name, str(turn)]
        made = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert made.returncode == 0, made.stderr[-3000:]
        last = json.loads(made.stdout)
        text, effects = last["text"], [*effects, *last["effects"]]
        if last["done"]:
            break
    assert last["facts"] == repr(comparable(whole))
    assert effects == stage.done


if __name__ == "__main__":
    sys.stdout.write(json.dumps(one_turn(sys.argv[1], int(sys.argv[2]), sys.stdin.read())))
