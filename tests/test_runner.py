"""Three ways to start a run: what they check first, and where each may be used."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio

from routelock import Agent, RunConfig, RunContext, RunHooks, Runner, RunResult, function_tool, handoff
from routelock.errors import ConfigError, MaxTurnsExceeded, NoHandlerError
from routelock.run.events import RunDone
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.run.stream import RunHandle
from routelock.testing import ScriptedHandler, call

Start = Callable[..., RunResult[Any]]


def run(*args: Any, **settings: Any) -> RunResult[Any]:
    return anyio.run(lambda: Runner.run(*args, **settings))


def run_streamed(*args: Any, **settings: Any) -> RunResult[Any]:
    async def drain() -> RunResult[Any]:
        return await Runner.run_streamed(*args, **settings).drain()

    return anyio.run(drain)


ways = pytest.mark.parametrize("start", [run, Runner.run_sync, run_streamed], ids=["run", "sync", "streamed"])


def agent(*replies: Any, **settings: Any) -> Agent[Any]:
    return Agent("A", model=ScriptedHandler(replies or ["Hello."]), **settings)


# -- all three take the same --


@ways
def test_text_becomes_a_users_message(start: Start) -> None:
    assert start(agent(), "Hi").messages[0] == {"role": "user", "content": "Hi"}


@ways
def test_messages_are_taken_as_they_are(start: Start) -> None:
    given = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi", "odd": [1]}]
    result = start(agent(), given)
    assert result.messages[:2] == given
    assert result.input_count == 2


@ways
def test_the_context_reaches_tools_and_instructions_and_no_model(start: Start) -> None:
    @function_tool
    async def who(context: RunContext[dict[str, str]]) -> str:
        """Say who."""
        return context.context["name"]

    script = ScriptedHandler([call("who"), "Done."])
    made = Agent("A", lambda context: f"Greet {context.context['name']}.", model=script, tools=[who])
    result = start(made, "Hi", context={"name": "Ada", "secret": "xyzzy"})
    assert result.messages[2].get("content") == "Ada"
    assert script.requests[0].messages[0].get("content") == "Greet Ada."
    assert "xyzzy" not in str([request.messages for request in script.requests])


@ways
def test_default_limit_is_ten_turns(start: Start) -> None:
    """The eleventh model call never happens."""

    @function_tool
    async def count(number: int) -> int:
        """Count."""
        return number

    script = ScriptedHandler([call("count", {"number": number}) for number in range(20)])
    with pytest.raises(MaxTurnsExceeded, match=r"Max turns \(10\) exceeded") as caught:
        start(Agent("A", model=script, tools=[count]), "Hi")
    assert len(script.requests) == DEFAULT_MAX_TURNS == caught.value.result.usage.requests == 10


@ways
def test_a_run_can_be_given_a_name(start: Start) -> None:
    result = start(agent(), "Hi", run_config=RunConfig(run_id="mine"))
    assert result.context.run_id == "mine"


@ways
def test_runs_without_a_name_have_different_ones(start: Start) -> None:
    assert start(agent(), "Hi").context.run_id != start(agent(), "Hi").context.run_id


# -- what is checked before any model call --


@ways
@pytest.mark.parametrize(
    ("args", "settings", "wrong"),
    [
        (("A", "Hi"), {}, "needs a routelock.Agent to start with, not str"),
        ((agent(), []), {}, "Input is empty"),
        ((agent(), 5), {}, "Input must be text or a list of messages, not int"),
        ((agent(), [{"content": "Hi"}]), {}, "Input message 0 has role None"),
        ((agent(), "Hi"), {"max_turns": 0}, "max_turns must be at least 1, or None"),
        ((Agent("A"), "Hi"), {}, "Agent 'A' has no model"),
        ((agent(handoffs=[Agent("B")]), "Hi"), {}, "Agent 'B' has no model"),
        ((agent(handoffs=["B"]), "Hi"), {}, "hands off to 'B', which is no agent of this run"),
    ],
)
def test_wrong_settings_raise_at_once(
    start: Start, args: tuple[Any, ...], settings: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong):
        start(*args, **settings)


def test_run_streamed_checks_before_it_is_read() -> None:
    with pytest.raises(NoHandlerError):
        Runner.run_streamed(Agent("A"), "Hi")


def test_two_agents_of_one_name_are_refused() -> None:
    """Of two agents with one name, one would silently be hidden."""
    one, other = Agent("B", model=ScriptedHandler([])), Agent("B", model=ScriptedHandler([]))
    with pytest.raises(ConfigError, match="Two different agents are named 'B'"):
        run(agent(handoffs=[one]), "Hi", run_config=RunConfig(agents=[other]))


def test_the_same_agent_may_be_named_twice() -> None:
    other = Agent("B", model=ScriptedHandler(["B here."]))
    made = agent(call("transfer_to_b"), handoffs=[other])
    assert run(made, "Hi", run_config=RunConfig(agents=[other, made])).final_output == "B here."


def test_names_are_found_among_the_runs_agents() -> None:
    """Frozen agents name each other; objects need not connect them."""
    target = Agent("B", model=ScriptedHandler([call("transfer_to_c")]), handoffs=["C"])
    last = Agent("C", model=ScriptedHandler(["C here."]))
    first = agent(call("transfer_to_b"), handoffs=[handoff("B")])
    result = run(first, "Hi", run_config=RunConfig(agents=[target, last]))
    assert result.last_agent is last


# -- run_sync --


def sync() -> str:
    return Runner.run_sync(agent(), "Hi").final_output


def test_run_sync_works_again_and_again() -> None:
    assert [sync() for _ in range(3)] == ["Hello."] * 3


def test_run_sync_works_after_other_loops_were_closed() -> None:
    anyio.run(anyio.sleep, 0)
    asyncio.new_event_loop().close()
    assert sync() == "Hello."


def test_run_sync_works_in_a_thread() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: sync(), range(4))) == ["Hello."] * 4


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_sync_works_in_a_worker_thread_of_a_running_loop(backend: str) -> None:
    """A sync web handler or a sync tool runs in such a thread."""

    async def main() -> str:
        return await anyio.to_thread.run_sync(sync)

    assert anyio.run(main, backend=backend) == "Hello."


@pytest.mark.parametrize("main", [asyncio.run, anyio.run], ids=["asyncio", "anyio"])
def test_run_sync_works_in_asyncios_own_threads(main: Callable[..., Any]) -> None:
    """They inherit the context of the task, and with it what anyio believes about the loop."""

    async def in_thread() -> str:
        return await asyncio.to_thread(sync)

    assert main(in_thread() if main is asyncio.run else in_thread) == "Hello."


def test_run_sync_works_in_a_thread_with_a_copied_context() -> None:
    said: list[str] = []

    async def main() -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: said.append(context.run(sync)))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)

    anyio.run(main)
    assert said == ["Hello."]


@pytest.mark.parametrize("main", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_run_sync_inside_a_running_loop_says_what_to_do(main: Callable[..., Any]) -> None:
    async def inside() -> None:
        with pytest.raises(ConfigError, match=r"await Runner\.run"):
            sync()

    main(inside() if main is asyncio.run else inside)


def test_run_sync_keeps_the_callers_context_variables() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    variable.set("set")
    made = Agent("A", lambda: variable.get(), model=(script := ScriptedHandler(["Hello."])))
    Runner.run_sync(made, "Hi")
    assert script.requests[0].messages[0].get("content") == "set"


def test_run_sync_raises_what_the_run_raises() -> None:
    with pytest.raises(MaxTurnsExceeded) as caught:
        Runner.run_sync(agent(call("nothing"), call("nothing")), "Hi", max_turns=1)
    assert caught.value.result.stop_reason == "error"


# -- the result of the stream is the result of the run --


@pytest.mark.anyio
async def test_the_last_event_has_the_result() -> None:
    stream = Runner.run_streamed(agent(), "Hi")
    *_, last = [event async for event in stream]
    assert isinstance(last, RunDone)
    assert last.result == stream.result


@pytest.mark.parametrize("wrong", [5, RunHandle])
def test_a_handle_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="handle must be a RunHandle of its own for each run, not "):
        Runner.run_sync(agent("Hi"), "Hi", handle=wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_turns": "5"}, "max_turns must be at least 1"),
        ({"run_config": {"max_handoffs": 1}}, "run_config must be a RunConfig, not dict"),
        ({"hooks": RunHooks}, r"pass RunHooks\(\), not the class"),
        ({"hooks": 5}, "hooks must be a RunHooks, not 5"),
        ({"max_turns": True}, "max_turns must be at least 1, or None for no limit, not True"),
    ],
)
def test_arguments_of_the_wrong_type_raise_at_once(wrong: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Runner.run_sync(Agent("A", model=ScriptedHandler(["Hi."])), "Hi", **wrong)
