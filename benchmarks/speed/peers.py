"""Other frameworks on the same ground, each as its own documentation says, with tracing switched off.

Each is imported when it is made, so that one is enough to be measured.
"""

from __future__ import annotations

import os
from typing import Any

from speed.scene import KEY, MODEL, SPECIALIST, TRIAGE, lookup

__all__ = ["Agno", "LangGraph", "OpenAIAgents", "PydanticAI", "WebAgents"]

_FOR_LOOKUPS = "Looks things up."
_NO_LIMIT = 10_000


class _Peer:
    """What they have in common."""

    async def aclose(self) -> None: ...


def _client(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=url, api_key=KEY)


class OpenAIAgents(_Peer):
    """openai-agents, with chat completions."""

    def __init__(self, url: str) -> None:
        import agents

        agents.set_tracing_disabled(True)
        model = agents.OpenAIChatCompletionsModel(MODEL, _client(url))
        tool = agents.function_tool(lookup)
        self._run: Any = agents.Runner
        self._plain = agents.Agent(
            name="plain",
            instructions=SPECIALIST,
            model=model,
            model_settings=agents.ModelSettings(include_usage=True),
        )
        self._specialist = agents.Agent(
            name="specialist",
            instructions=SPECIALIST,
            handoff_description=_FOR_LOOKUPS,
            model=model,
            tools=[tool],
        )
        self._triage = agents.Agent(
            name="triage", instructions=TRIAGE, model=model, handoffs=[self._specialist]
        )

    async def s1(self, text: str) -> Any:
        return (await self._run.run(self._plain, text)).final_output

    async def s2(self, text: str) -> Any:
        return (await self._run.run(self._specialist, text, max_turns=_NO_LIMIT)).final_output

    async def s3(self, text: str) -> Any:
        return (await self._run.run(self._triage, text)).final_output

    async def stream(self, text: str) -> Any:
        count = 0
        async for event in self._run.run_streamed(self._plain, text).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                count += 1
        return count


class PydanticAI(_Peer):
    """pydantic-ai. It hands over by a function that runs the next agent, whose result is the run's."""

    def __init__(self, url: str) -> None:
        from pydantic_ai import Agent, ToolOutput, UsageLimits
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=_client(url)))
        self._plain: Any = Agent(model, name="plain", instructions=SPECIALIST)
        self._specialist: Any = Agent(model, name="specialist", instructions=SPECIALIST, tools=[lookup])
        self._limits = UsageLimits(request_limit=None)
        specialist = self._specialist

        async def transfer_to_specialist(ctx: Any, reason: str) -> str:
            """Hand over to the specialist, who looks things up."""
            output: str = (await specialist.run(ctx.prompt, usage=ctx.usage)).output
            return output

        from pydantic_ai import RunContext

        transfer_to_specialist.__annotations__ = {"ctx": RunContext[None], "reason": str, "return": str}
        over = ToolOutput(transfer_to_specialist, name="transfer_to_specialist")
        self._triage: Any = Agent(model, name="triage", instructions=TRIAGE, output_type=[over, str])

    async def s1(self, text: str) -> Any:
        return (await self._plain.run(text)).output

    async def s2(self, text: str) -> Any:
        return (await self._specialist.run(text, usage_limits=self._limits)).output

    async def s3(self, text: str) -> Any:
        return (await self._triage.run(text)).output

    async def stream(self, text: str) -> Any:
        async with self._plain.run_stream(text) as result:
            return len([None async for _ in result.stream_text(delta=True, debounce_by=None)])


class LangGraph(_Peer):
    """langgraph, with langchain's agents; langgraph-swarm hands over."""

    def __init__(self, url: str) -> None:
        from langchain.agents import create_agent
        from langchain_core.messages import AIMessageChunk
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        from langgraph_swarm import create_handoff_tool, create_swarm

        os.environ["LANGSMITH_TRACING"] = "false"
        self._chunk = AIMessageChunk
        model = ChatOpenAI(model=MODEL, base_url=url, api_key=KEY, stream_usage=True)
        tools = [tool(lookup)]
        over = create_handoff_tool(agent_name="specialist", description=_FOR_LOOKUPS)
        self._plain: Any = create_agent(model, system_prompt=SPECIALIST, name="plain")
        self._specialist: Any = create_agent(model, tools, system_prompt=SPECIALIST, name="specialist")
        triage: Any = create_agent(model, [over], system_prompt=TRIAGE, name="triage")
        swarm: Any = create_swarm([triage, self._specialist], default_active_agent="triage")
        self._triage = swarm.compile()

    async def _run(self, graph: Any, text: str) -> Any:
        given = {"messages": [{"role": "user", "content": text}]}
        return (await graph.ainvoke(given, {"recursion_limit": _NO_LIMIT}))["messages"][-1].content

    async def s1(self, text: str) -> Any:
        return await self._run(self._plain, text)

    async def s2(self, text: str) -> Any:
        return await self._run(self._specialist, text)

    async def s3(self, text: str) -> Any:
        return await self._run(self._triage, text)

    async def stream(self, text: str) -> Any:
        count = 0
        given = {"messages": [{"role": "user", "content": text}]}
        async for message, _ in self._plain.astream(given, stream_mode="messages"):
            if isinstance(message, self._chunk) and message.content:
                count += 1
        return count


