"""Contracts of a `routelock.run.Executor` as tests: subclass one in the test suite of your engine.

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
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import anyio
import anyio.lowlevel

from routelock.agents.agent import Agent
from routelock.errors import ConfigError, ProviderTimeout, RateLimited, RoutelockError, ToolError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.run.config import RunConfig
from routelock.run.executor import Call, Executor, Outcome
from routelock.testing.executor_lives import (
    Dies,
    Lives,
    Use,
    check,
    check_same,
    facts,
    model_call,
    new_id,
    outcome,
    read,
    tool_call,
)
from routelock.testing.executor_scenes import (
    Model,
    World,
    answer,
    break_off,
    die,
    die_after,
    fields_of,
    hang,
    never,
    paying,
    refuse,
    refused,
    support_team,
    tool_of,
    two_at_once,
    with_fallback,
)
from routelock.testing.scripted import call

__all__ = ["DurableExecutorContract", "ExecutorContract", "StreamingExecutorContract", "Use"]


_LONGEST = 200
"""A number of moments that no scene reaches."""


class ExecutorContract(Lives):
    """The contract of every executor, even of one that records nothing. Subclass it, and write `live`."""

    patience: ClassVar[Sequence[float]] = (0.02, 0.1, 0.5, 2.0, 8.0)
    """Seconds that a test gives the engine to record a tool that has ended. It tries one after the other, and
    the first that is enough ends the test. The longest is the time to cancel a tool, too."""

    def test_a_run_has_the_same_result_as_without_an_executor(self) -> None:
        """The engine does not change the result of a run."""
        run_id, alone, through = new_id(), World(), World()
        wanted = self._alone(support_team(alone), run_id)
        found = self._end(run_id, support_team(through), RunConfig(fallback=True))
        why = "an engine may decide when and where a step runs, and must not change its result."
        check_same(facts(found), facts(wanted), "the result of the same run without an executor", why)
        check(
            sorted(through.done) == sorted(alone.done),
            f"these effects of tools, each once: {sorted(alone.done)}",
            sorted(through.done),
            "a tool that runs twice without a crash pays twice.",
        )

    def test_outcomes_are_in_the_order_of_the_calls(self) -> None:
        """`Executor.gather` returns one outcome for each call, in their order."""
        run_id = new_id()
        calls = [tool_call(run_id, number) for number in range(3)]

        async def body(call: Call) -> Outcome:
            for _ in range(9 - 3 * call.args["number"]):  # the last one ends first
                await anyio.lowlevel.checkpoint()
            return outcome(call.key)

        (found,) = self._play(run_id, lambda executor: executor.gather(calls, body))
        check(
            list(found) == [outcome(call.key) for call in calls],
            f"one outcome for each call, in their order: {[call.key for call in calls]}",
            found,
            "outcomes have no name on them, so a model would read the answer to another call.",
        )

    def test_each_function_gets_its_own_call(self) -> None:
        """Each function is called with the call that belongs to it."""
        run_id, given = new_id(), list[Call]()
        calls = [tool_call(run_id, 0), replace(tool_call(run_id, 1), timeout=30.0)]
        model = model_call(run_id)

        async def tool(call: Call) -> Outcome:
            given.append(call)
            return outcome(call.key)

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            given.append(call)
            yield MessageDone(message={"role": "assistant", "content": "Hi."})

        async def script(executor: Executor) -> None:
            await read(executor, model, ask)
            await executor.gather(calls, tool)

        self._play(run_id, script)
        wanted = [model, *calls]
        check(
            sorted(given, key=lambda call: call.key) == sorted(wanted, key=lambda call: call.key),
            f"that each function is called with the call that belongs to it: {wanted}",
            given,
            "a function finds what it has to do by the key, so another key runs the wrong tool.",
        )

    def test_a_reply_comes_whole(self) -> None:
        """A reply has all of its deltas or none, and then its message."""
        run_id = new_id()
        done = MessageDone(message={"role": "assistant", "content": "One two."}, finish_reason="stop")

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            for event in (TextDelta("One "), TextDelta("two."), done):
                yield event

        (events,) = self._play(run_id, lambda executor: read(executor, model_call(run_id), ask))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        check(
            events[-1:] == [done] and text in ("", "One two."),
            "the MessageDone at the end, and before it either all deltas or none",
            events,
            "the run acts on the reply, and makes the deltas for a reader only if there are none.",
        )

    def test_a_model_error_keeps_its_class_and_its_fields(self) -> None:
        """An error of a provider is raised with its class, status and delay."""
        run_id = new_id()
        error = RateLimited("Slow down.", status=429, retry_after=3.0, provider="vendor", model="m")

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            yield TextDelta("I was about to ")
            raise error

        found = self._raised(run_id, model_call(run_id), ask)
        check(
            isinstance(found, RateLimited) and fields_of(found) == fields_of(error),
            f"RateLimited with {fields_of(error)}",
            repr(found),
            "fallback and the app's own handling of errors decide by the class and by these fields.",
        )

    def test_an_error_that_ends_the_run_is_raised_as_it_is(self) -> None:
        """An error that is no answer of a model is raised unchanged."""
        run_id = new_id()

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            raise ConfigError("The wiring is wrong.")
            yield

        found = self._raised(run_id, model_call(run_id), ask)
        check(
            isinstance(found, ConfigError),
            "the ConfigError of the function",
            repr(found),
            "as an error of the model it would be hidden by a fallback, or tried for ever by the engine.",
        )

    def test_a_tool_that_ends_the_run_ends_it(self) -> None:
        """A tool with ``on_error="raise"`` ends the run."""
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
            found = self._end(new_id(), agent)
        except RoutelockError as error:
            found = error
        check(
            isinstance(found, ToolError),
            "ToolError",
            repr(found),
            'a tool with on_error="raise" says that the run must not go on after its failure.',
        )

    def test_closing_a_stream_closes_the_model_call(self) -> None:
        """A stream that is left early leaves no model call open."""
        run_id, closed = new_id(), list[str]()

        async def ask(call: Call) -> AsyncGenerator[HandlerEvent]:
            try:
                yield TextDelta("One ")
                yield MessageDone(message={"role": "assistant", "content": "One two."})
            finally:
                closed.append(call.key)

        async def script(executor: Executor) -> list[str]:
            async with aclosing(executor.stream(model_call(run_id), ask)) as events:
                await anext(events)
            return list(closed)

        (found,) = self._play(run_id, script)
        check(
            len(found) == 1,
            "that the model call is closed when the stream is",
            "it is still open.",
            "an open call costs tokens and a connection that nothing reads.",
        )

    def test_a_cancelled_run_stops_its_tool(self) -> None:
        """A cancellation reaches the tool that runs."""
        world, stopped = World(), list[str]()
        agent = Agent("A", model=Model(world, "m", {1: [call("hang", id="h")], 2: "Done."}), tools=[])

        async def script(executor: Executor) -> bool:
            with anyio.CancelScope() as scope:
                hanging = tool_of(world, "hang", partial(hang, scope, stopped, self.patience[-1]))
                await self._run(replace(agent, tools=[hanging]), executor, run_id)
            return scope.cancelled_caught

        run_id = new_id()
        found = self._play(run_id, script)
        check(
            found == [True] and stopped == ["stopped"],
            "that the cancellation reaches the tool, and then ends the run",
            f"was the tool stopped: {bool(stopped)}; was the run: {found == [True]}.",
            "a run that cannot be cancelled goes on to pay after its user has left.",
        )

    def test_keys_are_unique_in_a_run_and_arguments_are_json(self) -> None:
        """Each step of a run has a key of its own."""
        calls = self._watch(new_id(), support_team(World())).calls
        keys = [(call.run_id, call.key) for call in calls]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        check(
            not twice and bool(json.dumps([dict(call.args) for call in calls])),
            "that each step of a run has a key of its own, and arguments in JSON",
            f"these came twice: {twice}",
            "an engine would answer the second step with the record of the first.",
        )


class DurableExecutorContract(ExecutorContract):
    """The contract of an executor that records steps, so that another process can resume a run."""

    every: ClassVar[int] = 1
    """1 kills a run at each of its moments, 2 at every second one, and so on; take more for a slow engine."""

    def test_a_replay_has_the_same_result_and_does_nothing(self) -> None:
        """A recorded run asks no model and runs no tool."""
        run_id, world, config = new_id(), World(), RunConfig(fallback=True)
        first = self._end(run_id, support_team(world), config)
        before = world.copy()
        again = self._end(run_id, support_team(world), config)
        check_same(
            facts(again),
            facts(first),
            "the result of the first life",
            "a process that takes up a run continues from this result, and would differ from here on.",
        )
        check(
            world.asked == before.asked and world.done == before.done,
            "that no model is asked and no tool runs, because every step is recorded",
            f"models: {world.asked[len(before.asked) :]}, tools: {world.done[len(before.done) :]}",
            "a step that is made again costs tokens, or pays twice.",
        )

    def test_steps_have_the_same_keys_in_each_life(self) -> None:
        """Another process finds each record by the same key."""
        run_id, world = new_id(), World()
        first, second = (sorted(self._watch(run_id, support_team(world)).keys()) for _ in range(2))
        check(
            first == second,
            f"the keys of the first life: {first}",
            second,
            "an engine finds a record by its key; another key is a step that was never made.",
        )

    def test_a_run_that_is_killed_at_any_moment_has_the_same_result(self) -> None:
        """No crash changes the result of a run."""
        alone, config = World(), RunConfig(fallback=True)
        whole = facts(self._alone(support_team(alone), "whole"))
        for moment in range(1, _LONGEST, self.every):
            run_id, world, dies = new_id(), World(), Dies(moment)
            self._result_of(run_id, support_team(world), dies, config)
            result = self._end(run_id, support_team(world), config)
            where = f"in a life after a kill at moment {moment}"
            check_same(
                facts(result),
                whole,
                f"the result of a run that was never killed, {where}",
                "a crash must not change the user's answer.",
            )
            self._check_effects(world, alone, where)
            if dies.left > 0:  # the run had no such moment
                return

    def _check_effects(self, world: World, alone: World, where: str) -> None:
        names, wanted = ({name for name, _ in each.done} for each in (world, alone))
        check(
            names == wanted, f"effects of these tools {where}: {wanted}", names, "a lost tool is lost work."
        )
        keys = {name: {key for other, key in world.done if other == name} for name in names}
        check(
            all(len(each) == 1 for each in keys.values()),
            f"one idempotency key for each call {where}",
            keys,
            "a payment API takes a second key for a second payment.",
        )
        again = len(world.done) - len(alone.done)
        check(
            again <= 3,  # three tools run at once, beside an agent whose model call may be what is killed
            f"at most three tools again {where}, those that were cut off",
            f"{again} of {world.done}",
            "only a tool that was cut off may run again.",
        )

    def test_a_tool_that_was_cut_off_runs_again_under_the_same_idempotency_key(self) -> None:
        """A cut-off tool can have its effect once, by its key."""
        run_id, world = new_id(), World()
        self._kill(run_id, paying(world, die))
        self._end(run_id, paying(world))
        keys = world.keys_of("pay")
        check(
            len(keys) == 2 and keys[0] == keys[1] and run_id in keys[0],
            "the tool again, under its first idempotency key, which contains the id of the run",
            keys,
            "the tool may have had its effect; only the same key lets the other side make it once.",
        )
        check(
            world.asked == ["m in turn 1", "m in turn 2"],
            "one model call in each turn",
            world.asked,
            "the reply of turn 1 was complete. Another one may ask for other tools.",
        )

    def test_a_tool_that_ended_does_not_run_again(self) -> None:
        """A recorded tool is not run again."""
        run_id, world = new_id(), World()
        replies = {1: [call("pay", id="p")], 2: [call("mail", id="m")], 3: "Done."}

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            tools = [tool_of(world, "pay"), tool_of(world, "mail", then)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        self._kill(run_id, agent(die))
        self._end(run_id, agent(None))
        check(
            len(world.keys_of("pay")) == 1,
            "that the tool of the turn before the kill does not run again",
            f"it ran {len(world.keys_of('pay'))} times.",
            "a recorded step is never made again; that is what a durable run is.",
        )

    def test_a_recorded_model_error_comes_again(self) -> None:
        """A model that failed is not asked again after the run went on without it."""
        run_id, world, config = new_id(), World(), RunConfig(fallback=True)
        self._kill(run_id, with_fallback(world, refuse, die), config)
        result = self._end(run_id, with_fallback(world, answer), config)
        check(
            world.asked.count("first in turn 1") == 1 and result.final_output == "Paid.",
            "that the model that failed is not asked again",
            f"models: {world.asked}, output: {result.final_output!r}",
            "the run went on with its fallback. Another answer now would send it another way.",
        )
        errors = [problem.error for problem in result.errors if isinstance(problem.error, RateLimited)]
        check(
            [fields_of(error) for error in errors] == [fields_of(refused())],
            f"RateLimited with {fields_of(refused())} in result.errors",
            [problem.error for problem in result.errors],
            "the app is told of the error as if there had been no crash.",
        )

    def test_a_model_that_timed_out_is_not_asked_again(self) -> None:
        """A timeout of a model is recorded as a timeout."""
        run_id, world = new_id(), World()
        config = RunConfig(fallback=True, turn_timeout=0.05)
        self._kill(run_id, with_fallback(world, never, die), config)
        result = self._end(run_id, with_fallback(world, answer), RunConfig(fallback=True))
        kinds = [type(problem.error) for problem in result.errors]
        check(
            world.asked.count("first in turn 1") == 1 and kinds == [ProviderTimeout],
            "that a timeout of the first life is a timeout in the next life, too",
            f"models: {world.asked}, errors: {kinds}",
            "the run went on with its fallback; a quick answer of the slow model now would contradict that.",
        )

    def test_failed_attempts_are_counted_again(self) -> None:
        """The usage of a run is that of all of its lives."""
        run_id, world = new_id(), World()

        async def busy_once() -> Any:
            if world.asked.count("m in turn 1") == 1:
                raise RateLimited("busy", status=429)
            return [call("pay", id="p")]

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            return Agent(
                "A", model=Model(world, "m", {1: busy_once, 2: "Done."}), tools=[tool_of(world, "pay", then)]
            )

        self._kill(run_id, agent(die))
        result = self._end(run_id, agent(None))
        check(
            result.usage.requests == 3,
            "3 requests: one that failed, one that was made again, and one after the tool",
            result.usage,
            "limits on requests and cost hold for all lives of a run together.",
        )

    def test_a_recorded_tool_error_comes_again(self) -> None:
        """A tool that failed is not run again."""
        run_id, world = new_id(), World()
        replies = {1: [call("fail", id="f")], 2: [call("mail", id="m")], 3: "Done."}

        async def fail() -> str:
            raise ValueError("the till is closed")

        def agent(first: Any, second: Any) -> Agent[Any]:
            tools = [tool_of(world, "fail", first), tool_of(world, "mail", second)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        self._kill(run_id, agent(fail, die))
        result = self._end(run_id, agent(None, None))
        answers = [message.get("content") for message in result.messages if message["role"] == "tool"]
        check(
            len(world.keys_of("fail")) == 1 and "the till is closed" in str(answers[0]),
            "that the tool that failed does not run again, and the model is told of the same failure",
            f"it ran {len(world.keys_of('fail'))} times, and the model is told {answers[0]!r}",
            "the model has acted on the failure. A success now would contradict that.",
        )

    def test_an_error_that_ends_the_run_is_not_recorded(self) -> None:
        """A run goes on after its wiring was repaired."""
        run_id, world, wrong = new_id(), World(), True

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
        except RoutelockError as error:
            found = error
        check(
            found == "Mended.",
            "a ConfigError in the first life, and the answer in the second",
            repr(found),
            "such an error is mended by a new version of the app, which then goes on with its runs.",
        )

    def test_a_nested_run_goes_on_in_its_middle(self) -> None:
        """The steps of an agent that is called as a tool are recorded, too."""
        run_id, world = new_id(), World()

        def boss(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            within = {1: [call("look", id="l")], 2: [call("pay", id="p")], 3: "Paid."}
            tools = [tool_of(world, "look"), tool_of(world, "pay", then)]
            clerk = Agent("clerk", model=Model(world, "clerk", within), tools=tools)
            outer = Model(world, "boss", {1: [call("clerk", {"input": "Pay."}, id="c")], 2: "All paid."})
            return Agent("boss", model=outer, tools=[clerk.as_tool()])

        self._kill(run_id, boss(die))
        result = self._end(run_id, boss(None))
        looked, paid = world.keys_of("look"), world.keys_of("pay")
        check(
            result.final_output == "All paid." and len(looked) == 1 and len(paid) == 2 and paid[0] == paid[1],
            "that the agent that is called as a tool goes on with its second turn",
            f"its first tool ran {len(looked)} times; the second under the keys {paid}",
            "the steps of a nested run are steps of the run, under keys with the key of the call in front.",
        )

    def test_a_tool_is_recorded_while_another_one_of_its_reply_still_runs(self) -> None:
        """Each of several tools is recorded as soon as it ends."""
        times = 0
        for pause in self.patience:
            run_id, world = new_id(), World()
            self._kill(run_id, two_at_once(world, partial(die_after, pause)))
            self._end(run_id, two_at_once(world, None))
            times = len(world.keys_of("quick"))
            if times == 1:
                return
        check(
            False,
            "that a tool that has ended does not run again if the process dies during a slow one beside it",
            f"it ran {times} times, though the process lived for {self.patience[-1]:g} s after its end.",
            "tools of one reply may take minutes; each has to be recorded as soon as it ends.",
        )

    def test_a_cancelled_run_goes_on(self) -> None:
        """A cancelled run can be taken up as one that was killed."""
        run_id, world, stopped = new_id(), World(), list[str]()
        replies = {1: [call("pay", id="p")], 2: [call("hang", id="h")], 3: "Done."}

        def agent(then: Callable[[], Awaitable[str]] | None) -> Agent[Any]:
            tools = [tool_of(world, "pay"), tool_of(world, "hang", then)]
            return Agent("A", model=Model(world, "m", replies), tools=tools)

        async def cancelled(executor: Executor) -> None:
            with anyio.CancelScope() as scope:
                await self._run(agent(partial(hang, scope, stopped, self.patience[-1])), executor, run_id)

        self._play(run_id, cancelled)
        result = self._end(run_id, agent(None))
        paid, hung = world.keys_of("pay"), world.keys_of("hang")
        check(
            result.final_output == "Done." and len(paid) == 1 and len(hung) == 2 and hung[0] == hung[1],
            "that a recorded tool does not run again, and the cancelled one does, under its key",
            f"output {result.final_output!r}, recorded tool {paid}, cancelled tool {hung}",
            "a deployment cancels runs, and the next version takes them up.",
        )

    def test_runs_do_not_mix(self) -> None:
        """Records belong to one run."""
        first, second = new_id(), new_id()
        found: list[Any] = []
        for run_id, text in ((first, "First."), (second, "Second."), (first, "Never.")):
            found.append(self._end(run_id, Agent("A", model=Model(World(), "m", {1: text}))).final_output)
        check(
            found == ["First.", "Second.", "First."],
            "First., Second., and First. again from its record",
            found,
            "two runs have the same keys: a record belongs to the run_id and the key of its call.",
        )


class StreamingExecutorContract(DurableExecutorContract):
    """The contract of a durable executor that sends events to readers elsewhere. Define `shown`, too."""

    async def shown(self, run_id: str, offset: int) -> Sequence[str]:
        """Return the text of each part that a reader of the run gets, from the part at ``offset`` on.

        It is awaited after the last life of the run, in an event loop of its own.

        Args:
            run_id: the id of the run.
            offset: the number of parts that the reader has seen.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method shown(run_id, offset).")

    def test_a_reader_goes_on_from_any_offset(self) -> None:
        """A reader that lost its connection misses nothing."""
        run_id, world = new_id(), World()
        self._kill(run_id, Agent("A", model=Model(world, "m", {1: break_off}, pause=0.06)))
        self._end(run_id, Agent("A", model=Model(world, "m", {1: "One two three."}, pause=0.06)))
        every = self._shown(run_id, 0)
        check(
            "".join(every).endswith("One two three."),
            "the text of the whole reply at the end of what is shown",
            every,
            "a reader has nothing but these parts.",
        )
        for offset in (1, len(every)):
            later = self._shown(run_id, offset)
            check(
                later == every[offset:],
                f"the parts from offset {offset} on: {every[offset:]}",
                later,
                "a reader that lost its connection would miss text, or show it twice.",
            )

    def _shown(self, run_id: str, offset: int) -> list[str]:
        found: list[str] = []

        async def read() -> None:
            found.extend(await self.shown(run_id, offset))

        anyio.run(read, backend=self.backend)
        return found
