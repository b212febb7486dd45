"""Agents, settings and contexts are found, and a wrong place is an error of one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from routelock import Agent, ConfigError, RunConfig
from routelock.cli.main import main
from routelock.cli.options import RunOptions, load_agents, needs_litellm
from routelock.testing import ScriptedHandler
from routelock_providers import LiteLLM

APP = """
from routelock import Agent
from routelock.testing import ScriptedHandler

agent = Agent("A", model=ScriptedHandler([]))
team = [agent, Agent("B", model=ScriptedHandler([]))]
number = 7
empty = []

def make():
    return agent

def make_team():
    return team

def fail():
    raise ValueError("no shop today")

def end():
    raise SystemExit(3)

class holder:
    agent = agent
"""

RUNS = """
import asyncio
from routelock import Agent, Runner
from routelock.testing import ScriptedHandler

agent = Agent("A", model=ScriptedHandler([RuntimeError("no key")]))

async def main():
    await Runner.run(agent, "Hi")

"""


FITS = """
from __future__ import annotations

import os

from routelock import Agent, RunConfig, tool
from routelock.sessions import InMemorySessions
from routelock.testing import ScriptedHandler

agent = Agent("A", model=ScriptedHandler([]))
config = RunConfig()
store = InMemorySessions()
shop = {"open": True}
_hidden = {"open": False}

class Shop: ...

def make_shop():
    return {}

def find(order):
    return order

@tool
def look_up(order: int) -> str:
    return "here"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder to be in, with an app; its module has a name of its own for each test."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    (tmp_path / f"{name}_broken.py").write_text("import nothing_of_that_name")
    (tmp_path / f"{name}_wrong.py").write_text("x = (")
    (tmp_path / f"{name}_runs.py").write_text(f"{RUNS}Runner.run_sync(agent, 'Hi')\n")
    (tmp_path / f"{name}_awaits.py").write_text(f"{RUNS}asyncio.run(main())\n")
    (tmp_path / f"{name}_ends.py").write_text("raise SystemExit(3)")
    (tmp_path / f"{name}_named.py").write_text("import routelock\nroutelock.Agent('A').as_tool(name='a')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    for module in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("attribute", "names"),
    [("agent", "A"), ("team", "AB"), ("make", "A"), ("make_team", "AB"), ("holder.agent", "A")],
)
def test_a_spec_stands_for_agents(folder: str, attribute: str, names: str) -> None:
    agents = load_agents(f"{folder}:{attribute}")
    assert "".join(agent.name for agent in agents) == names
    assert all(isinstance(agent, Agent) for agent in agents)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{}", "module:attribute"),
        (":agent", "module:attribute"),
        ("{}:", "module:attribute"),
        ("{}:missing", "has no 'missing'. Its agents: agent."),
        ("{}:number", "must be an Agent"),
        ("{}:empty", "must be an Agent"),
        ("{}:holder.nothing", "has no 'holder.nothing'"),
        ("{}:fail", "raised ValueError: no shop today ("),
        ("{}_missing:agent", "There is no module"),
        ("{}.inner:agent", "There is no module"),
        ("{}_broken:agent", "raised ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("{}_wrong:agent", "_wrong.py, line 1)"),
        ("{}_ends:agent", "raised SystemExit: 3 ("),
        ("{}:end", "raised SystemExit: 3 ("),
    ],
)
def test_a_wrong_spec_is_an_error_of_one_line(
    folder: str, spec: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", spec.format(folder)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("routelock: ")
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--context", "Its objects and functions that may be one: shop, make_shop."),
        ("--config", "Its settings of runs: config."),
        ("--response-sessions", "Its stores of sessions: store."),
    ],
)
def test_a_place_that_does_not_exist_is_answered_with_what_fits(
    tmp_path: Path, folder: str, option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{folder}_fits"
    (tmp_path / f"{name}.py").write_text(FITS)
    assert main(["serve", f"{name}:agent", option, f"{name}:nope"]) == 2
    assert capsys.readouterr().err == f"routelock: {name!r} has no 'nope'. {said}\n"


def test_wrong_keyword_of_routelock_has_its_line_in_the_app_and_its_advice(folder: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_agents(f"{folder}_named:agent")
    advice = rf"argument 'name'\. Instead of name=, write tool_name=\. \(.*{folder}_named\.py, line 2\)$"
    assert re.search(advice, str(caught.value))


@pytest.mark.parametrize(("module", "line"), [("runs", 11), ("awaits", 9)])
def test_file_that_runs_an_agent_is_told_where_to_do_that(folder: str, module: str, line: int) -> None:
    place = rf"no key \(.*{folder}_{module}\.py, line {line}\)"
    with pytest.raises(ConfigError, match=place + r"\. It runs an agent: do that below `if __name__ =="):
        load_agents(f"{folder}_{module}:agent")


@pytest.mark.parametrize(("spec", "needed"), [("made", True), ("written", True), ("scripted", False)])
def test_litellm_is_needed_for_names_and_its_handlers(spec: str, needed: bool) -> None:
    models = {"made": LiteLLM("openai/m"), "written": "openai/m", "scripted": ScriptedHandler([])}
    options = RunOptions(agent=Agent("A", model=models[spec]), config=RunConfig(), context=None, max_turns=1)
    assert needs_litellm(options) is needed


def test_the_error_is_one_of_routelocks() -> None:
    with pytest.raises(ConfigError):
        load_agents("nowhere")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--config", "{}:agent"], "must be a RunConfig"),
        (["--config", "{}:nothing"], "has no 'nothing'"),
        (["--context", "{}:nothing"], "has no 'nothing'"),
        (["--context", "{}:fail"], "raised ValueError: no shop today ("),
    ],
)
def test_a_wrong_context_or_config_is_an_error(
    folder: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", f"{folder}:agent", *(each.format(folder) for each in options)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "dev"])
@pytest.mark.parametrize("number", ["65536", "-1", "http"])
def test_a_wrong_port_is_an_error(command: str, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "app:agent", f"--port={number}"])
    assert caught.value.code == 2
    assert f"'{number}' is not a port: it is a number from 0 to 65535" in capsys.readouterr().err
