"""Scenes for runs that stop and go on, beside those of `scenes`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from scenes import Scene, Stage, too_long, tools

from routelock import Agent, HandoffRequest, Tool, handoff
from routelock.errors import InvalidRequest
from routelock.testing import call, reply


class Case(BaseModel):
    """What a transfer passes along."""

    order: int
    why: str


def asked(stage: Stage) -> Agent[Any]:
    """A asks B, who looks something up and asks C; both come back."""
    c = Agent(
        "C", "You are C.", model=stage.model("c", call("add", {"a": 1, "b": 1}), "Two."), tools=tools(stage)
    )
    b = Agent(
        "B",
        "You are B.",
        model=stage.model("b", call("add", {"a": 2, "b": 2}), call("transfer_to_c"), "Two and four."),
        tools=tools(stage),
        handoffs=[handoff(c, return_to_caller=True)],
    )
    return Agent(
        "A",
        "You are A.",
        model=stage.model(
            "a", reply("Well.", calls=[call("transfer_to_b")]), call("add", {"a": 3, "b": 3}), "Six."
        ),
        tools=tools(stage),
        handoffs=[handoff(b, return_to_caller=True)],
    )


def nested(stage: Stage) -> Agent[Any]:
    """Three hops, each folding what came before."""
    c = Agent(
        "C", "You are C.", model=stage.model("c", call("add", {"a": 1, "b": 1}), "Bye."), tools=tools(stage)
    )
    b = Agent(
        "B",
        model=stage.model("b", call("fail", {"why": "x"}), call("transfer_to_c")),
        tools=tools(stage),
        handoffs=[c],
    )
    first = [call("add", {"a": 5, "b": 1}), call("transfer_to_b")]
    return Agent("A", "You are A.", model=stage.model("a", first), tools=tools(stage), handoffs=[b])


def two_messages(messages: list[Any]) -> list[Any]:
    return [
        {"role": "user", "content": f"There were {len(messages)}."},
        {"role": "assistant", "content": "I see."},
    ]


def passed(stage: Stage) -> Agent[Any]:
    """Typed input, a payload at each hop, the source's instructions, and memory that is shared in part."""

    def remember(name: str) -> Tool:
        async def on_invoke(context: Any, arguments: str) -> str:
            seen = sorted(key for key in context.shared_memory if key != "handoff_context")
            context.shared_memory[name] = [len(seen)]
            context.shared_memory.setdefault("all", []).append(name)
            return f"{seen} {context.shared_memory['all']}"

        return Tool(name="remember", on_invoke_tool=on_invoke)

    c = Agent(
        "C",
        "You are C.",
        model=stage.model("c", call("remember"), call("remember"), "Done."),
        tools=[remember("c")],
    )
    b = Agent(
        "B",
        "You are B.",
        model=stage.model(
            "b",
            call("remember"),
            call("transfer_to_c", {"order": 8, "why": "y"}),
            call("remember"),
            "So it is.",
        ),
        tools=[remember("b")],
        handoffs=[
            handoff(
                c,
                payload={"handoff_type": "second", "page": "Moss."},
                input_type=Case,
                share=["all"],
                return_to_caller=True,
            )
        ],
    )
    first = [call("remember"), call("transfer_to_b", {"order": 7, "why": "x"})]
    declared = handoff(
        b,
        payload=lambda context, given: {"handoff_type": "first", "order": given.order},
        input_type=Case,
        transfer_system_message=True,
        share=["all", "b"],
    )
    return Agent("A", "You are A.", model=stage.model("a", first), tools=[remember("a")], handoffs=[declared])


def by_tool(stage: Stage) -> Agent[Any]:
    """A tool puts another handler in charge, which hands over to an agent."""

    async def ask(context: Any, arguments: str) -> HandoffRequest:
        return HandoffRequest("voice", input={"mood": "calm"}, reason="they shout", metadata={"n": [1]})

    b = Agent("B", model=stage.model("b", call("add", {"a": 1, "b": 2}), "Three."), tools=tools(stage))
    voice = stage.model("voice", call("add", {"a": 4, "b": 0}), call("transfer_to_b"))
    return Agent(
        "A",
        model=stage.model("a", call("ask")),
        handlers=[voice],
        tools=[Tool(name="ask", on_invoke_tool=ask), *tools(stage)],
        handoffs=[handoff(b, ask_reason=False, reason="B knows")],
    )


def backup(stage: Stage) -> Agent[Any]:
    """The first handler fails, and the second one goes on for the rest of the run."""
    first, second = (
        stage.model("a", InvalidRequest("gone")),
        stage.model("z", call("add", {"a": 1, "b": 1}), "Two."),
    )
    return Agent("A", model=first, handlers=[second], tools=tools(stage))


def empty(stage: Stage) -> Agent[Any]:
    """Silence after a tool, and mistakes in between."""
    model = stage.model(
        "a", call("add", {"a": 1, "b": 1}), reply(""), call("nothing"), call("add", "{"), "Two."
    )
    return Agent("A", model=model, tools=tools(stage))


MORE = {
    "returning": Scene(asked),
    "nesting": Scene(nested, {"nest_handoff_history": True}),
    "nesting with a mapper": Scene(
        nested, {"nest_handoff_history": True, "handoff_history_mapper": two_messages}
    ),
    "calls are shown": Scene(nested, {"foreign_calls": "shown"}),
    "payloads": Scene(passed, {"shared_memory": {"secret plan": {"a": [1]}, "all": []}}),
    "by a tool": Scene(by_tool, {"handoff_prompt": True}),
    "fallback": Scene(backup, {"fallback": True}),
    "silence and mistakes": Scene(empty),
    "too long": Scene(too_long),
}
