"""Many runs of the same agents at the same time: none sees anything of another, and nothing of them stays.

python -m stress.crowd --runs 1000
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from stress.echo import MARK, echo_server

from routelock import Agent, RunConfig, Runner, RunResult, ToolContext, function_tool, handoff
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Handler, Request
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import calls_of
from routelock.testing import assert_valid, call, reply
from routelock.usage import Usage
from routelock_providers import OpenAICompatible
from routelock_providers.chat_completions.openai import OpenAI

__all__ = ["Echo", "Person", "crowd", "over_the_wire", "team"]


@dataclass(slots=True, weakref_slot=True)
class Person:
    """Whose run it is; the app's own object."""

    mark: str
    noted: list[str] = field(default_factory=list[str])


class Echo:
    """One model for all runs: it says what the run's own mark tells it to."""

    name = "echo"
    family = "echo"

    def __init__(self) -> None:
        self.busy = 0
        self.most = 0

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        assert_valid(request.messages)
        marks = set(MARK.findall(json.dumps(request.messages)))
        (mark,) = marks  # another run's would be one too many
        assert request.context is not None
        assert request.context.context.mark == mark
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            done = self._done(request, mark)
            if request.stream and isinstance(done.message.get("content"), str):
                for word in str(done.message.get("content")).split(" "):
                    yield TextDelta(word if word.startswith("<") else f" {word}")
                    await anyio.lowlevel.checkpoint()
            yield done
        finally:
            self.busy -= 1

    def _done(self, request: Request, mark: str) -> MessageDone:
        given = {"mark": mark}
        both = [call("note", given, id="same id"), call("ask_expert", {"input": mark})]
        said = {
            ("Front", 1): reply(calls=both),
            ("Front", 2): reply(f"{mark} over", calls=[call("transfer_to_back"), call("note", given)]),
            ("Back", 3): reply(calls=[call("transfer_to_clerk", {"reason": mark})]),
            ("Clerk", 4): reply(f"{mark} filed"),
            ("Back", 5): reply(f"{mark} all done"),
        }.get((request.agent, request.turn), reply(f"{mark} from the expert"))
        return MessageDone(message=said.message, usage=Usage(1, 3, 2))


def team(model: Handler) -> Agent[Person]:
    """Four agents with tools, a run within the run, two transfers, one of which comes back."""

    @function_tool
    async def note(context: ToolContext[Person], mark: str) -> str:
        """Write something down."""
        await anyio.lowlevel.checkpoint()
        assert context.context.mark == mark
        context.context.noted.append(mark)
        context.shared_memory.setdefault("marks", []).append(mark)
        assert set(context.shared_memory["marks"]) == {mark}
        return f"{mark} noted"

    expert = Agent[Person]("Expert", model=model)
    clerk = Agent[Person]("Clerk", model=model)
    back = Agent[Person](
        "Back",
        "You are Back.",
        model=model,
        handoffs=[handoff(clerk, return_to_caller=True, ask_reason=True)],
    )
    return Agent[Person](
        "Front",
        lambda context: f"You serve {context.context.mark}.",
        model=model,
        tools=[note, expert.as_tool("ask_expert")],
        handoffs=[handoff(back, nest_handoff_history=True)],
    )


async def one(agent: Agent[Person], number: int, capacity: Capacity, *, stream: bool) -> weakref.ref[Person]:
    """Make one run, and check that it is nobody else's."""
    person = Person(f"<run-{number}>")
    config = RunConfig(run_id=f"r{number}", capacity=capacity)
    if stream:
        result = await Runner.run_streamed(
            agent, f"{person.mark} hi", context=person, run_config=config
        ).drain()
    else:
        result = await Runner.run(agent, f"{person.mark} hi", context=person, run_config=config)
    _is_its_own(result, person)
    return weakref.ref(person)


