"""A copied test passes in a process of its own, however the page was started."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from dev_page import Page, dev_page
from terminals import environment
from waiting import PATIENCE

from routelock import RunConfig

APP = r'''
from dataclasses import dataclass

import anyio
import anyio.lowlevel
from routelock import Agent, GuardrailResult, Retry, RunConfig, ToolContext, function_tool, handoff
from routelock.errors import ConnectionFailed
from routelock.handlers.events import TextDelta
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call


@dataclass
class Shop:
    owner: str


@function_tool
def owner(context: ToolContext[Shop]) -> str:
    """Say whose shop it is."""
    return f"{context.context.owner}'s, for {context.user_id}"


@function_tool(needs_approval=lambda context, arguments, call_id: context.context.owner == "Anna")
def pay(amount: int) -> str:
    """Pay."""
    raise AssertionError("it waits")


def script(*replies):
    return ScriptedHandler([*replies] * 3)


def make_shop():
    return Shop("Anna")


async def make_shop_later():
    return Shop("Anna")


class places:
    shop = Shop("Anna")
    config = RunConfig(user_id="u7", next_agent="sticky", trace="runs.jsonl")


def make_config():
    return places.config


session = Session("u7", InMemorySessions())
speech = script("Refunded.", call("transfer_to_front"), "Hello again.")
refunds = Agent("refunds", model=speech, tools=[owner], handoffs=["front"])
front = Agent(
    "front",
    lambda context: f"You work for {context.context.owner}.",
    model=script(call("owner"), call("transfer_to_refunds"), "Back."),
    tools=[owner],
    handoffs=[refunds],
)
@function_tool(needs_approval=True)
def give(amount: int, context: ToolContext[Shop]) -> str:
    """Give."""
    return f"{amount} from {context.context.owner if context.context else 'no account'}"


def gifts(*amounts):
    return [call("give", {"amount": amount}) for amount in amounts]


def may_refund():
    return handoff(Agent("refunds", model=script("Refunded.")), needs_approval=True)


giver = Agent("giver", model=script(gifts(1, 2), "Given.", gifts(3), gifts(4), "All given."), tools=[give])
ask = call("giver", {"input": "Give"})
asker = Agent("asker", model=script(ask, "It gave."), tools=[giver.as_tool("giver")])
broke = Agent("broke", model=script(gifts(1), ConnectionFailed("no line")), tools=[give])
careful = Agent("careful", model=script(call("transfer_to_refunds"), "Then not."), handoffs=[may_refund()])
waits = Agent("waits", model=script(call("pay", {"amount": 3})), tools=[pay])
by_name = Agent("by_name", model=script(call("transfer_to_elsewhere")), handoffs=["elsewhere"])
elsewhere = Agent("elsewhere", model=script("Here.", "Still here."), tools=[owner])
more_agents = RunConfig(agents=[elsewhere], next_agent="sticky")
down = Agent("down", model=script(*[ConnectionFailed("no line")] * 3))
patient = RunConfig(retry=Retry(attempts=2, first_delay=0.01))
talker = Agent("talker", model=script(*[call("owner")] * 3), tools=[owner])


def never(context, agent, messages):
    return GuardrailResult(True, "not here")


async def never_after_a_while(context, agent, messages):
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    return GuardrailResult(True, "not here")


async def never_ends(request):
    yield TextDelta("Well,")
    await anyio.sleep_forever()


never_here = RunConfig(input_guardrails=[never])
beside = RunConfig(guardrails_beside=True)
guarded = Agent("guarded", model=script(never_ends), input_guardrails=[never_after_a_while])
other = ScriptedHandler(["From the other."], name="other")
second = Agent("second", handlers=[script(ConnectionFailed("no line")), other])
named = RunConfig(handler="scripted")
falls_back = RunConfig(fallback=True, retry=Retry(attempts=1))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the app is."""
    found = tmp_path_factory.mktemp("copied")
    (found / "copied_app.py").write_text(APP)
    before = Path.cwd()
    sys.path.insert(0, str(found))
    os.chdir(found)
    yield found
    os.chdir(before)
    sys.path.remove(str(found))
    sys.modules.pop("copied_app", None)


@pytest.fixture
def app(folder: Path) -> Any:
    """The module with the agents, as if nothing had been said to them yet."""
    sys.modules.pop("copied_app", None)
    return importlib.import_module("copied_app")


