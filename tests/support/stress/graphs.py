"""A random case: agents, the ways between them, the settings of the run and what the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import BaseModel
from stress.deeds import make_tool, now_and_then
from stress.shapes import (
    make_consent,
    make_filter,
    make_guardrail,
    make_mapper,
    make_on_handoff,
    make_received,
)
from stress.speech import Voice, make_voice
from stress.world import World

from routelock import Agent, Handoff, Retry, RunConfig, RunContext, RunHooks, handoff
from routelock.errors import LimitExceeded
from routelock.handoffs.capabilities import Capacity
from routelock.history import Compact
from routelock.history.messages import RunInput

__all__ = ["Case", "make_case"]

NAMES = ("A", "Billing desk", "zwei-drei", "日本 é", "transfer_to_x", "long " * 20 + "name")


class Word(BaseModel):
    """What some agents answer with, and some transfers pass along."""

    word: str
    count: int


@dataclass(slots=True)
class Case:
    """One run, ready to be made."""

    agents: Sequence[Agent[Any]]
    """The first one starts."""
    input: RunInput
    max_turns: int | None
    settings: dict[str, Any]
    hooks: RunHooks | None

    def config(self, **more: Any) -> RunConfig:
        return RunConfig(**{**self.settings, **more})


def make_case(world: World) -> Case:
    """Return the case of a world's seed; each time it is made anew, with handlers of its own."""
    dice = world.dice("graph")
    world.threads = dice.random() < 0.04
    names = [f"{dice.choice(NAMES)}{number}" for number in range(dice.randint(2, 6))]
    shared = make_voice(world, dice, "shared", priority=5)
    agents: list[Agent[Any]] = []
    for place in reversed(range(len(names))):
        agents.insert(0, _Maker(world, dice, names, agents, place, shared).agent())
    return Case(
        agents=agents,
        input=_input(world, dice),
        max_turns=dice.choice([1, 2, 4, 8, 8, 12, 20]),
        settings=_settings(world, dice, agents),
        hooks=_Hooks(world) if dice.random() < 0.2 else None,
    )


