"""Long runs and many tools, over HTTP, with what each framework has for them.

    python scale.py NAME long TURNS
    python scale.py NAME many YES

A line of JSON comes out: what the server counted, and the CPU time of the run without imports. For ``long``
it is per turn, of the first and of the second half. ``YES`` is 1 if the tools are searched for, and 0 if all
are offered.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    sys.path[:0] = [str(_ROOT / folder) for folder in ("benchmarks", "runtime", "providers")]

from speed.scene import KEY, MODEL  # noqa: E402

__all__ = ["CONTENDERS", "WANTED", "WITHOUT_SEARCH"]


AT = 24_000
"""Tokens above which old messages are dropped."""

WANTED = "invoice_77"
"""The one of the thousand tools that is called."""

_PAGE = "x" * 800
_THINGS = ("invoice", "order", "customer", "ticket", "meeting")
_NO_LIMIT = 1_000_000

read_at: list[float] = []
"""The CPU time at each call of the tool."""


def read(page: int) -> str:
    """Read a page."""
    read_at.append(time.process_time())
    return f"page {page}: {_PAGE}"


def _change(text: str) -> str:
    return "changed"


def _thousand() -> list[tuple[str, str]]:
    """Return names and descriptions."""
    return [
        (f"{thing}_{number}", f"Change the {thing} with the number {number} and tell what has changed.")
        for number in range(200)
        for thing in _THINGS
    ]


def _shortened(messages: list[Any]) -> list[Any]:
    """Return the first message and, of the later ones, as many whole calls with results as fit."""
    while len(json.dumps(messages, default=str)) // 4 > AT:
        half = len(messages) // 4 * 2
        messages = [*messages[:1], *messages[half + 1 :]]
    return messages


class Routelock:
    """routelock, with `Compact` and deferred tools."""

    def __init__(self, url: str) -> None:
        from routelock_providers import OpenAICompatible

        self._model = OpenAICompatible(MODEL, base_url=url, api_key=KEY)

    async def long(self, text: str) -> Any:
        from routelock import Agent, RunConfig, Runner
        from routelock.history import Compact

        agent = Agent("reader", "You read.", model=self._model, tools=[read])
        compact = RunConfig(compact=Compact(at_tokens=AT, rest="drop"))
        return (await Runner.run(agent, text, max_turns=None, run_config=compact)).final_output

    async def many(self, text: str, *, search: bool) -> Any:
        from routelock import Agent, Runner, Tool

        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools = [
            Tool(
                name=name,
                description=about,
                params_json_schema=schema,
                on_invoke_tool=lambda context, arguments: "changed",
                deferred=search,
            )
            for name, about in _thousand()
        ]
        return (
            await Runner.run(Agent("clerk", "You help.", model=self._model, tools=tools), text)
        ).final_output


class PydanticAI:
    """pydantic-ai, with `ProcessHistory` and `ToolSearch`."""

    def __init__(self, url: str) -> None:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = AsyncOpenAI(base_url=url, api_key=KEY)
        self._model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))

    async def long(self, text: str) -> Any:
        from pydantic_ai import Agent, UsageLimits
        from pydantic_ai.capabilities import ProcessHistory

        def newest(messages: list[Any]) -> list[Any]:
            return _shortened(messages)

        agent: Any = Agent(
            self._model, instructions="You read.", tools=[read], capabilities=[ProcessHistory(newest)]
        )
        return (await agent.run(text, usage_limits=UsageLimits(request_limit=None))).output

    async def many(self, text: str, *, search: bool) -> Any:
        from pydantic_ai import Agent, Tool
        from pydantic_ai.capabilities import ToolSearch

        tools = [
            Tool(_change, name=name, description=about, defer_loading=search) for name, about in _thousand()
        ]
        agent: Any = Agent(
            self._model, instructions="You help.", tools=tools, capabilities=[ToolSearch(strategy="keywords")]
        )
        return (await agent.run(text)).output


class LangGraph:
    """langchain's agents, with `SummarizationMiddleware`.

    Their search of tools, langgraph-bigtool 0.0.3, does not run with langgraph 1.2.
    """

    def __init__(self, url: str) -> None:
        import os

        from langchain_openai import ChatOpenAI

        os.environ["LANGSMITH_TRACING"] = "false"
        self._model = ChatOpenAI(model=MODEL, base_url=url, api_key=KEY)

    async def long(self, text: str) -> Any:
        from langchain.agents import create_agent
        from langchain.agents.middleware import SummarizationMiddleware
        from langchain_core.tools import tool

        shorter = SummarizationMiddleware(self._model, trigger=("tokens", AT), keep=("tokens", AT // 2))
        agent: Any = create_agent(self._model, [tool(read)], system_prompt="You read.", middleware=[shorter])
        return await self._said(agent, text)

    async def many(self, text: str, *, search: bool) -> Any:
        from langchain.agents import create_agent
        from langchain_core.tools import StructuredTool

        tools = [
            StructuredTool.from_function(_change, name=name, description=about) for name, about in _thousand()
        ]
        return await self._said(create_agent(self._model, tools, system_prompt="You help."), text)

    async def _said(self, graph: Any, text: str) -> Any:
        given = {"messages": [{"role": "user", "content": text}]}
        return (await graph.ainvoke(given, {"recursion_limit": _NO_LIMIT}))["messages"][-1].content


class OpenAIAgents:
    """openai-agents, with a filter of the model's input; its tool search is that of OpenAI's servers."""

    def __init__(self, url: str) -> None:
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(True)
        self._model = agents.OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=url, api_key=KEY))

    async def long(self, text: str) -> Any:
        import agents
        from agents.run import CallModelData, ModelInputData

        def newest(data: CallModelData[Any]) -> ModelInputData:
            return ModelInputData(_shortened(data.model_data.input), data.model_data.instructions)

        agent = agents.Agent(
            "reader", instructions="You read.", model=self._model, tools=[agents.function_tool(read)]
        )
        config = agents.RunConfig(call_model_input_filter=newest)
        return (await agents.Runner.run(agent, text, max_turns=_NO_LIMIT, run_config=config)).final_output

    async def many(self, text: str, *, search: bool) -> Any:
        import agents

        tools = [
            agents.function_tool(_change, name_override=name, description_override=about)
            for name, about in _thousand()
        ]
        agent = agents.Agent("clerk", instructions="You help.", model=self._model, tools=tools)
        return (await agents.Runner.run(agent, text)).final_output


WITHOUT_SEARCH = ("langgraph", "openai-agents")

CONTENDERS: dict[str, Callable[[str], Any]] = {
    "OpenAICompatible": Routelock,
    "pydantic-ai-slim": PydanticAI,
    "langgraph": LangGraph,
    "openai-agents": OpenAIAgents,
}


def _counted(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(urllib.request.Request(address, method="POST", data=b"")) as answer:
        counted: dict[str, Any] = json.load(answer)
    return counted


async def _measured(contender: Any, scenario: str, given: int) -> dict[str, Any]:
    if scenario == "long":
        said = await contender.long(f"[turns={given}] Read.")
        half = len(read_at) // 2
        spent = [
            (read_at[half] - read_at[0]) / half,
            (read_at[-1] - read_at[half]) / (len(read_at) - half - 1),
        ]
    else:
        await contender.many("[find=nothing] Help.", search=bool(given))  # warms up
        began = time.process_time()
        said = await contender.many(f"[find={WANTED}] Help.", search=bool(given))
        spent = [time.process_time() - began]
    return {"said": said, "cpu": spent}


def main(name: str, scenario: str, given: str) -> None:
    """Run it once, and print what was measured."""
    server = [sys.executable, str(Path(__file__).with_name("scale_server.py"))]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            try:
                found = asyncio.run(_measured(CONTENDERS[name](f"{address}/v1"), scenario, int(given)))
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"[:200]}
            print(json.dumps({**found, **_counted(address)}))
        finally:
            process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