class Agno(_Peer):
    """agno. Its team in route mode hands over: the leader delegates, and the member's answer is returned."""

    def __init__(self, url: str) -> None:
        from agno.agent import Agent
        from agno.models.openai import OpenAIChat
        from agno.team import Team
        from agno.team.mode import TeamMode

        def model() -> Any:
            return OpenAIChat(id=MODEL, base_url=url, api_key=KEY)

        self._plain: Any = Agent(name="plain", model=model(), instructions=SPECIALIST, telemetry=False)
        self._specialist: Any = Agent(
            name="specialist",
            id="specialist",
            role=_FOR_LOOKUPS,
            model=model(),
            instructions=SPECIALIST,
            tools=[lookup],
            telemetry=False,
        )
        self._triage: Any = Team(
            name="triage",
            mode=TeamMode.route,
            members=[self._specialist],
            model=model(),
            instructions=TRIAGE,
            determine_input_for_members=False,
            telemetry=False,
        )

    async def s1(self, text: str) -> Any:
        return (await self._plain.arun(text)).content

    async def s2(self, text: str) -> Any:
        return (await self._specialist.arun(text)).content

    async def s3(self, text: str) -> Any:
        return (await self._triage.arun(text)).content

    async def stream(self, text: str) -> Any:
        events = self._plain.arun(text, stream=True)
        return len([None async for event in events if event.event == "RunContent" and event.content])


class WebAgents(_Peer):
    """webagents. A handoff swaps the handler that answers for its one agent."""

    def __init__(self, url: str) -> None:
        import logging

        os.environ["WEBAGENTS_OTEL"] = "0"
        logging.disable(logging.INFO)
        from webagents.agents.core.base_agent import BaseAgent
        from webagents.agents.skills.base import Skill
        from webagents.agents.skills.core.llm.openai.skill import OpenAISkill
        from webagents.agents.tools.decorators import handoff, tool

        def model() -> Any:
            return OpenAISkill({"model": MODEL, "api_key": KEY, "base_url": url})

        class Specialist(Skill):  # type: ignore[misc]
            """Another handler, and the tool that leads to it."""

            async def initialize(self, agent: Any) -> None:
                self.agent = agent
                self.model = model()
                await self.model.initialize(agent)

            @handoff(name="specialist", prompt=_FOR_LOOKUPS, priority=15)
            async def specialist(self, messages: Any, tools: Any = None, **_: Any) -> Any:
                async for chunk in self.model.chat_completion_stream(messages, tools=tools):
                    yield chunk

            @tool(name="transfer_to_specialist", description=_FOR_LOOKUPS)
            async def transfer_to_specialist(self) -> str:
                asked: str = self.request_handoff("specialist")
                return asked

        tools = [tool(name="lookup", description="Look up the value of a key.")(lookup)]
        self._plain: Any = BaseAgent("plain", SPECIALIST, skills={"llm": model()})
        self._specialist: Any = BaseAgent(
            "specialist", SPECIALIST, skills={"llm": model()}, tools=tools, max_tool_iterations=_NO_LIMIT
        )
        self._triage: Any = BaseAgent(
            "triage", TRIAGE, skills={"llm": model(), "specialist": Specialist()}, tools=tools
        )

    async def _run(self, agent: Any, text: str) -> Any:
        said = await agent.run([{"role": "user", "content": text}])
        return said["choices"][0]["message"]["content"]

    async def s1(self, text: str) -> Any:
        return await self._run(self._plain, text)

    async def s2(self, text: str) -> Any:
        return await self._run(self._specialist, text)

    async def s3(self, text: str) -> Any:
        return await self._run(self._triage, text)

    async def stream(self, text: str) -> Any:
        count = 0
        async for chunk in self._plain.run_streaming([{"role": "user", "content": text}]):
            if chunk.get("choices") and chunk["choices"][0].get("delta", {}).get("content"):
                count += 1
        return count
