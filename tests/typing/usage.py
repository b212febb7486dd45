"""Typed usage as an app writes it, and mistakes: mypy and pyright check this file.

A comment that ignores no error is itself an error of both, so both find each of the mistakes.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from routelock import (
    Agent,
    HandoffInputData,
    Limits,
    MaxTurnsExceeded,
    Message,
    ModelBehaviorError,
    RunConfig,
    RunContext,
    RunItem,
    Runner,
    RunResult,
    RunStream,
    ToolContext,
    function_tool,
    handoff,
    tool,
)
from routelock.guardrails import GuardrailRecord
from routelock.run import NestedEvent
from routelock.sessions import InMemorySessions, Session
from routelock.tools import Tool, VendorTool
from routelock_skills.mcp import MCPClient


@dataclass
class App:
    user: str


@dataclass
class OtherApp:
    tenant: int


@dataclass
class Invoice:
    total: float


@tool
def greet(context: RunContext[App], loudly: bool) -> str:
    """Greet the user."""
    return context.context.user.upper() if loudly else context.context.user


@tool(timeout=5)
async def balance(context: ToolContext[App]) -> int:
    """Return the balance of the user."""
    return len(context.context.user)


@function_tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@tool
def tenant(context: RunContext[OtherApp]) -> int:
    """Return the tenant."""
    return context.context.tenant


def instructions(context: RunContext[App]) -> str:
    return f"You help {context.context.user}."


text = Agent("text", "You answer in text.", tools=[add])
invoices = Agent("invoices", tools=[greet, balance], output_type=Invoice)
helper: Agent[App] = Agent("helper", instructions, tools=[greet, add])
triage = Agent("triage", handoffs=[text, handoff(invoices)])


def only_the_question(data: HandoffInputData) -> HandoffInputData:
    """Return text and plain messages, as filters for openai-agents do."""
    assert_type(data.input_history, tuple[RunItem, ...])
    if data.source:
        return data.clone(input_history="What is it?", new_items=[{"role": "user", "content": "Well?"}])
    return HandoffInputData(
        input_history=[{"role": "user", "content": "Well?"}], pre_handoff_items=(), new_items=()
    )


filtered = Agent("filtered", handoffs=[handoff(invoices, input_filter=only_the_question)])
typed_triage = Agent[App, Invoice]("triage", handoffs=[invoices], output_type=Invoice)
typed_text = Agent[App]("typed text", "You answer in text.", tools=[add])
several = Agent("several", output_type=list[Invoice])


async def outputs() -> None:
    assert_type((await Runner.run(text, "Hi")).final_output, str)
    assert_type(await Runner.run(invoices, "Hi", context=App("Ann")), RunResult[Invoice])
    assert_type(Runner.run_sync(several, "Hi").require_output(), list[Invoice])
    assert_type(Runner.run_sync(triage, "Hi").final_output, Any)
    assert_type(Runner.run_sync(typed_triage, "Hi", context=App("Ann")).require_output(), Invoice)
    async with Runner.run_streamed(invoices, "Hi", context=App("Ann")) as stream:
        assert_type(stream.final_output, Invoice | None)
        async for draft in stream.partial_output():
            assert_type(draft, Invoice)
            stream.stop(after="turn")
    assert_type(stream.result.require_output(), Invoice)


def no_invoice(error: ModelBehaviorError) -> Invoice:
    return Invoice(0)


async def no_text(error: ModelBehaviorError) -> str:
    return str(error)


def of_limit(error: MaxTurnsExceeded) -> str:
    return str(error)


replaced = RunConfig(on_invalid_output=no_invoice, on_refusal=no_text)


def wrong_ends(stream: RunStream[Invoice]) -> None:
    RunConfig(on_refusal=of_limit)  # type: ignore[arg-type]
    RunConfig(on_invalid_output="return")  # type: ignore[arg-type]
    stream.stop(after="now")  # type: ignore[arg-type]


def brief(context: ToolContext[App], order: Invoice) -> str:
    return f"{context.context.user}: {order.total}"


async def quoted(context: ToolContext[Any], task: str) -> list[Message]:
    return [{"role": "user", "content": f"> {task}"}]


def watch(context: ToolContext[Any], event: NestedEvent) -> None:
    assert event.path


def agents_as_tools() -> None:
    text.as_tool(input_type=Invoice, input=brief, run_config=RunConfig(limits=Limits(turns=2)))
    text.as_tool(input=quoted)
    invoices.as_tool(output=lambda result: assert_type(result, RunResult[Invoice]).final_output.total)
    text.as_tool(on_event=watch)
    text.as_tool(session=lambda context: Session(context.user_id or "-", InMemorySessions()))
    for one in Runner.run_sync(text, "Hi").guardrail_results:
        assert_type(one, GuardrailRecord)


def wrong_agent_tool() -> None:
    text.as_tool(input_type=App, input=brief)  # type: ignore[arg-type]
    text.as_tool(input=lambda context: "Hi")  # type: ignore[arg-type,misc]
    text.as_tool(session="chats")  # type: ignore[arg-type]


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def mixed_tools(library: MCPClient) -> None:
    searches = {"type": "web_search"}
    agent = Agent[Any](
        "mixed",
        tools=[
            greet,
            tenant,
            add,
            text.as_tool(),
            searches,
            VendorTool.code_execution(),
            shout,
            *library.tools,
        ],
    )
    assert_type(agent, Agent[Any, str])
    one: Agent[App] = Agent(
        "one context", tools=[greet, add, text.as_tool(), searches, shout, *library.tools]
    )
    assert_type(Runner.run_sync(one, "Hi", context=App("Ann")).final_output, Any)
    Agent[Any, Invoice]("typed", tools=(greet, tenant, searches, *library.tools), output_type=Invoice)


def tools_in_a_variable(library: MCPClient) -> None:
    tools: list[Tool] = [greet, tenant, add, text.as_tool(), *library.tools]
    Agent("tools only", tools=tools)
    Agent[App]("of one context", tools=[*tools, {"type": "web_search"}, shout])
    mixed: list[Any] = [greet, tenant, text.as_tool(), {"type": "web_search"}, shout]
    Agent("any tools", tools=mixed)
    without_context = [add, *library.tools]
    Agent[App]("no tool needs the context", tools=[greet, *without_context])


async def wrong_context() -> None:
    await Runner.run(invoices, "Hi")  # type: ignore[arg-type]
    await Runner.run(helper, "Hi")  # type: ignore[arg-type]
    await Runner.run(typed_text, "Hi")  # type: ignore[arg-type]
    Runner.run_sync(invoices, "Hi")  # type: ignore[arg-type]
    Runner.run_streamed(invoices, "Hi")  # type: ignore[arg-type]
    await Runner.run(invoices, "Hi", context=OtherApp(1))  # type: ignore[misc]
    Runner.run_sync(invoices, "Hi", context=OtherApp(1))  # type: ignore[misc]
    Runner.run_streamed(invoices, "Hi", context=OtherApp(1))  # type: ignore[misc]


def wrong_tool() -> None:
    agent: Agent[App] = Agent("A", tools=[tenant])  # type: ignore[list-item]
    agent.as_tool()
    Agent[App]("A", tools=[tenant])  # type: ignore[list-item]
    Agent[App, Invoice]("A", tools=[greet, tenant], output_type=Invoice)  # type: ignore[list-item]


def wrong_settings() -> None:
    Agent("A", model_settings={"temprature": 0.5})  # type: ignore[call-overload]


def wrong_keyword() -> None:
    Agent("A", system_prompt="Help.")  # type: ignore[call-overload]


def wrong_output() -> None:
    assert Runner.run_sync(several, "Hi").final_output.total  # type: ignore[attr-defined]