class _Maker:
    """Makes one agent. Those after it are there already; those before it are known by name."""

    def __init__(
        self,
        world: World,
        dice: Random,
        names: Sequence[str],
        later: Sequence[Agent[Any]],
        place: int,
        shared: Voice,
    ) -> None:
        self.world = world
        self.dice = dice
        self.names = names
        self.later = list(later)
        self.place = place
        self.shared = shared

    def agent(self) -> Agent[Any]:
        dice, world, name = self.dice, self.world, self.names[self.place]
        handlers = [
            make_voice(world, dice, f"v{self.place}{letter}", priority=10 + index, expose=dice.random() < 0.2)
            for index, letter in enumerate("abc"[: dice.choice([1, 1, 2, 3])])
        ]
        guardrails = dice.random() < 0.15
        return Agent(
            name,
            dice.choice([None, f"You are {name}.", _instructions(world)]),
            model=self.shared if dice.random() < 0.15 else None,
            handlers=handlers,
            tools=self._tools(),
            handoffs=self._edges(),
            handoff_description=dice.choice([None, "helps"]),
            capabilities=dice.choice([(), ("paint",), ("paint", "sing")]),
            on_handoff_request=make_consent(world, name) if dice.random() < 0.3 else None,
            on_handoff_received=make_received(world, name) if dice.random() < 0.15 else None,
            output_type=Word if dice.random() < 0.1 else None,
            model_settings={"tool_choice": "required"} if dice.random() < 0.1 else {},
            input_guardrails=[make_guardrail(world, f"in {name}")] if guardrails else [],
            output_guardrails=[make_guardrail(world, f"out {name}")] if guardrails else [],
        )

    def _tools(self) -> list[Any]:
        dice = self.dice
        tools = [
            make_tool(self.world, dice, f"act{number}", self.names)
            for number in dice.sample(range(4), dice.choice([0, 1, 1, 2, 3]))
        ]
        if self.world.nests and self.later and dice.random() < 0.3:
            for other in dice.sample(self.later, min(len(self.later), dice.choice([1, 1, 2]))):
                tools.append(
                    other.as_tool(
                        f"ask_{self.names.index(other.name)}",
                        max_turns=dice.choice([1, 3, None]),
                        timeout=None if self.world.threads else dice.choice([None, 5_000.0]),
                        on_error=dice.choice(["report", "report", "raise"]),
                    )
                )
        return tools

    def _edges(self) -> list[Any]:
        dice = self.dice
        others = [*self.later, *self.names[: self.place]]
        targets = dice.sample(others, min(len(others), dice.choice([0, 1, 1, 2, 3])))
        handoffs: list[Any] = []
        for number, target in enumerate(targets):
            plain = dice.random() < 0.3
            handoffs.append(target if plain else self._edge(target, f"transfer_to_way{number}"))
        if dice.random() < 0.1:
            handoffs.append(make_voice(self.world, dice, f"h{self.place}"))
        if dice.random() < 0.07:
            handoffs.append(
                handoff(capabilities_required=["paint"], tool_name_override="transfer_to_painter")
            )
        if dice.random() < 0.07:
            handoffs.append(self._invoked())
        return handoffs

    def _edge(self, target: Agent[Any] | str, tool_name: str) -> Handoff:
        dice, world = self.dice, self.world
        typed = dice.random() < 0.1
        reason = not typed and dice.random() < 0.3
        shaped = dice.random() < 0.3
        others = [each for each in self.later if each is not target][:1] if dice.random() < 0.1 else []
        returns = dice.random() < 0.25
        limited = world.waits and not world.threads
        return handoff(
            [target, *others],
            tool_name_override=tool_name if dice.random() < 0.5 or others else None,
            on_handoff=make_on_handoff(world, typed) if dice.random() < 0.3 else None,
            input_type=Word if typed else None,  # type: ignore[arg-type]
            ask_reason=reason,
            input_filter=make_filter(world, dice) if shaped else None,
            preserve_context=shaped or self._preserves(),
            nest_handoff_history=dice.choice([None, None, True, False]),
            is_enabled=now_and_then(world, tool_name) if dice.random() < 0.1 else True,
            transfer_system_message=dice.random() < 0.1,
            capabilities_required=("paint",) if dice.random() < 0.1 else (),
            payload=self._payload() if dice.random() < 0.2 else None,
            return_to_caller=returns,
            share=dice.choice([None, None, None, (), ("k1",)]),
            run_timeout=20_000.0 if limited and dice.random() < (0.5 if returns else 0.2) else None,
            timeout=None if world.threads else dice.choice([None, 2.0]),
        )

    def _preserves(self) -> bool:
        kept = self.dice.random() > 0.1
        self.world.hostile |= not kept
        return kept

    def _payload(self) -> Any:
        good = {"handoff_type": self.dice.choice(["unknown", "quick_lookup"]), "context_data": {"query": "n"}}

        def made(context: RunContext[Any], given: Any) -> Any:
            way = self.world.dice("payload", context.run_id, context.turn).random()
            if way < 0.15:
                raise ValueError("no data")
            return None if way < 0.3 else 7 if way < 0.35 else good

        return self.dice.choice([good, made])

    def _invoked(self) -> Handoff:
        """A handoff that finds out where it leads when it is taken."""
        world, later = self.world, self.later

        async def find(context: RunContext[Any], arguments: str) -> Any:
            dice = world.dice("find", context.run_id, context.turn)
            if dice.random() < 0.2:
                raise LookupError("nobody is there")
            return dice.choice([*later, *self.names, None, 7])

        return Handoff(
            agent_name="whoever", on_invoke_handoff=find, return_to_caller=self.dice.random() < 0.3
        )


def _instructions(world: World) -> Any:
    def instructions(context: RunContext[Any]) -> str:
        way = world.dice("instructions", context.run_id, context.turn).random()
        if way < 0.01:
            raise ValueError("instructions that fail")
        return f"It is turn {context.turn}."

    return instructions