def _outcomes(folder: Path, codes: Mapping[str, str]) -> dict[str, str]:
    """Run what was copied with pytest, in another process and with nothing of this one's."""
    where = Path(tempfile.mkdtemp(dir=folder))
    for name, code in codes.items():
        (where / f"test_{name}.py").write_text(code, "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        ".",
    ]
    there = environment(PYTHONPATH=os.pathsep.join([str(folder), environment()["PYTHONPATH"]]))
    done = subprocess.run(command, cwd=where, env=there, capture_output=True, text=True, timeout=PATIENCE)
    ended = re.findall(r"^(PASSED|FAILED|ERROR) test_(\w+)\.py", done.stdout, re.MULTILINE)
    outcomes = {name: outcome for outcome, name in ended}
    return {name: outcomes.get(name, "") if outcomes.get(name) == "PASSED" else done.stdout for name in codes}


def _passes(code: str, folder: Path) -> None:
    assert _outcomes(folder, {"copied": code}) == {"copied": "PASSED"}, code


Decided = Sequence[bool | str]
"""A decision on each call that waits: True approves it, a text declines it."""


def _copied(page: Page, *said: str | Decided) -> str:
    """Say some things in one conversation, decide on calls that wait, and copy the last run."""
    conversation = page.begin()
    lines: list[dict[str, Any]] = []
    for each in said:
        if isinstance(each, str):
            lines = page.say(conversation, each)
        else:
            words = [{"approve": one is True, "message": one if isinstance(one, str) else ""} for one in each]
            lines += page.decide(conversation, *words)
    response = page.test_of(lines)
    assert response.status_code == 200, response.text
    return str(response.json()["code"])


OPTIONS = {
    "context": ("--context", "copied_app:make_shop"),
    "both": ("--context", "copied_app:places.shop", "--config", "copied_app:places.config"),
    "turns": (
        *("--context", "copied_app:make_shop", "--config", "copied_app:make_config"),
        *("--agent", "refunds", "--max-turns", "3"),
    ),
}


@pytest.fixture(scope="module")
def of_commands(folder: Path) -> Mapping[str, str]:
    """How the copies of pages of the command line ended."""
    return _outcomes(folder, {name: _of_command(folder, options) for name, options in OPTIONS.items()})


def _of_command(folder: Path, options: Sequence[str]) -> str:
    command = [sys.executable, "-m", "routelock", "dev", "copied_app:front", "--port", "0", *options]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "dev page" in line)
        found = re.search(r"http://127\.0\.0\.1:\d+", told)
        assert found is not None
        page = Page(found[0])
        with closing(page.client):
            return _copied(page, "Hi")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("options", OPTIONS)
def test_the_command_line_s_copy_passes(of_commands: Mapping[str, str], options: str) -> None:
    assert of_commands[options] == "PASSED"


SHOP, STICKY = {"context": "make_shop"}, {"context": "make_shop", "config": "make_config"}
CASES: Mapping[str, tuple[str, Mapping[str, Any], Sequence[str | Decided]]] = {
    # the agent, its options, and what is said
    "a_context": ("front", SHOP, ["Hi"]),
    "an_async_context": ("front", {"context": "make_shop_later"}, ["Hi"]),
    "a_context_and_a_config": ("front", STICKY, ["Hi"]),
    "another_agent_in_charge": ("front", STICKY, ["Hi", "More"]),
    "a_session": ("front", {**SHOP, "session": "session"}, ["Hi", "More"]),
    "another_agent_in_charge_of_a_session": ("front", {**STICKY, "session": "session"}, ["Hi", "More"]),
    "a_call_that_was_approved_in_a_session": (
        "giver",
        {**SHOP, "session": "session"},
        ["Give", [True, True], "More", [True], [True]],
    ),
    "agents_of_the_config": ("by_name", {"config": "more_agents"}, ["Hi"]),
    "an_agent_of_the_config_in_charge": ("by_name", {"config": "more_agents"}, ["Hi", "More"]),
    "a_call_that_waits": ("waits", SHOP, ["Pay"]),
    "a_call_that_was_approved": ("giver", SHOP, ["Give", [True, True]]),
    "calls_that_were_approved_and_declined": ("giver", STICKY, ["Give", [True, "Too much."]]),
    "approvals_in_turn": ("giver", SHOP, ["Give", [True, ""], "More", [True], [True]]),
    "an_approval_in_an_agent_as_a_tool": ("asker", SHOP, ["Give", [True, "No."]]),
    "a_rejection_in_an_agent_as_a_tool": ("asker", SHOP, ["Give", ["No.", True]]),
    "a_handoff_that_was_approved": ("careful", {}, ["Hi", [True]]),
    "a_handoff_that_was_declined": ("careful", {}, ["Hi", ["Never."]]),
    "a_provider_that_fails_after_an_approval": ("broke", {"config": "patient"}, ["Hi", [True]]),
    "a_provider_that_fails": ("down", {}, ["Hi"]),
    "a_provider_that_fails_twice": ("down", {"config": "patient"}, ["Hi"]),
    "a_guardrail_of_the_config": ("front", {**SHOP, "config": "never_here"}, ["Hi"]),
    "a_guardrail_beside_the_model": ("guarded", {"config": "beside"}, ["Hi"]),
    "a_handler_that_stands_in": ("second", {"config": "falls_back"}, ["Hi"]),
    "the_default_handler_by_name": ("front", {**SHOP, "config": "named"}, ["Hi"]),
    "fewer_turns": ("talker", {**SHOP, "max_turns": 2}, ["Hi"]),
    "any_number_of_turns": ("talker", {**SHOP, "max_turns": None}, ["Hi"]),
}
NAMES = ("call", "reply", "model", "given", "result", "Runner", "replace", "copied_app")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> Mapping[str, str]:
    """How the copies of all cases ended, and those of apps with names that the test uses itself."""
    codes = {name: _code_of(*case) for name, case in CASES.items()}
    for name in NAMES:
        (folder / f"{name}.py").write_text(APP)
        codes[f"app_{name}"] = codes["another_agent_in_charge"].replace("copied_app", name)
    return _outcomes(folder, codes)


