"""More runs for the tests that play each of them in several ways: what ends, refuses, asks and carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenes import Scene, Stage, Weather, too_long, tools

from routelock import Agent, GuardrailResult, HandoffRequest, RunContext, Skill, function_tool, handoff
from routelock.agents.registry import Registry
from routelock.errors import AuthenticationFailed, ConnectionFailed, InvalidRequest, RateLimited
from routelock.handoffs.capabilities import Capacity
from routelock.testing import call, reply

__all__ = ["MORE"]

ADD = call("add", {"a": 1, "b": 2})
MINE = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}


def guard(stage: Stage, word: str) -> Any:
    """A guardrail that stops what has this word in it."""

    async def no_secrets(context: RunContext[Any], agent: Any, value: Any) -> GuardrailResult:
        await stage.wait()
        return GuardrailResult(tripwire_triggered=word in str(value), output_info=word)

    return no_secrets


def fallback(stage: Stage) -> Agent[Any]:
    """The first handler fails twice, in the first turn and for good; the second one has tools as well."""
    first, second = stage.model("first", InvalidRequest("no")), stage.model("second", ADD, "It is 3.")
    return Agent("A", model=first, handlers=[second], tools=tools(stage))


def fallback_in_vain(stage: Stage) -> Agent[Any]:
    first = stage.model("first", *[RateLimited("slow")] * 3)
    second = stage.model("second", AuthenticationFailed("key"))
    return Agent("A", model=first, handlers=[second])


def retried_in_vain(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", ADD, *[ConnectionFailed("reset")] * 3), tools=tools(stage))


def input_guarded(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", "Hello"), input_guardrails=[guard(stage, "Hi")])


def output_guarded(stage: Stage) -> Agent[Any]:
    model = stage.model("a", ADD, "The secret is 3.")
    return Agent("A", model=model, tools=tools(stage), output_guardrails=[guard(stage, "secret")])


def target_guarded(stage: Stage) -> Agent[Any]:
    b = Agent("B", model=stage.model("b", "B here."), input_guardrails=[guard(stage, "Hi")])
    return Agent("A", model=stage.model("a", call("transfer_to_b")), handoffs=[b])


def asks(stage: Stage) -> Agent[Any]:
    """An agent as a tool, which uses tools, hands over and fails once."""
    clerk = Agent("clerk", model=stage.model("clerk", "Stamped."))
    first = [call("fail", {"why": "broken"}), ADD]
    helper = Agent(
        "helper",
        model=stage.model("h", first, call("transfer_to_clerk")),
        tools=tools(stage),
        handoffs=[clerk],
    )
    broken = Agent("broken", model=stage.model("broken", InvalidRequest("no")))
    model = stage.model("a", call("helper", {"input": "?"}), call("broken", {"input": "?"}), "Done.")
    return Agent("A", model=model, tools=[helper.as_tool(), broken.as_tool()])


def returns(stage: Stage) -> Agent[Any]:
    """A handoff that comes back, within another that comes back."""
    c = Agent("C", model=stage.model("c", ADD, "C knows."), tools=tools(stage))
    b = Agent(
        "B",
        model=stage.model("b", call("transfer_to_c"), "B too."),
        handoffs=[handoff(c, return_to_caller=True)],
    )
    model = stage.model("a", reply("A moment.", calls=[call("transfer_to_b"), ADD]), "All know.")
    return Agent("A", model=model, tools=tools(stage), handoffs=[handoff(b, return_to_caller=True)])


def carries(stage: Stage) -> Agent[Any]:
    """A payload, a reason, a hook of the target and instructions that are passed on."""

    async def received(context: Any) -> None:
        await stage.wait()
        stage.done.append("received")

    b = Agent("B", "You are B.", model=stage.model("b", "B has it."), on_handoff_received=received)
    payload = {"handoff_type": "quick_lookup", "context_data": {"order": 7}}
    declared = handoff(b, payload=payload, ask_reason=True, transfer_system_message=True)
    model = stage.model("a", call("transfer_to_b", {"reason": "B knows"}))
    return Agent("A", "You are A.", model=model, handoffs=[declared])


def external(stage: Stage) -> Agent[Any]:
    """The caller's tool beside one of ours and a transfer."""
    b = Agent("B", model=stage.model("b"))
    calls = [call("mine"), ADD, call("transfer_to_b")]
    return Agent("A", model=stage.model("a", calls), tools=tools(stage), handoffs=[b])


