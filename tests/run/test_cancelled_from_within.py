"""The app's own code awaits something that was cancelled: that is its failure, and not the caller's word.

asyncio lets any function raise ``CancelledError``, and a run that took it for the caller's would end without
an error and without a result (pydantic/pydantic-ai 4423). Trio has no such thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from manager_agents import ask, manager
from manager_agents import both as both_managers
from plain_and_streamed import QUICK, both
from scripted_agents import agent, answers_of, look_up

from routelock import Agent, AgentHooks, RunConfig, RunHooks, Runner, function_handler, handoff
from routelock import tool as make_tool
from routelock.errors import CallbackError, HandlerError, HandoffFilterError, RoutelockError, ToolError
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.handlers.port import Request
from routelock.testing import ScriptedHandler, call

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]


async def cancelled(*given: Any) -> Any:
    """Await a future that was cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def fails(make: Callable[[], Agent[Any]], **settings: Any) -> RoutelockError:
    """What a run ends with, plain and streamed."""
    played = await both(make, **settings)
    assert played.error is not None
    assert isinstance(played.error.__cause__, asyncio.CancelledError)
    return played.error


def look() -> Agent[Any]:
    return agent("A", call("look_up", {"order": 1}), "Done.", tools=[look_up])


# -- handlers --


async def answers_late(request: Request) -> AsyncGenerator[HandlerEvent]:
    yield TextDelta("Hel")
    await cancelled()


@pytest.mark.parametrize("answers", [cancelled, answers_late])
async def test_a_handler_has_failed(answers: Any) -> None:
    error = await fails(lambda: Agent("A", model=function_handler(answers, name="mine")))
    assert isinstance(error, HandlerError)
    assert "'mine' of agent 'A' raised a cancellation in turn 1" in str(error)


async def test_another_handler_may_answer_in_its_place() -> None:
    def make() -> Agent[Any]:
        second = ScriptedHandler(["I am here."], name="second")
        return Agent("A", model=function_handler(cancelled), handlers=[second])

    assert (await both(make, fallback=True)).result.final_output == "I am here."


# -- what the app is asked while a run goes on --


async def patient(*given: Any) -> Any:
    """Answer when the others have."""
    await anyio.sleep_forever()


ASKED: dict[str, tuple[Callable[[], Agent[Any]], dict[str, Any]]] = {
    "instructions": (lambda: Agent("A", cancelled, model=ScriptedHandler(["Hi"])), {}),
    "input guardrail of the run": (look, {"input_guardrails": [cancelled]}),
    "output guardrail of the run": (look, {"output_guardrails": [cancelled]}),
    "input guardrail": (lambda: agent("A", "Hi", input_guardrails=[cancelled]), {}),
    "output guardrail": (lambda: agent("A", "Hi", output_guardrails=[cancelled]), {}),
    "guardrail beside another": (look, {"input_guardrails": [patient, cancelled]}),
    "is_enabled": (lambda: agent("A", "Hi", tools=[make_tool(abs_, is_enabled=cancelled)]), {}),
    "on_handoff_received": (
        lambda: agent("A", call("transfer_to_b"), handoffs=[agent("B", "Hi", on_handoff_received=cancelled)]),
        {},
    ),
    "on_limit": (look, {"on_limit": cancelled, "max_turns": 1}),
}


async def abs_(number: int) -> int:
    """Return the absolute value."""
    return abs(number)


@pytest.mark.parametrize("what", ASKED)
async def test_a_function_that_is_asked_has_failed(what: str) -> None:
    make, settings = ASKED[what]
    assert isinstance(await fails(make, **settings), CallbackError)


@pytest.mark.parametrize("option", ["input_filter", "history_mapper"])
async def test_a_filter_has_failed(option: str) -> None:
    """And the next agent is not shown what it may have been there to hide."""
    shaped: dict[str, Any] = {"input_filter": cancelled} if option == "input_filter" else {}
    settings: dict[str, Any] = {} if shaped else {"handoff_history_mapper": cancelled}

    def make() -> Agent[Any]:
        declared = handoff(agent("B", "Hi"), nest_handoff_history=not shaped, **shaped)
        return agent("A", call("transfer_to_b"), handoffs=[declared])

    assert isinstance(await fails(make, **settings), HandoffFilterError)