class _Hooks(RunHooks):
    """Hooks that fail now and then."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _fail(self, what: str, context: RunContext[Any]) -> None:
        if self.world.dice(what, context.run_id, context.turn).random() < 0.1:
            raise ValueError(what)

    async def on_agent_start(self, context: RunContext[Any], agent: Any) -> None:
        self._fail("agent start", context)

    async def on_agent_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        self._fail("agent end", context)

    async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self._fail("handoff", context)

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Any) -> None:
        self._fail("llm start", context)

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: Any) -> None:
        self._fail("llm end", context)


def _settings(world: World, dice: Random, agents: Sequence[Agent[Any]]) -> dict[str, Any]:
    asks = any(tool.name.startswith("ask_") for agent in agents for tool in agent.all_tools)
    own = [{"type": "function", "function": {"name": name}} for name in ("act1", "outside")]
    return {
        "run_id": "r",
        "agents": agents,
        "clock": lambda: 0.0,
        "fallback": dice.random() < 0.4,
        "nest_handoff_history": dice.random() < 0.2,
        "handoff_history_mapper": make_mapper(world) if dice.random() < 0.05 else None,
        "handoff_input_filter": make_filter(world, dice) if dice.random() < 0.05 else None,
        "nest_keep_last_user": dice.random() < 0.8,
        "handoff_prompt": dice.random() < 0.2,
        "multiple_handoffs": dice.choice(["first", "first", "reject"]),
        "foreign_calls": dice.choice(["told", "told", "shown"]),
        "raise_on": dice.choice([(), (), (), (), ("unknown_tool",), ("bad_arguments", "failed_handoff")]),
        "max_mistakes": dice.choice([1, 3, 3, 5]),
        "max_handoffs": dice.choice([0, 1, 3, 5, 5, None]),
        "detect_loops": dice.random() < 0.7,
        "next_agent": dice.choice(["reset", "reset", "sticky"]),
        "on_limit": dice.choice(["raise", "raise", "return", _on_limit(dice)]),
        "available": _available(world) if dice.random() < 0.1 else None,
        # runs within a run take places in the order in which they get to it
        "capacity": Capacity({}, default=dice.randint(0, 2)) if dice.random() < 0.1 and not asks else None,
        "strict_payloads": dice.random() < 0.3,
        # agents that are asked at once take their time at once, and one after the other if somebody watches
        "timeout": None if world.threads or asks else dice.choice([None, None, 45_000.0]),
        "turn_timeout": None if world.threads else dice.choice([None, None, None, 40_000.0]),
        "external_tools": own[: dice.randint(1, 2)] if dice.random() < 0.08 else (),
        "retry": Retry(attempts=dice.choice([1, 2, 3]), mid_stream=dice.random() < 0.3, jitter=lambda: 0.0),
        "input_guardrails": [make_guardrail(world, "run in")] if dice.random() < 0.05 else [],
        "output_guardrails": [make_guardrail(world, "run out")] if dice.random() < 0.05 else [],
        "compact": _compact(world.dice("compact")),
    }


def _compact(dice: Random) -> Compact | None:
    if dice.random() < 0.6:
        return None
    rest: Any = dice.choice(
        ["drop", "cut", lambda messages: f"There were {len(messages)}.", lambda messages: ""]
    )
    return Compact(
        at_tokens=dice.choice([None, 60, 150, 400]),
        at_messages=dice.choice([None, 4, 8]),
        keep_turns=dice.choice([1, 2, 4]),
        keep=dice.choice([None, lambda item: item.id % 7 == 3]),
        tool_results=dice.choice([None, 50, 200]),
        rest=rest,
        down_to=dice.choice([0, 0.5]),
    )


def _on_limit(dice: Random) -> Any:
    fails = dice.random() < 0.3

    def sorry(error: LimitExceeded) -> str:
        if fails:
            raise ValueError("not even that")
        return "Sorry."

    return sorry


def _available(world: World) -> Any:
    def available(agent: Agent[Any]) -> bool | str:
        way = world.dice("available", agent.name).random()
        return "on holiday" if way < 0.2 else way < 0.9

    return available


def _input(world: World, dice: Random) -> RunInput:
    """Return what the user says: mostly a text, now and then a history that somebody broke."""
    mark = world.mark("input")
    if dice.random() < 0.6:
        return f"{mark} help"
    call: Any = {"id": "old", "type": "function", "function": {"name": "act0", "arguments": '{"x": 1}'}}
    messages: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": f"{world.mark('first')} hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "old", "content": "1"},
        {"role": "tool", "tool_call_id": "old", "content": "2"},
        {"role": "assistant", "content": "So it is."},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "id": "call_1_0"}]},
        {"role": "user", "content": "half \ud83d"},
    ]
    kept = [message for message in messages if dice.random() < 0.6]
    if dice.random() < 0.2:
        dice.shuffle(kept)
    return [*kept, {"role": "user", "content": f"{mark} help"}]
