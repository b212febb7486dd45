"""The kit for engines passes one that is right, and names what is wrong with each of the others."""

from __future__ import annotations

import json
import unittest
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import anyio
import pytest

from routelock.errors import ConfigError, HandlerError
from routelock.handlers.events import HandlerEvent
from routelock.run.executor import Call, Executor, InProcess, Outcome
from routelock.state import StepExecutor
from routelock.testing import DurableExecutorContract, ExecutorContract
from routelock.testing.executor_contract import Use

Ask = Callable[[Call], AsyncGenerator[HandlerEvent]]
Do = Callable[[Call], Awaitable[Outcome]]


class Engine:
    """Keeps texts in memory, which outlives the lives of a test."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}

    def executor(self) -> Executor:
        return StepExecutor(self.step)

    async def step(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        place = self.place_of(call)
        if place not in self.texts:
            self.texts[place] = await work()
        return self.texts[place]

    def place_of(self, call: Call) -> tuple[str, str]:
        return call.run_id, call.key


class Contract(DurableExecutorContract):
    engine: ClassVar[type[Engine]] = Engine
    patience: ClassVar[Sequence[float]] = (0.02, 2.0)

    def __init__(self) -> None:
        self.made = self.engine()

    async def live(self, run_id: str, use: Use) -> None:
        await use(self.made.executor())


class TestEngineInMemory(DurableExecutorContract):
    @pytest.fixture(autouse=True)
    def make(self) -> None:
        self.made = Engine()

    async def live(self, run_id: str, use: Use) -> None:
        await use(self.made.executor())


class ByPosition(Engine):
    """Finds a record by the number of the step in its life, as engines do that record a program."""

    def __init__(self) -> None:
        super().__init__()
        self.place = 0

    def executor(self) -> Executor:
        self.place = 0
        return super().executor()

    async def step(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        self.place += 1
        place = call.run_id, str(self.place)
        if place not in self.texts:
            self.texts[place] = f"{call.key} {await work()}"
        key, _, text = self.texts[place].partition(" ")
        assert key == call.key, f"step {self.place} was {key}, and is {call.key}"
        return text


class TestEngineByPosition(TestEngineInMemory):
    streamed: ClassVar[bool] = True

    @pytest.fixture(autouse=True)
    def make(self) -> None:
        self.made = ByPosition()


class Forgets(Engine):
    """Records nothing."""

    def executor(self) -> Executor:
        return InProcess()


class Mixes(Engine):
    """Finds a record by its key alone."""

    def place_of(self, call: Call) -> tuple[str, str]:
        return "", call.key


class Swallows(Engine):
    """Records what ends a run."""

    async def step(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        async def tried() -> str:
            try:
                return await work()
            except ConfigError as error:
                return json.dumps({"err": {"type": "HandlerError", "message": str(error)}})

        return await Engine.step(self, call, tried)


class _Steps(InProcess):
    def __init__(self, engine: Engine) -> None:
        self.inner = StepExecutor(engine.step)

    def stream(self, call: Call, body: Ask) -> AsyncGenerator[HandlerEvent]:
        return self.inner.stream(call, body)

    async def gather(self, calls: Sequence[Call], body: Do) -> Sequence[Outcome]:
        return await self.inner.gather(calls, body)


class Disorders(Engine):
    """Returns outcomes as they come."""

    def executor(self) -> Executor:
        class Steps(_Steps):
            async def gather(self, calls: Sequence[Call], body: Do) -> Sequence[Outcome]:
                return [*reversed(await self.inner.gather(calls, body))]

        return Steps(self)


class Renames(Engine):
    """Calls functions with a key of its own."""

    def executor(self) -> Executor:
        class Steps(_Steps):
            def stream(self, call: Call, body: Ask) -> AsyncGenerator[HandlerEvent]:
                return self.inner.stream(call, lambda step: body(replace(step, key="my-" + step.key)))

        return Steps(self)


class Waits(Engine):
    """Records the tools of a reply when the last one has ended."""

    def executor(self) -> Executor:
        class Steps(_Steps):
            async def gather(self, calls: Sequence[Call], body: Do) -> Sequence[Outcome]:
                made = dict(
                    zip([call.key for call in calls], await InProcess().gather(calls, body), strict=True)
                )

                async def known(call: Call) -> Outcome:
                    return made[call.key]

                return await self.inner.gather(calls, known)

        return Steps(self)


class Flattens(Engine):
    """Makes each error of a model one of its own."""

    def executor(self) -> Executor:
        class Steps(_Steps):
            async def stream(self, call: Call, body: Ask) -> AsyncGenerator[HandlerEvent]:
                try:
                    async for event in self.inner.stream(call, body):
                        yield event
                except HandlerError as error:
                    raise HandlerError(str(error)) from None

        return Steps(self)


class Shields(Engine):
    """Lets nothing be cancelled."""

    def executor(self) -> Executor:
        class Steps(_Steps):
            async def gather(self, calls: Sequence[Call], body: Do) -> Sequence[Outcome]:
                outcomes: Sequence[Outcome] = ()
                with anyio.CancelScope(shield=True):
                    outcomes = await self.inner.gather(calls, body)
                return outcomes

        return Steps(self)


class Leaves(Engine):
    """Reads a model call to its end only if its reader does."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Any] = []

    def executor(self) -> Executor:
        engine = self

        class Steps(_Steps):
            async def stream(self, call: Call, body: Ask) -> AsyncGenerator[HandlerEvent]:
                events = body(call)
                engine.open.append(events)
                yield await anext(events)

        return Steps(self)


