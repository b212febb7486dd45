"""What the app is asked at one moment it is asked at the same time: guardrails, ``is_enabled``, approvals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scripted_agents import agent

from routelock import Agent, RunConfig, Runner, RunResult, function_tool, handoff
from routelock.errors import CallbackError, GuardrailTripped, RoutelockError
from routelock.guardrails import GuardrailResult
from routelock.testing import ScriptedHandler, call

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

BOUND = 60
WHO: ContextVar[str] = ContextVar("who", default="me")

Ask = Callable[[], Awaitable[bool]]
"""What a function of the app does when it is asked: True lets pass, is enabled, or needs no approval."""
KINDS = [
    "input of the run",
    "input of an agent",
    "input beside",
    "output of the run",
    "output of an agent",
    "output of both",
    "enabled tools",
    "enabled handoffs",
    "approvals",
    "input of a tool",
    "output of a tool",
]
each_kind = pytest.mark.parametrize("kind", KINDS)
guards = pytest.mark.parametrize("kind", [kind for kind in KINDS if "put" in kind])


def guardrail(ask: Ask) -> Any:
    async def check(context: Any, owner: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(not await ask())

    return check


def gate(ask: Ask) -> Any:
    async def asked(context: Any, about: Any) -> bool:
        return await ask()

    return asked


def refusing(ask: Ask) -> Any:
    async def needs(context: Any, arguments: Any) -> bool:
        return not await ask()

    return needs


def tool(name: str, **settings: Any) -> Any:
    def work() -> str:
        return f"{name} is done"

    return function_tool(work, name_override=name, **settings)


def made(kind: str, asks: list[Ask]) -> tuple[Agent[Any], dict[str, Any]]:
    """Return an agent that asks these at one moment, and the settings of its run."""
    checks = [guardrail(ask) for ask in asks]
    first, second = asks
    tools = [tool("a"), tool("b")]
    gated = [tool("a", is_enabled=gate(first)), tool("b", is_enabled=gate(second))]
    held = [tool("a", needs_approval=refusing(first)), tool("b", needs_approval=refusing(second))]
    handoffs = [handoff(agent("x"), is_enabled=gate(first)), handoff(agent("y"), is_enabled=gate(second))]
    options: dict[str, dict[str, Any]] = {
        "input of an agent": {"input_guardrails": checks},
        "input beside": {"input_guardrails": checks},
        "output of an agent": {"output_guardrails": checks},
        "output of both": {"output_guardrails": checks[:1]},
        "enabled tools": {"tools": gated},
        "enabled handoffs": {"handoffs": handoffs},
        "approvals": {"tools": held},
        "input of a tool": {"tools": [tool("a", tool_input_guardrails=checks), tools[1]]},
        "output of a tool": {"tools": [tool("a", tool_output_guardrails=checks), tools[1]]},
    }
    settings: dict[str, dict[str, Any]] = {
        "input of the run": {"input_guardrails": checks},
        "input beside": {"guardrails_beside": True},
        "output of the run": {"output_guardrails": checks},
        "output of both": {"output_guardrails": checks[1:]},
    }
    script = ScriptedHandler([[call("a", id="c-a"), call("b", id="c-b")], "Done."])
    given: Any = {"tools": tools, **options.get(kind, {})}
    asking = Agent("A", model=script, **given)
    return asking, settings.get(kind, {})


async def run(kind: str, asks: list[Ask], *, stream: bool = False) -> RunResult[Any]:
    asked, settings = made(kind, asks)
    with anyio.fail_after(BOUND):
        if stream:
            return await Runner.run_streamed(asked, "Hi", run_config=RunConfig(**settings)).drain()
        return await Runner.run(asked, "Hi", run_config=RunConfig(**settings))


@pytest.mark.parametrize("stream", [False, True])
@each_kind
async def test_the_first_may_wait_for_what_the_second_does(kind: str, stream: bool) -> None:
    done = anyio.Event()

    async def first() -> bool:
        await done.wait()
        return True

    async def second() -> bool:
        done.set()
        return True

    assert (await run(kind, [first, second], stream=stream)).final_output == "Done."


@guards
async def test_the_first_that_trips_cancels_the_others(kind: str) -> None:
    ended: list[str] = []
    waits = anyio.Event()

    async def patient() -> bool:
        waits.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            ended.append("cancelled")
            raise
        return True

    async def strict() -> bool:
        await waits.wait()
        return False

    with pytest.raises(GuardrailTripped):
        await run(kind, [patient, strict])
    assert ended == ["cancelled"]


@guards
async def test_of_those_that_tripped_the_first_declared_counts(kind: str) -> None:
    go = anyio.Event()

    def strict(name: str) -> Ask:
        async def ask() -> bool:
            with anyio.CancelScope(shield=True):  # so that both come to it
                await go.wait()
                if name == "second":
                    raise KeyError(name)
            return False

        return ask

    async def start() -> None:
        go.set()

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        with pytest.raises(GuardrailTripped):
            await run(kind, [strict("first"), strict("second")])


@each_kind
async def test_context_variable_of_one_check_stays_in_it(kind: str) -> None:
    seen: list[str] = []

    async def ask() -> bool:
        seen.append(WHO.get())
        WHO.set("another")
        await anyio.lowlevel.checkpoint()
        return True

    await run(kind, [ask, ask])
    assert set(seen) == {"me"}
    assert WHO.get() == "me"


@each_kind
async def test_what_raises_is_named(kind: str) -> None:
    async def broken() -> bool:
        raise KeyError("gone")

    async def fine() -> bool:
        return True

    with pytest.raises(CallbackError, match="KeyError: 'gone'"):
        await run(kind, [fine, broken])


@each_kind
async def test_what_is_no_failure_comes_out_as_it_is(kind: str) -> None:
    class Abort(BaseException):
        pass

    async def abort() -> bool:
        raise Abort

    async def fine() -> bool:
        return True

    with pytest.raises(Abort):
        await run(kind, [fine, abort])


async def test_sync_check_ends_before_the_next_starts() -> None:
    asked: list[str] = []

    def strict(context: Any, owner: Any, value: Any) -> GuardrailResult:
        asked.append("strict")
        return GuardrailResult(True)

    async def never(context: Any, owner: Any, value: Any) -> GuardrailResult:
        asked.append("never")
        return GuardrailResult(False)

    config = RunConfig(input_guardrails=[never, strict, never])
    with pytest.raises(GuardrailTripped, match="strict"):
        await Runner.run(agent("A", "Hi"), "Hi", run_config=config)
    assert asked == ["strict"]


async def test_first_declared_tool_guardrail_answer_counts() -> None:
    go = anyio.Event()

    def objecting(text: str) -> Any:
        async def check(context: Any, owner: Any, value: Any) -> GuardrailResult:
            if text == "second":
                go.set()
            with anyio.CancelScope(shield=True):
                await go.wait()
            return GuardrailResult(False, answer=text)

        return check

    made = tool("a", tool_input_guardrails=[objecting("first"), objecting("second")])
    answered = Agent("A", model=ScriptedHandler([call("a"), "Done."]), tools=[made])
    with anyio.fail_after(BOUND):
        result = await Runner.run(answered, "Hi")
    assert [message.get("content") for message in result.messages if message["role"] == "tool"] == ["first"]


async def test_cancelled_run_leaves_no_check_running() -> None:
    ended: list[str] = []
    asked = 0

    async def patient() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")
        return True

    with anyio.CancelScope() as scope:
        await run("output of an agent", [patient, patient])
    assert ended == ["cancelled", "cancelled"]


async def test_an_error_names_the_turn_also_beside_others() -> None:
    async def strict() -> bool:
        return False

    async def fine() -> bool:
        return True

    with pytest.raises(RoutelockError, match="stopped agent 'A' in turn 2") as caught:
        await run("output of both", [fine, strict])
    assert caught.value.result.messages[-1]["content"] == "Done."