def _code_of(name: str, given: Mapping[str, Any], said: Sequence[str | Decided]) -> str:
    sys.modules.pop("copied_app", None)
    app = importlib.import_module("copied_app")
    with dev_page(getattr(app, name), spec=f"copied_app:{name}", **_options(app, given)) as page:
        return _copied(page, *said)


def _options(app: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    options = {key: value for key, value in given.items() if key == "max_turns"}
    if "session" in given:
        options["session"] = getattr(app, given["session"])
    if "context" in given:
        found = getattr(app, given["context"])
        options |= {"context": found, "context_spec": f"copied_app:{given['context']}"}
    if "config" in given:
        found = getattr(app, given["config"])
        config = found if isinstance(found, RunConfig) else found()
        options |= {"run_config": config, "config_spec": f"copied_app:{given['config']}"}
    return options


@pytest.mark.parametrize("case", CASES)
def test_a_copy_passes(outcomes: Mapping[str, str], case: str) -> None:
    assert outcomes[case] == "PASSED"


@pytest.mark.parametrize("name", NAMES)
def test_an_app_s_module_may_have_any_name(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes[f"app_{name}"] == "PASSED"


def test_a_copy_writes_no_trace(app: Any, folder: Path) -> None:
    with dev_page(app.front, spec="copied_app:front", **_options(app, STICKY)) as page:
        code = _copied(page, "Hi")
    _passes(code, folder)
    assert [path.parent for path in folder.rglob("runs.jsonl")] == [folder]


def test_an_unknown_place_is_marked_for_replacement(app: Any, folder: Path) -> None:
    config = RunConfig(user_id="u7")
    with dev_page(app.front, spec="copied_app:front", context=app.make_shop, run_config=config) as page:
        code = _copied(page, "Hi")
    for name, what in (("context", "make_shop"), ("config", "make_config")):
        told = f"from app import {name} as {name.upper()}  # replace this with where the {name} is"
        assert told in code
        code = code.replace(told, f"from copied_app import {what} as MAKE\n{name.upper()} = MAKE()")
    _passes(code, folder)


def test_settings_that_a_test_makes_itself_need_no_place(app: Any, tmp_path: Path) -> None:
    config = RunConfig(model=app.script("Hello."), trace=tmp_path / "page.jsonl", run_id="mine")
    with dev_page(app.talker, spec="copied_app:talker", run_config=config) as page:
        code = _copied(page, "Hi")
    assert "CONFIG" not in code


def test_a_copy_decides_as_the_user_did_within_an_agent_as_a_tool(app: Any) -> None:
    """The ids of calls there are the same as outside."""
    with dev_page(app.asker, spec="copied_app:asker", **_options(app, SHOP)) as page:
        code = _copied(page, "Give", ["No.", True])
    assert "reasons = ['No.', None]" in code


def test_a_trace_that_begins_after_an_approval_makes_no_test(app: Any) -> None:
    with dev_page(app.giver, spec="copied_app:giver", **_options(app, SHOP)) as page:
        conversation = page.begin()
        page.say(conversation, "Give")
        decided = page.decide(conversation, *[{"approve": True}] * 2)
        response = page.test_of(decided)
    assert response.status_code == 409
    assert "does not have its beginning" in response.json()["error"]