@pytest.mark.parametrize(
    ("wrong", "test", "said"),
    [
        (Forgets, "a_replay_has_the_same_result_and_does_nothing", "every step is recorded"),
        (Forgets, "a_tool_that_ended_does_not_run_again", "it ran 2 times"),
        (Mixes, "runs_do_not_mix", "a record belongs to the run_id and the key"),
        (Swallows, "an_error_that_ends_the_run_is_raised_as_it_is", "the ConfigError of the function"),
        (Swallows, "an_error_that_ends_the_run_is_not_recorded", "mended by a new version of the app"),
        (Disorders, "outcomes_are_in_the_order_of_the_calls", "the answer to another call"),
        (Renames, "each_function_gets_its_own_call", "my-t1.model.A"),
        (
            Waits,
            "a_tool_is_recorded_while_another_one_of_its_reply_still_runs",
            "recorded as soon as it ends",
        ),
        (Flattens, "a_model_error_keeps_its_class_and_its_fields", "'retry_after': 3.0"),
        (Flattens, "a_recorded_model_error_comes_again", "in result.errors"),
        (Shields, "a_cancelled_run_stops_its_tool", "was the tool stopped"),
        (Leaves, "closing_a_stream_closes_the_model_call", "it is still open"),
        (Leaves, "a_reply_comes_whole", "the MessageDone at the end"),
    ],
)
def test_what_is_wrong_with_an_engine_is_named(wrong: type[Engine], test: str, said: str) -> None:
    class Checked(Contract):
        engine = wrong
        patience = (0.02,)

    with pytest.raises(AssertionError) as caught:
        getattr(Checked(), f"test_{test}")()
    text = str(caught.value)
    assert said in text
    assert [line.partition(":")[0] for line in text.splitlines()][:: len(text.splitlines()) - 1] == [
        "Expected",
        "Why it matters",
    ]


def test_a_contract_whose_engine_is_not_used_says_so() -> None:
    class Idle(ExecutorContract):
        async def live(self, run_id: str, use: Use) -> None: ...

    with pytest.raises(AssertionError, match="that `live` awaits use"):
        Idle().test_a_reply_comes_whole()


def test_an_error_of_the_engine_is_raised_as_it_is() -> None:
    class Broken(ExecutorContract):
        async def live(self, run_id: str, use: Use) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Broken().test_a_reply_comes_whole()


def test_unittest_runs_a_contract() -> None:
    class Case(Contract, unittest.TestCase):
        def __init__(self, name: str) -> None:
            unittest.TestCase.__init__(self, name)
            Contract.__init__(self)

    result = unittest.TestResult()
    Case("test_a_tool_that_ended_does_not_run_again").run(result)
    assert (result.testsRun, result.wasSuccessful()) == (1, True)