def silent_twice(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", ADD, "", " \n"), tools=tools(stage))


def silent_once(stage: Stage) -> Agent[Any]:
    return Agent("A", model=stage.model("a", ADD, "", "It is 3."), tools=tools(stage))


def requested(stage: Stage) -> Agent[Any]:
    """Tools that ask for handoffs: to an agent, and to nobody."""

    @function_tool
    async def pass_on(name: str) -> HandoffRequest:
        """Hand over."""
        await stage.wait()
        return HandoffRequest(name, reason="asked")

    b = Agent("B", model=stage.model("b", "B here."))
    first = [call("pass_on", {"name": "nobody"}), call("pass_on", {"name": "B"})]
    return Agent("A", model=stage.model("a", first), tools=[pass_on], handoffs=[b])


def stopping_tool(stage: Stage) -> Agent[Any]:
    """A tool that ends the run, between two that do not, and beside a transfer."""

    @function_tool(failure_error_function=None)
    async def fatal() -> str:
        """Fail for good."""
        await stage.wait()
        raise LookupError("gone")

    b = Agent("B", model=stage.model("b"))
    model = stage.model("a", [ADD, call("fatal"), call("transfer_to_b"), call("add", {"a": 3, "b": 4})])
    return Agent("A", model=model, tools=[*tools(stage), fatal], handoffs=[b])


def in_threads(stage: Stage) -> Agent[Any]:
    @function_tool
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    calls = [call("shout", {"text": "a"}), ADD, call("shout", {"text": "b"})]
    return Agent("A", model=stage.model("a", calls, "Done."), tools=[*tools(stage), shout])


def taken(stage: Stage) -> Agent[Any]:
    b = Agent("B", model=stage.model("b"))
    return Agent("A", model=stage.model("a", call("transfer_to_b"), "Then I do it."), handoffs=[b])


def misfits(stage: Stage) -> Agent[Any]:
    """Structured output that never fits."""
    return Agent("A", model=stage.model("a", *['{"city": 1}'] * 5), output_type=Weather)


def thinks(stage: Stage) -> Agent[Any]:
    """Reasoning, private fields and a reply that was cut at its length."""
    first = {
        "content": "  \n",
        "reasoning_content": "Hm, hm.",
        "provider_specific_fields": {"thought_signatures": ["s1"]},
        "tool_calls": [{**ADD, "extra_content": {"google": {"thought_signature": "s2"}}}],
    }
    cut = reply("It is", reasoning="Hm.", finish_reason="length")
    return Agent("A", model=stage.model("a", first, cut), tools=tools(stage))


def odd_arguments(stage: Stage) -> Agent[Any]:
    """Broken in every way, one after the other, and then right."""
    broken = [
        "null",
        "[]",
        "1",
        '{"a": 1}',
        '{"a": 1, "b": 2',
        '{"a": "x", "b": 2}',
        '{"a": 1, "b": 2}{}',
    ]
    turns = [[call("add", each), ADD] for each in broken]
    return Agent("A", model=stage.model("a", *turns, "Done."), tools=tools(stage))


def skilled(stage: Stage) -> Agent[Any]:
    class Sums(Skill):
        def initialize(self, registry: Registry) -> None:
            for each in tools(stage):
                registry.add_tool(each)

            async def watch(*given: Any) -> None:
                await stage.wait()

            registry.add_hook("on_tool_end", watch)

    return Agent("A", model=stage.model("a", ADD, "It is 3."), skills=[Sums()])


def circle(stage: Stage) -> Agent[Any]:
    """Round and round with a result that is new each time, until there have been enough transfers."""

    def script(to: str) -> list[Any]:
        return [[call("add", {"a": turn, "b": ord(to)}), call(f"transfer_to_{to}")] for turn in range(9)]

    b = Agent("B", model=stage.model("b", *script("a")), tools=tools(stage), handoffs=["A"])
    return Agent("A", model=stage.model("a", *script("b")), tools=tools(stage), handoffs=[b])


async def sorry(error: Any) -> str:
    return f"Sorry after {error.result.usage.requests} calls."


async def no_weather(error: Any) -> Weather:
    return Weather(city="unknown", degrees=error.result.usage.requests)


MORE: Mapping[str, Scene] = {
    "fallback": Scene(fallback, {"fallback": True}),
    "fallback in vain": Scene(fallback_in_vain, {"fallback": True}),
    "retried in vain": Scene(retried_in_vain),
    "input guarded": Scene(input_guarded),
    "output guarded": Scene(output_guarded),
    "target guarded": Scene(target_guarded),
    "asks": Scene(asks),
    "returns": Scene(returns),
    "returns, nested": Scene(returns, {"nest_handoff_history": True}),
    "carries": Scene(carries),
    "external": Scene(external, {"external_tools": [MINE]}),
    "silent once": Scene(silent_once),
    "silent twice": Scene(silent_twice),
    "requested": Scene(requested),
    "stopping tool": Scene(stopping_tool),
    "in threads": Scene(in_threads),
    "no place": Scene(taken, {"capacity": Capacity({"B": 0})}),
    "not available": Scene(taken, {"available": lambda agent: "asleep"}),
    "misfits": Scene(misfits),
    "misfits, returned": Scene(misfits, {"on_limit": sorry}, max_turns=2),
    "misfits, replaced": Scene(misfits, {"on_invalid_output": no_weather}),
    "thinks": Scene(thinks),
    "odd arguments": Scene(odd_arguments, max_turns=20),
    "odd arguments end it": Scene(odd_arguments, {"raise_on": ["bad_arguments"]}),
    "skilled": Scene(skilled),
    "circle": Scene(circle, max_turns=30),
    "circle, returned": Scene(circle, {"on_limit": "return", "max_handoffs": 2}, max_turns=30),
    "in a hurry": Scene(asks, {"timeout": 60.0, "turn_timeout": 60.0}),
    "too long": Scene(too_long),
}