def _is_its_own(result: RunResult[Any], person: Person) -> None:
    assert result.final_output == f"{person.mark} all done"
    told = json.dumps([item.message for item in result.items])
    told += json.dumps([made.messages for made in result.calls])
    assert set(MARK.findall(told)) == {person.mark}
    assert person.noted == [person.mark] * 2
    assert result.usage == Usage(6, 18, 12)
    assert {record.id for record in result.handoffs} == {f"h-{result.context.run_id}-{n}" for n in (1, 2)}
    made = [call["id"] for item in result.new_items for call in calls_of(item.message)]
    assert len(set(made)) == 5


async def crowd(runs: int) -> dict[str, float]:
    """Make so many runs at once, twice; return what of the second time is left."""
    model = Echo()
    agent, capacity = team(model), Capacity({}, default=runs)
    people: list[weakref.ref[Person]] = []

    async def work(number: int) -> None:
        people.append(await one(agent, number, capacity, stream=number % 2 == 0))

    async def together() -> None:
        async with anyio.create_task_group() as group:
            for number in range(runs):
                group.start_soon(work, number)

    await together()  # what is made once is made
    people.clear()
    before = await _objects()
    began = time.perf_counter()
    await together()
    seconds = time.perf_counter() - began
    alive = len(people)
    await _objects()
    alive = sum(person() is not None for person in people)
    people.clear()
    left = {each: capacity.free(each) for each in ("Back", "Clerk")}
    assert set(left.values()) == {runs}, left
    return {
        "at once": model.most,
        "alive": alive,
        "objects": await _objects() - before,
        "seconds": round(seconds, 2),
    }


async def _objects() -> int:
    """Count what is alive, once the event loop has let go of the last tasks."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        gc.collect()
    return len(gc.get_objects())


async def over_the_wire(make: Callable[[str], Any], url: str, runs: int) -> None:
    """Make so many runs at once over true connections, every third of them streamed."""
    model = make(url)
    seen: set[str] = set()

    @function_tool
    async def note(context: ToolContext[Person], mark: str) -> str:
        """Write something down."""
        assert context.context.mark == mark
        return f"{mark} noted"

    agent = Agent[Person]("A", "Be brief.", model=model, tools=[note])

    async def work(number: int) -> None:
        person = Person(f"<run-{number}>")
        if number % 3:
            result = await Runner.run(agent, f"{person.mark} hi", context=person)
        else:
            result = await Runner.run_streamed(agent, f"{person.mark} hi", context=person).drain()
        told = json.dumps([item.message for item in result.items])
        assert set(MARK.findall(told)) == {person.mark}
        assert str(result.final_output).startswith(f"{person.mark} is noted")
        assert (result.usage.requests, result.usage.input_tokens) == (2, 14)
        seen.add(person.mark)

    async with anyio.create_task_group() as group:
        for number in range(runs):
            group.start_soon(work, number)
    assert len(seen) == runs


async def handler_crowd(kind: type[OpenAI | OpenAICompatible], url: str, runs: int) -> None:
    """Make many runs through one handler."""
    handler = kind("m", base_url=url, api_key="test-not-a-key")
    try:
        await over_the_wire(lambda _: handler, url, runs)
    finally:
        await handler.aclose()


async def litellm_crowd(url: str, runs: int) -> None:
    """Make many runs through litellm."""
    from routelock_providers.litellm.handler import LiteLLM
    from routelock_providers.litellm.library import close_litellm

    try:
        await over_the_wire(
            lambda base: LiteLLM("openai/gpt-4o-mini", api_base=base, api_key="test-not-a-key"), url, runs
        )
    finally:
        await close_litellm()


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it with as many runs as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m stress.crowd", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--wire", type=int, default=300)
    given = parser.parse_args(arguments)
    for backend in ("asyncio", "trio"):
        print(f"{given.runs} runs at once on {backend}: {anyio.run(crowd, given.runs, backend=backend)}")
    with echo_server() as url:
        for name, work in (
            ("OpenAICompatible", partial(handler_crowd, OpenAICompatible)),
            ("OpenAI", partial(handler_crowd, OpenAI)),
            ("LiteLLM", litellm_crowd),
        ):
            began = time.perf_counter()
            anyio.run(work, url, given.wire)
            print(f"{given.wire} runs at once through {name}: {time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
