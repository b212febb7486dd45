"""What any `routelock.run.Executor` must do, as tests: subclass a contract in the test suite of your engine.

    class TestMyEngine(DurableExecutorContract):
        @pytest.fixture(autouse=True)
        def folder(self, tmp_path):
            self.path = tmp_path / "steps.db"

        async def live(self, run_id, use):
            with MyEngine(self.path) as engine:
                await use(engine.executor_of(run_id))

pytest and unittest collect the tests of the subclass, which are plain functions and need no plugin. See
docs/engines.md.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import anyio
import anyio.lowlevel

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError, ProviderTimeout, RateLimited, RoutelockError, ToolError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.retry import Retry
from routelock.run.config import RunConfig
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.testing.executor_scenes import Killed, Model, World, desk, is_killed, tool_of
from routelock.testing.scripted import call

__all__ = ["DurableExecutorContract", "ExecutorContract", "StreamingExecutorContract", "Use"]


T = TypeVar("T")

Use = Callable[[Executor], Awaitable[None]]
"""What happens in one life of a process. It always raises an exception, as the process is killed at its end."""

_LONGEST = 200
"""More moments than the longest scene has."""

_PAUSES = (0.02, 0.1, 0.5, 2.0, 8.0)
"""Seconds in which an engine records a finished tool; the first that is enough ends the test."""


async def _no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


_QUICK = Retry(attempts=3, sleep=_no_sleep, jitter=lambda: 0.0)


def _check(holds: bool, expected: str, found: object, why: str) -> None:
    if not holds:
        raise AssertionError(f"Expected: {expected}.\nFound: {found}\nWhy it matters: {why}")


def _check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], expected: str, why: str) -> None:
    differ = [
        f"{key}: {found.get(key)!r}\n  instead of {each!r}"
        for key, each in wanted.items()
        if found.get(key) != each
    ]
    _check(not differ, expected, "\n".join(["another one.", *differ]), why)


def _facts(result: RunResult[Any]) -> dict[str, Any]:
    """Return what two runs must share."""
    handoffs = [(each.source, each.target, each.turn, each.status) for each in result.handoffs]
    return {
        "final output": result.final_output,
        "messages": result.to_input_list(),
        "usage": result.usage,
        "handoffs": handoffs,
        "errors": [(each.kind, each.agent, each.turn, each.message) for each in result.errors],
        "stop reason": result.stop_reason,
        "nested": {call_id: _facts(inner) for call_id, inner in result.nested.items()},
    }


class _Life(Generic[T]):
    """One life of a process, and what came of it."""

    def __init__(self, script: Callable[[Executor], Awaitable[T]]) -> None:
        self._script = script
        self.is_used = False
        self.results: list[T] = []
        """The result, if the process was not killed before."""
        self.error: Exception | None = None

    async def use(self, executor: Executor) -> None:
        """Play the life, and be killed."""
        if self.is_used:  # the engine tries again before the next life begins
            raise Killed
        self.is_used = True
        try:
            self.results.append(await self._script(executor))
        except Exception as error:
            self.error = error
        except BaseException as error:
            if not is_killed(error):
                raise
        raise Killed


class _Watched:
    """An executor that notes its calls."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.calls: list[Call] = []

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        self.calls.append(call)
        return self._inner.stream(call, body)

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        self.calls += calls
        return await self._inner.gather(calls, body)

    def keys(self) -> list[tuple[str, str]]:
        return [(call.run_id, call.key) for call in self.calls]