@pytest.mark.parametrize("option", ["on_handoff", "payload", "accepts"])
async def test_a_transfer_was_not_made(option: str) -> None:
    def make() -> Agent[Any]:
        asked: dict[str, Any] = {"on_handoff_request": cancelled} if option == "accepts" else {}
        options: dict[str, Any] = {} if asked else {option: cancelled}
        b = agent("B", **asked)
        return agent("A", call("transfer_to_b"), "Then I do it.", handoffs=[handoff(b, **options)])

    played = await both(make)
    assert played.result.final_output == "Then I do it."
    assert "CancelledError" in answers_of(played.result)[0]


async def test_a_tools_error_function_has_failed() -> None:
    async def broken() -> str:
        """Fail."""
        raise ValueError("broken")

    def make() -> Agent[Any]:
        return agent("A", call("broken"), tools=[make_tool(broken, on_error=cancelled)])

    assert isinstance(await fails(make), ToolError)


async def test_a_nested_agents_output_function_has_failed() -> None:
    def make() -> Agent[Any]:
        helper = agent("helper", "42")
        return agent("manager", ask(), "Ok.", tools=[helper.as_tool(output=cancelled)])

    played = await both_managers(make)
    assert "raised a cancellation" in answers_of(played.result)[0]


# -- hooks watch, and end nothing --


def all_cancelled(kind: type[Any]) -> Any:
    """Hooks of this kind that all await what was cancelled."""
    names = [name for name in dir(kind) if name.startswith("on_")]
    return type("Broken", (kind,), {name: staticmethod(cancelled) for name in names})()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_hook_ends_nothing(stream: bool) -> None:
    b = agent("B", "Done.", hooks=all_cancelled(AgentHooks))
    calls = [call("look_up", {"order": 1}), call("look_up", {"order": 2})]
    made = agent(
        "A", calls, call("transfer_to_b"), tools=[look_up], handoffs=[b], hooks=all_cancelled(AgentHooks)
    )
    if stream:
        result = await Runner.run_streamed(made, "Hi", hooks=all_cancelled(RunHooks)).drain()
    else:
        result = await Runner.run(made, "Hi", hooks=all_cancelled(RunHooks))
    assert result.final_output == "Done."
    assert len(answers_of(result)) == 3
    assert {problem.kind for problem in result.errors} == {"hook"}
    assert len(result.errors) == 28


# -- and the caller's own word passes, whatever it interrupts --


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("what", ["handler", "guardrail", "hook", "filter", "nested"])
async def test_the_callers_word_passes_and_is_not_replaced(what: str, stream: bool) -> None:
    """The very `CancelledError` of the caller comes out, with its message."""
    reached = anyio.Event()

    async def waits(*given: Any) -> Any:
        reached.set()
        await anyio.sleep_forever()

    class Waits(RunHooks):
        async def on_llm_start(self, context: Any, agent: Any, request: Request) -> None:
            await waits()

    makes: dict[str, Callable[[], Agent[Any]]] = {
        "handler": lambda: Agent("A", model=function_handler(waits)),
        "guardrail": lambda: agent("A", "Hi", input_guardrails=[waits]),
        "hook": lambda: agent("A", "Hi"),
        "filter": lambda: agent(
            "A", call("transfer_to_b"), handoffs=[handoff(agent("B"), input_filter=waits)]
        ),
        "nested": lambda: manager(ask(), helper=Agent("helper", model=function_handler(waits))),
    }
    settings: dict[str, Any] = {
        "hooks": Waits() if what == "hook" else None,
        "run_config": RunConfig(retry=QUICK, fallback=True, on_limit="return"),
    }

    async def go() -> None:
        if stream:
            await Runner.run_streamed(makes[what](), "Hi", **settings).drain()
        else:
            await Runner.run(makes[what](), "Hi", **settings)

    task = asyncio.ensure_future(go())
    await reached.wait()
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