class _Dies(RunHooks):
    """Lets a process die when so many things have happened in its run."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def _happened(self, *given: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Killed

    # not on_tool_end: a tool is done when its hooks are
    on_llm_start = on_llm_end = on_tool_start = on_handoff = on_agent_end = _happened  # type: ignore[assignment]


class ExecutorContract:
    """What an executor must do, also one that records nothing. Subclass it, and write `live`."""

    backend: ClassVar[str] = "asyncio"
    """The event loop in which `live` is awaited: ``"asyncio"`` or ``"trio"``."""
    streamed: ClassVar[bool] = False
    """Whether the runs are streamed. An engine that finds steps by their position needs that: a streamed run
    makes the steps of agents as tools one after the other."""

    async def live(self, run_id: str, use: Use) -> None:
        """Play one life of a process that has a run: make an executor for the run, and await ``use(executor)``.

        The process dies at the end of ``use``, which always raises. The engine must not take that for the end
        of the run. It may be raised here as well.

        A test calls this again with the same ``run_id`` for another process that takes up the run: make
        everything anew, and keep only what the engine has stored. Each test has run ids of its own.

        Args:
            run_id: the id of the run.
            use: what happens in this life, within the event loop in which the engine runs agents.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method live(run_id, use).")

    # How the tests play

    def _life(self, run_id: str, script: Callable[[Executor], Awaitable[T]]) -> list[T]:
        """Play one life, and return a list with what the script returned; empty if it was killed before."""
        life = _Life(script)
        try:
            anyio.run(self.live, run_id, life.use, backend=self.backend)
        except BaseException as error:
            if not is_killed(error) and life.error is None:
                raise
        if life.error is not None:
            raise life.error
        _check(
            life.is_used,
            "that `live` awaits use(executor)",
            "it did not.",
            "without it, no run goes through the engine.",
        )
        return life.results

    async def _run(
        self,
        agent: Agent[Any],
        executor: Executor | None,
        run_id: str,
        hooks: RunHooks | None = None,
        config: RunConfig | None = None,
    ) -> RunResult[Any]:
        config = replace(config or RunConfig(), executor=executor, run_id=run_id, retry=_QUICK)
        if self.streamed:
            return await Runner.run_streamed(agent, "Hi", hooks=hooks, run_config=config).drain()
        return await Runner.run(agent, "Hi", hooks=hooks, run_config=config)

    def _result(
        self, run_id: str, agent: Agent[Any], hooks: RunHooks | None = None, config: RunConfig | None = None
    ) -> RunResult[Any] | None:
        """Return the result of a run in one life; None if it was killed."""

        async def script(executor: Executor) -> RunResult[Any]:
            return await self._run(agent, executor, run_id, hooks, config)

        results = self._life(run_id, script)
        return results[0] if results else None

    def _end(self, run_id: str, agent: Agent[Any], config: RunConfig | None = None) -> RunResult[Any]:
        """Return the result of a run that must come to its end in this life."""
        result = self._result(run_id, agent, config=config)
        assert result is not None, "The run was killed in a life in which the test kills nothing."
        return result

    def _alone(self, agent: Agent[Any], run_id: str) -> RunResult[Any]:
        """Return the result of a run without an executor."""
        config = RunConfig(fallback=True, run_id=run_id, retry=_QUICK)
        results: list[RunResult[Any]] = []

        async def run() -> None:
            results.append(await Runner.run(agent, "Hi", run_config=config))

        anyio.run(run, backend=self.backend)
        return results[0]

    # The tests

    def test_a_run_has_the_same_result_as_without_an_executor(self) -> None:
        run_id, alone, through = _new_id(), World(), World()
        wanted = self._alone(desk(alone), run_id)
        found = self._end(run_id, desk(through), RunConfig(fallback=True))
        why = "an engine may say when and where a step runs, and not what comes of it."
        _check_same(_facts(found), _facts(wanted), "the result of the same run without an executor", why)
        _check(
            sorted(through.done) == sorted(alone.done),
            f"these effects of tools, each once: {sorted(alone.done)}",
            sorted(through.done),
            "a tool that runs twice without a crash pays twice.",
        )

    def test_outcomes_are_in_the_order_of_the_calls(self) -> None:
        run_id = _new_id()
        calls = [_tool_call(run_id, number) for number in range(3)]

        async def body(call: Call) -> Outcome:
            for _ in range(9 - 3 * call.args["number"]):  # the last one ends first
                await anyio.lowlevel.checkpoint()
            return _outcome(call.key)

        (found,) = self._life(run_id, lambda executor: executor.gather(calls, body))
        _check(
            list(found) == [_outcome(call.key) for call in calls],
            f"one outcome for each call, in their order: {[call.key for call in calls]}",
            found,
            "outcomes have no name on them, so a model would read the answer to another call.",
        )

    def test_each_function_gets_its_own_call(self) -> None:
        run_id, given = _new_id(), list[Call]()
        calls = [_tool_call(run_id, 0), replace(_tool_call(run_id, 1), timeout=30.0)]
        model = _model_call(run_id)

        async def tool(call: Call) -> Outcome:
            given.append(call)
            return _outcome(call.key)

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            given.append(call)
            yield MessageDone(message={"role": "assistant", "content": "Hi."})

        async def script(executor: Executor) -> None:
            await _read(executor, model, ask)
            await executor.gather(calls, tool)

        self._life(run_id, script)
        wanted = [model, *calls]
        _check(
            sorted(given, key=_key) == sorted(wanted, key=_key),
            f"that each function is called with the call that belongs to it: {wanted}",
            given,
            "a function finds what it has to do by the key, so another key runs the wrong tool.",
        )

    def test_a_reply_comes_whole(self) -> None:
        run_id = _new_id()
        done = MessageDone(message={"role": "assistant", "content": "One two."}, finish_reason="stop")

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            for event in (TextDelta("One "), TextDelta("two."), done):
                yield event

        (events,) = self._life(run_id, lambda executor: _read(executor, _model_call(run_id), ask))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        _check(
            events[-1:] == [done] and text in ("", "One two."),
            "the MessageDone at the end, and before it either all deltas or none",
            events,
            "the run acts on the reply, and makes deltas for the reader of a stream itself only if there are none.",
        )

    def test_a_model_error_keeps_its_class_and_its_fields(self) -> None:
        run_id = _new_id()
        error = RateLimited("Slow down.", status=429, retry_after=3.0, provider="vendor", model="m")

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            yield TextDelta("I was about to ")
            raise error

        found = self._raised(run_id, _model_call(run_id), ask)
        _check(
            isinstance(found, RateLimited) and _fields(found) == _fields(error),
            f"RateLimited with {_fields(error)}",
            repr(found),
            "fallback and the app's own handling of errors decide by the class and by these fields.",
        )

    def test_an_error_that_ends_the_run_is_raised_as_it_is(self) -> None:
        run_id = _new_id()

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            raise ConfigError("The wiring is wrong.")
            yield

        found = self._raised(run_id, _model_call(run_id), ask)
        _check(
            isinstance(found, ConfigError),
            "the ConfigError of the function",
            repr(found),
            "as an error of the model it would be hidden by a fallback, or tried for ever by the engine.",
        )

    def test_a_tool_that_ends_the_run_ends_it(self) -> None:
        world = World()

        async def fail() -> str:
            raise ValueError("no")

        agent = Agent(
            "A",
            model=Model(world, "m", {1: [call("stop", id="s")]}),
            tools=[tool_of(world, "stop", fail, on_error="raise")],
        )
        found: object = None
        try:
            found = self._end(_new_id(), agent)
        except RoutelockError as error:
            found = error
        _check(
            isinstance(found, ToolError),
            "ToolError",
            repr(found),
            'a tool with on_error="raise" says that the run must not go on after its failure.',
        )

    def test_closing_a_stream_closes_the_model_call(self) -> None:
        run_id, closed = _new_id(), list[str]()

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            try:
                yield TextDelta("One ")
                yield MessageDone(message={"role": "assistant", "content": "One two."})
            finally:
                closed.append(call.key)

        async def script(executor: Executor) -> list[str]:
            async with aclosing(executor.stream(_model_call(run_id), ask)) as events:
                await anext(events)
            return list(closed)

        (found,) = self._life(run_id, script)
        _check(
            len(found) == 1,
            "that the model call is closed when the stream is",
            "it is still open.",
            "an open call costs tokens and a connection that nothing reads.",
        )

    def test_a_cancelled_run_stops_its_tool(self) -> None:
        world, stopped = World(), list[str]()
        agent = Agent("A", model=Model(world, "m", {1: [call("hang", id="h")]}), tools=[])

        async def script(executor: Executor) -> bool:
            with anyio.CancelScope() as scope:
                hang = tool_of(world, "hang", partial(_hang, scope, stopped))
                await self._run(replace(agent, tools=[hang]), executor, run_id)
            return scope.cancelled_caught

        run_id = _new_id()
        found = self._life(run_id, script)
        _check(
            found == [True] and stopped == ["stopped"],
            "that the cancellation reaches the tool, and then ends the run",
            f"the tool was {'stopped' if stopped else 'not stopped'}, the run {'ended' if found else 'did not'}.",
            "a run that cannot be cancelled goes on to pay after its user has left.",
        )

    def test_keys_are_unique_in_a_run_and_arguments_are_json(self) -> None:
        calls = self._watch(_new_id(), desk(World())).calls
        keys = [(call.run_id, call.key) for call in calls]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        _check(
            not twice and bool(json.dumps([dict(call.args) for call in calls])),
            "that each step of a run has a key of its own, and arguments in JSON",
            f"these came twice: {twice}",
            "an engine would answer the second step with the record of the first.",
        )

    def _watch(self, run_id: str, agent: Agent[Any]) -> _Watched:
        """Return an executor that has noted the calls of a run."""

        async def script(executor: Executor) -> _Watched:
            watched = _Watched(executor)
            await self._run(agent, watched, run_id, config=RunConfig(fallback=True))
            return watched

        return self._life(run_id, script)[0]

    def _raised(
        self, run_id: str, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> Exception | None:
        """Return what a model step raises."""

        async def script(executor: Executor) -> Exception | None:
            try:
                await _read(executor, call, body)
            except Exception as error:
                return error
            return None

        return self._life(run_id, script)[0]


class DurableExecutorContract(ExecutorContract):
    """What an executor must do that records steps, so that another process can take up a run."""

    def test_a_replay_has_the_same_result_and_does_nothing(self) -> None:
        run_id, world, config = _new_id(), World(), RunConfig(fallback=True)
        first = self._end(run_id, desk(world), config)
        before = world.copy()
        again = self._end(run_id, desk(world), config)
        _check_same(
            _facts(again),
            _facts(first),
            "the result of the first life",
            "a process that takes up a run goes on from there: a difference sends it another way.",
        )
        _check(
            world.asked == before.asked and world.done == before.done,
            "that no model is asked and no tool runs, because every step is recorded",
            f"models: {world.asked[len(before.asked) :]}, tools: {world.done[len(before.done) :]}",
            "a step that is made again costs tokens, or pays twice.",
        )

    def test_steps_have_the_same_keys_in_each_life(self) -> None:
        run_id, world = _new_id(), World()
        first, second = (sorted(self._watch(run_id, desk(world)).keys()) for _ in range(2))
        _check(
            first == second,
            f"the keys of the first life: {first}",
            second,
            "an engine finds a record by its key; another key is a step that was never made.",
        )

    def test_a_run_that_is_killed_at_any_moment_has_the_same_result(self) -> None:
        alone, config = World(), RunConfig(fallback=True)
        whole = _facts(self._alone(desk(alone), "whole"))
        for moment in range(1, _LONGEST):
            run_id, world, dies = _new_id(), World(), _Dies(moment)
            self._result(run_id, desk(world), dies, config)
            result = self._end(run_id, desk(world), config)
            where = f"in a life after a kill at moment {moment}"
            _check_same(
                _facts(result),
                whole,
                f"the result of a run that was never killed, {where}",
                "a crash must not change what a user is told.",
            )
            self._check_effects(world, alone, where)
            if dies.left > 0:  # this one was not killed
                return

    def _check_effects(self, world: World, alone: World, where: str) -> None:
        names, wanted = ({name for name, _ in each.done} for each in (world, alone))
        _check(names == wanted, f"effects of these tools {where}: {wanted}", names, "a lost tool is lost work.")
        keys = {name: {key for other, key in world.done if other == name} for name in names}
        _check(
            all(len(each) == 1 for each in keys.values()),
            f"one idempotency key for each call {where}",
            keys,
            "a payment API takes a second key for a second payment.",
        )
        again = len(world.done) - len(alone.done)
        _check(
            again <= 2,  # of the three calls of one reply, the third is the one that is killed
            f"at most two tools again {where}, those that were cut off",
            f"{again} of {world.done}",
            "only a tool that was cut off may run again.",
        )

    def test_a_tool_that_was_cut_off_runs_again_under_the_same_idempotency_key(self) -> None:
        run_id, world = _new_id(), World()
        self._killed(run_id, _paying(world, _die))
        self._end(run_id, _paying(world))
        keys = world.keys_of("pay")
        _check(
            len(keys) == 2 and keys[0] == keys[1] and run_id in keys[0],
            "the tool again, under the key that it had at first, with the id of the run in it",
            keys,
            "it is not known whether it had an effect, and by this key alone the effect can be made once.",
        )
        _check(
            world.asked == ["m in turn 1", "m in turn 2"],
            "one model call in each turn",
            world.asked,
            "the reply of turn 1 was complete. Another one may ask for other tools.",
        )

    def test_a_tool_that_ended_does_not_run_again(self) -> None:
        run_id, world = _new_id(), World()
        replies = {1: [call("pay", id="p")], 2: [call("mail", id="m")], 3: "Done."}

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            tools = [tool_of(world, "pay"), tool_of(world, "mail", then)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        self._killed(run_id, agent(_die))
        self._end(run_id, agent(None))
        _check(
            len(world.keys_of("pay")) == 1,
            "that the tool of the turn before the kill does not run again",
            f"it ran {len(world.keys_of('pay'))} times.",
            "a recorded step is never made again; that is what a durable run is.",
        )

    def test_a_recorded_model_error_comes_again(self) -> None:
        run_id, world, config = _new_id(), World(), RunConfig(fallback=True)
        self._killed(run_id, _with_fallback(world, _refuse, _die), config)
        result = self._end(run_id, _with_fallback(world, _answer), config)
        _check(
            world.asked.count("first in turn 1") == 1 and result.final_output == "Paid.",
            "that the model that failed is not asked again",
            f"it was asked {world.asked.count('first in turn 1')} times; the output is {result.final_output!r}",
            "the run went on with its fallback. Another answer now would send it another way.",
        )
        errors = [problem.error for problem in result.errors if isinstance(problem.error, RateLimited)]
        _check(
            [_fields(error) for error in errors] == [_fields(_REFUSED)],
            f"RateLimited with {_fields(_REFUSED)} in result.errors",
            [problem.error for problem in result.errors],
            "the app is told of the error as if there had been no crash.",
        )

    def test_a_model_that_timed_out_is_not_asked_again(self) -> None:
        run_id, world = _new_id(), World()
        config = RunConfig(fallback=True, turn_timeout=0.05)
        self._killed(run_id, _with_fallback(world, _never, _die), config)
        result = self._end(run_id, _with_fallback(world, _answer), RunConfig(fallback=True))
        kinds = [type(problem.error) for problem in result.errors]
        _check(
            world.asked.count("first in turn 1") == 1 and kinds == [ProviderTimeout],
            "that the time that was over is over in the next life, too",
            f"models: {world.asked}, errors: {kinds}",
            "the run went on with its fallback; the slow model may be quick now, and say something else.",
        )

    def test_failed_attempts_are_counted_again(self) -> None:
        run_id, world = _new_id(), World()

        async def busy_once() -> Any:
            if world.asked.count("m in turn 1") == 1:
                raise RateLimited("busy", status=429)
            return [call("pay", id="p")]

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            return Agent(
                "A", model=Model(world, "m", {1: busy_once, 2: "Done."}), tools=[tool_of(world, "pay", then)]
            )

        self._killed(run_id, agent(_die))
        result = self._end(run_id, agent(None))
        _check(
            result.usage.requests == 3,
            "3 requests: one that failed, one that was made again, and one after the tool",
            result.usage,
            "limits on requests and cost hold for all lives of a run together.",
        )

    def test_a_recorded_tool_error_comes_again(self) -> None:
        run_id, world = _new_id(), World()
        replies = {1: [call("fail", id="f")], 2: [call("mail", id="m")], 3: "Done."}

        async def fail() -> str:
            raise ValueError("the till is closed")

        def agent(first: Any, second: Any) -> Agent[Any]:
            tools = [tool_of(world, "fail", first), tool_of(world, "mail", second)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        self._killed(run_id, agent(fail, _die))
        result = self._end(run_id, agent(None, None))
        answers = [message.get("content") for message in result.messages if message["role"] == "tool"]
        _check(
            len(world.keys_of("fail")) == 1 and "the till is closed" in str(answers[0]),
            "that the tool that failed does not run again, and the model is told of the same failure",
            f"it ran {len(world.keys_of('fail'))} times, and the model is told {answers[0]!r}",
            "the model has acted on the failure. A success now does not fit to what it did.",
        )

    def test_an_error_that_ends_the_run_is_not_recorded(self) -> None:
        run_id, world, wrong = _new_id(), World(), True

        async def answer() -> str:
            if wrong:
                raise ConfigError("The wiring is wrong.")
            return "Mended."

        agent = Agent("A", model=Model(world, "m", {1: answer}))
        found: object = None
        try:
            found = self._end(run_id, agent)
        except ConfigError:
            wrong = False
            found = self._end(run_id, agent).final_output
        _check(
            found == "Mended.",
            "a ConfigError in the first life, and the answer in the second",
            repr(found),
            "such an error is mended by a new version of the app, which then goes on with its runs.",
        )

    def test_a_nested_run_goes_on_in_its_middle(self) -> None:
        run_id, world = _new_id(), World()

        def boss(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            within = {1: [call("look", id="l")], 2: [call("pay", id="p")], 3: "Paid."}
            tools = [tool_of(world, "look"), tool_of(world, "pay", then)]
            clerk = Agent("clerk", model=Model(world, "clerk", within), tools=tools)
            outer = Model(world, "boss", {1: [call("clerk", {"input": "Pay."}, id="c")], 2: "All paid."})
            return Agent("boss", model=outer, tools=[clerk.as_tool()])

        self._killed(run_id, boss(_die))
        result = self._end(run_id, boss(None))
        looked, paid = world.keys_of("look"), world.keys_of("pay")
        _check(
            result.final_output == "All paid." and len(looked) == 1 and len(paid) == 2 and paid[0] == paid[1],
            "that the agent that is called as a tool goes on with its second turn",
            f"its first tool ran {len(looked)} times; the second under the keys {paid}",
            "the steps of a nested run are steps of the run, under keys with the key of the call in front.",
        )

    def test_a_tool_is_recorded_while_another_one_of_its_reply_still_runs(self) -> None:
        times = 0
        for pause in _PAUSES:
            run_id, world = _new_id(), World()
            self._killed(run_id, _two_at_once(world, partial(_die_after, pause)))
            self._end(run_id, _two_at_once(world, None))
            times = len(world.keys_of("quick"))
            if times == 1:
                return
        _check(
            False,
            "that a tool that has ended does not run again if the process dies during a slow one beside it",
            f"it ran {times} times, though the process lived for {_PAUSES[-1]:g} s after its end.",
            "tools of one reply may take minutes; each has to be recorded as soon as it ends.",
        )

    def test_a_cancelled_run_goes_on(self) -> None:
        run_id, world, stopped = _new_id(), World(), list[str]()
        replies = {1: [call("pay", id="p")], 2: [call("hang", id="h")], 3: "Done."}

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            tools = [tool_of(world, "pay"), tool_of(world, "hang", then)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        async def cancelled(executor: Executor) -> None:
            with anyio.CancelScope() as scope:
                await self._run(agent(partial(_hang, scope, stopped)), executor, run_id)

        self._life(run_id, cancelled)
        result = self._end(run_id, agent(None))
        paid, hung = world.keys_of("pay"), world.keys_of("hang")
        _check(
            result.final_output == "Done." and len(paid) == 1 and len(hung) == 2 and hung[0] == hung[1],
            "that a recorded tool does not run again, and the cancelled one does, under its key",
            f"output {result.final_output!r}, recorded tool {paid}, cancelled tool {hung}",
            "a deployment cancels runs, and the next version takes them up.",
        )

    def test_runs_do_not_mix(self) -> None:
        first, second = _new_id(), _new_id()
        found: list[Any] = []
        for run_id, text in ((first, "First."), (second, "Second."), (first, "Never.")):
            found.append(self._end(run_id, Agent("A", model=Model(World(), "m", {1: text}))).final_output)
        _check(
            found == ["First.", "Second.", "First."],
            "First., Second., and First. again from its record",
            found,
            "two runs have the same keys: a record belongs to the run_id and the key of its call.",
        )

    def _killed(self, run_id: str, agent: Agent[Any], config: RunConfig | None = None) -> None:
        """Play a life in which a tool kills the process."""
        result = self._result(run_id, agent, config=config)
        _check(
            result is None,
            "that the process dies in the middle of a tool",
            "a result.",
            "an engine must not take an end of the process for an outcome of the step.",
        )


class StreamingExecutorContract(DurableExecutorContract):
    """What a durable executor must do that shows what happens to readers elsewhere. Write `shown`, too."""

    async def shown(self, run_id: str, offset: int) -> Sequence[str]:
        """Return the text in each part of a run that a reader is shown from an offset on.

        It is awaited after the last life of the run, in an event loop of its own.

        Args:
            run_id: the id of the run.
            offset: the number of parts that the reader has seen.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method shown(run_id, offset).")

    def test_a_reader_goes_on_from_any_offset(self) -> None:
        run_id, world = _new_id(), World()
        self._killed(run_id, Agent("A", model=Model(world, "m", {1: _breaking_off}, pause=0.06)))
        self._end(run_id, Agent("A", model=Model(world, "m", {1: "One two three."}, pause=0.06)))
        every = self._shown(run_id, 0)
        _check(
            "".join(every).endswith("One two three."),
            "the text of the whole reply at the end of what is shown",
            every,
            "a reader has nothing but these parts.",
        )
        for offset in range(len(every) + 1):
            _check(
                self._shown(run_id, offset) == every[offset:],
                f"the parts from offset {offset} on: {every[offset:]}",
                self._shown(run_id, offset),
                "a reader that lost its connection would miss text, or show it twice.",
            )

    def _shown(self, run_id: str, offset: int) -> list[str]:
        found: list[str] = []

        async def read() -> None:
            found.extend(await self.shown(run_id, offset))

        anyio.run(read, backend=self.backend)
        return found


def _new_id() -> str:
    return f"contract-{os.urandom(8).hex()}"


def _tool_call(run_id: str, number: int) -> Call:
    return Call(run_id, f"t1.tool.work.c{number}", "tool", {"name": "work", "number": number})


def _model_call(run_id: str) -> Call:
    return Call(run_id, "t1.model.A", "model", {"agent": "A", "handler": "m"})


def _outcome(text: str) -> Outcome:
    return {"ok": {"output": text, "usage": None}, "stop": False}


def _key(call: Call) -> str:
    return call.key


async def _read(
    executor: Executor, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
) -> list[HandlerEvent]:
    async with aclosing(executor.stream(call, body)) as events:
        return [event async for event in events]


_REFUSED = RateLimited("Slow down.", status=429, retry_after=3.0, provider="vendor", model="m", retryable=False)


def _fields(error: RateLimited) -> dict[str, Any]:
    names = ("status", "retry_after", "provider", "model", "retryable")
    return {"message": str(error), **{name: getattr(error, name) for name in names}}


async def _die() -> str:
    raise Killed


async def _die_after(seconds: float) -> str:
    await anyio.sleep(seconds)
    raise Killed


async def _never() -> str:
    await anyio.sleep_forever()
    return ""


async def _answer() -> str:
    return "It is another answer."


async def _refuse() -> str:
    raise _REFUSED


async def _breaking_off() -> Any:
    return (TextDelta("One "), TextDelta("tw"), Killed())


async def _hang(scope: anyio.CancelScope, stopped: list[str]) -> str:
    scope.cancel()
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        stopped.append("stopped")
        raise
    return "never"


def _paying(world: World, then: Callable[[], Awaitable[str]] | None = None) -> Agent[Any]:
    model = Model(world, "m", {1: [call("pay", id="p")], 2: "Paid."})
    return Agent("A", model=model, tools=[tool_of(world, "pay", then)])


def _with_fallback(
    world: World, first: Callable[[], Awaitable[Any]], then: Callable[[], Awaitable[str]] | None = None
) -> Agent[Any]:
    """Return an agent whose first model is said what to do, and whose second one pays."""
    second = Model(world, "second", {1: [call("pay", id="p")], 2: "Paid."})
    handlers = [Model(world, "first", {1: first, 2: first}), second]
    return Agent("A", handlers=cast("Any", handlers), tools=[tool_of(world, "pay", then)])


def _two_at_once(world: World, then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
    model = Model(world, "m", {1: [call("quick", id="q"), call("slow", id="s")], 2: "Done."})
    return Agent("A", model=model, tools=[tool_of(world, "quick"), tool_of(world, "slow", then)])
