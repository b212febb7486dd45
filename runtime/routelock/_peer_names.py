"""Names from other agent libraries, and what to write in their place.

A wrong keyword stays the TypeError that Python raises, a wrong attribute an AttributeError, and a wrong
import an ImportError. A note, or the end of the message, says the name that routelock has for the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "AGENT",
    "AGENT_KEYWORDS",
    "AS_TOOL_KEYWORDS",
    "CONFIG_KEYWORDS",
    "CONTEXT",
    "FUNCTION_TOOL_KEYWORDS",
    "HANDLER_KEYWORDS",
    "HANDOFF_KEYWORDS",
    "HOOKS",
    "LIST",
    "NAMES",
    "REGISTRY",
    "RESULT",
    "RUN_KEYWORDS",
    "SKILL",
    "STREAM",
    "TOOL_KEYWORDS",
]


AGENT_KEYWORDS: Final[Mapping[str, str]] = {
    "builtin_tools": "tools=, with a routelock.tools.VendorTool such as VendorTool.web_search()",
    "deps_type": "Agent[YourType](...), and pass the object to the run: Runner.run(agent, text, context=...)",
    "description": "handoff_description=",
    "functions": "tools=, with agents in handoffs= and a parameter ctx: RunContext for context_variables",
    "guardrails": "input_guardrails= or output_guardrails=",
    "instruction": "instructions=",
    "llm": "model=",
    "mcp_servers": "tools=[*client.tools] with a routelock_skills.mcp.MCPClient",
    "output": "output_type=",
    "parallel_tool_calls": "model_settings={'parallel_tool_calls': ...}",
    "prompt": "instructions=",
    "response_format": "output_type=",
    "result_type": "output_type=",
    "retries": "RunConfig(max_mistakes=...), or retry=Retry(...) for the network, and pass it as run_config=",
    "scopes": "scope= of each tool, handler or skill, and RunConfig(scopes=...) for the user of a run",
    "sub_agents": "handoffs=",
    "system_message": "instructions=",
    "system_prompt": "instructions=",
    "temperature": "model_settings={'temperature': ...}",
    "tool_choice": "model_settings={'tool_choice': ...}",
    "toolsets": "tools=, or skills=",
}
"""Keywords of the agents of openai-agents, Swarm, pydantic-ai, LangChain, webagents and others."""

AS_TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "conversation_id": "session=",
    "custom_output_extractor": "output=",
    "description": "tool_description=",
    "failure_error_function": "on_error=",
    "include_input_schema": "input=, a function that makes the input",
    "input_builder": "input=",
    "name": "tool_name=",
    "on_stream": "on_event=",
    "parameters": "input_type=",
    "previous_response_id": "session=",
}
"""Keywords of ``Agent.as_tool``."""

_BY_NAME = "nothing: code finds a handler by its name, and an agent by its capabilities="

HANDLER_KEYWORDS: Final[Mapping[str, str]] = {
    "auto_tool": "expose=",
    "auto_tool_description": "prompt=",
    "description": "prompt=",
    "produces": _BY_NAME,
    "provides": _BY_NAME,
    "subscribes": _BY_NAME,
}
"""Keywords of the functions that make handlers."""

HANDOFF_KEYWORDS: Final[Mapping[str, str]] = {
    "agent_name": "the agent, or its name, as the first argument",
    "description": "tool_description_override=",
    "name": "tool_name_override=",
    "on_invoke_handoff": "routelock.Handoff(on_invoke_handoff=...)",
    "tool_description": "tool_description_override=",
    "tool_name": "tool_name_override=",
}
"""Keywords of the functions that make handoffs."""

CONFIG_KEYWORDS: Final[Mapping[str, str]] = {
    "context": "Runner.run(..., context=...)",
    "group_id": "conversation_id=",
    "max_turns": "Runner.run(..., max_turns=...), or limits=Limits(turns=...)",
    "model_provider": "model=, which takes a handler",
    "recursion_limit": "Runner.run(..., max_turns=...)",
    "temperature": "model_settings={'temperature': ...}",
    "tracing_disabled": "nothing: a run is traced only with trace=",
    "workflow_name": "nothing: a run is traced only with trace=",
}
"""Keywords of the settings of a run."""

RUN_KEYWORDS: Final[Mapping[str, str]] = {
    "agent": "the agent as the first argument",
    "config": "run_config=RunConfig(...)",
    "context_variables": "context=, which tools read as ctx.context",
    "debug": "run_config=RunConfig(trace=...)",
    "deps": "context=, which tools read as ctx.context",
    "error_handlers": "run_config=RunConfig(on_limit=..., on_invalid_output=..., on_refusal=...)",
    "event_stream_handler": "Runner.run_streamed(...)",
    "handoff_name": "run_config=RunConfig(handler=...)",
    "message_history": "the messages as input: [*earlier.to_input_list(), message]",
    "messages": "the messages as input, which is the second argument",
    "model_override": "run_config=RunConfig(model=...)",
    "output_type": "Agent(output_type=...)",
    "previous_response_id": "session=Session(...)",
    "stream": "Runner.run_streamed(...)",
    "temperature": "run_config=RunConfig(model_settings={'temperature': ...})",
    "thread_id": "session=Session(thread_id, ...)",
    "tools": "run_config=RunConfig(external_tools=...) for tools that the caller runs, or Agent(tools=...)",
    "usage_limits": "run_config=RunConfig(limits=Limits(...))",
    "user_prompt": "the text as input, which is the second argument",
}
"""Keywords of the methods that start a run, besides the settings in `RunConfig`."""

TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "defer_loading": "deferred=",
    "description_override": "description=",
    "failure_error_function": "on_error=",
    "name_override": "name=",
    "strict_mode": "strict=",
}
"""Keywords of ``function_tool`` where ``tool`` has its own names."""

FUNCTION_TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "deferred": "defer_loading=",
    "description": "description_override=",
    "name": "name_override=",
    "on_error": "failure_error_function=",
    "strict": "strict_mode=",
}
"""Keywords of ``tool`` where ``function_tool`` has its own names."""

CONTEXT: Final[Mapping[str, str]] = {
    "configurable": "context",
    "context_variables": "context",
    "deps": "context",
}
"""Attributes of the contexts that tools of other libraries are given."""

RESULT: Final[Mapping[str, str]] = {
    "agent": "last_agent",
    "all_messages": "messages, or to_input_list() for the next run",
    "context_variables": "context.context, or context.shared_memory",
    "context_wrapper": "context",
    "cost": "usage.cost",
    "data": "final_output",
    "input": "items[:result.input_count]",
    "input_guardrail_results": "guardrail_results, those whose kind is 'input'",
    "is_complete": "stop_reason == 'done'",
    "last_response_id": "raw_replies[-1].response_id",
    "new_messages": "[item.message for item in result.new_items]",
    "output": "final_output",
    "output_guardrail_results": "guardrail_results, those whose kind is 'output'",
    "raw_responses": "raw_replies",
    "response": "raw_replies[-1]",
    "text": "final_output",
    "to_state": "state()",
    "tool_input_guardrail_results": "guardrail_results, those whose kind is 'tool_input'",
    "tool_output_guardrail_results": "guardrail_results, those whose kind is 'tool_output'",
}
"""Attributes of the results of other libraries."""

_DELTAS = "event.text of each event of the stream whose event.type is 'text_delta'"
_DRAIN = "await stream.drain(), which returns the result"
_OF_RESULT = ("errors", "handoffs", "interruptions", "items", "messages", "new_items", "stop_reason", "usage")

STREAM: Final[Mapping[str, str]] = {
    **{name: f"stream.result.{ours}" for name, ours in RESULT.items() if " " not in ours},
    **{name: f"stream.result.{name}" for name in _OF_RESULT},
    "all_messages": "stream.result.messages, or to_input_list() for the next run",
    "cancel": "await stream.aclose(), or leave the async with block",
    "get_final_message": _DRAIN,
    "get_output": _DRAIN,
    "is_complete": "stream.result.stop_reason == 'done'",
    "new_messages": "[item.message for item in stream.result.new_items]",
    "stream_output": _DELTAS,
    "stream_responses": "async for event in stream",
    "stream_text": _DELTAS,
    "text_deltas": _DELTAS,
    "text_stream": _DELTAS,
    "until_done": _DRAIN,
}
"""Attributes of the streams of other libraries, and those that only the result of a stream has."""

_FUNCTION_TOOL = "@function_tool above the function, and Agent(tools=[function])"

_OTHER_SKILLS = "dataclasses.replace(agent, skills=[...])"

AGENT: Final[Mapping[str, str]] = {
    "add_skill": _OTHER_SKILLS,
    "ainvoke": "Runner.run(agent, text)",
    "astream": "Runner.run_streamed(agent, text)",
    "clone": "dataclasses.replace(agent, ...)",
    "execute_handoff": "Runner.run(agent, messages, run_config=RunConfig(handler=...))",
    "functions": "tools",
    "get_handoff_by_target": "agent.registered.get(name)",
    "handoff": "@handler(expose=True) above the function, and Agent(handlers=[function])",
    "hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "invoke": "Runner.run_sync(agent, text)",
    "iter": "Runner.run_streamed(agent, text)",
    "list_available_handoffs": "agent.registered.handlers",
    "output_validator": "Agent(output_guardrails=[function])",
    "register_handoff": "Agent(handlers=[...])",
    "register_hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "register_tool": "Agent(tools=[...])",
    "remove_skill": _OTHER_SKILLS,
    "run": "Runner.run(agent, text)",
    "run_stream": "Runner.run_streamed(agent, text)",
    "run_streaming": "Runner.run_streamed(agent, messages)",
    "run_sync": "Runner.run_sync(agent, text)",
    "stream": "Runner.run_streamed(agent, text)",
    "system_prompt": "Agent(instructions=function)",
    "tool": _FUNCTION_TOOL,
    "tool_plain": _FUNCTION_TOOL,
}
"""Attributes of the agents of other libraries."""

REGISTRY: Final[Mapping[str, str]] = {
    "register_handoff": "registry.add_handler(...)",
    "register_hook": "registry.add_hook(...)",
    "register_prompt": "registry.add_prompt(...)",
    "register_tool": "registry.add_tool(...)",
}
"""Methods of webagents' agents, which skills call where routelock has a registry."""

SKILL: Final[Mapping[str, str]] = {
    **{name: f"{ours} in initialize(registry)" for name, ours in REGISTRY.items()},
    "execute_handoff": "request_handoff(name) as the result of a tool, or RunConfig(handler=...)",
    "get_context": "a parameter context: RunContext, which tools and handlers are given",
    "get_dependencies": "dependencies",
    "get_tools": "agent.registered.tools",
}
"""Methods of webagents' skills."""

HOOKS: Final[Mapping[str, str]] = {
    "after_handoff": "'on_handoff'",
    "after_llm_call": "'on_llm_end'",
    "after_toolcall": "'on_tool_end'",
    "before_handoff": "'on_handoff'",
    "before_llm_call": "'on_llm_start'",
    "before_toolcall": "'on_tool_start'",
    "finalize_connection": "'on_end'",
    "on_chunk": "a loop over the events of Runner.run_streamed",
    "on_connection": "'on_start'",
}
"""Events of webagents' hooks."""

LIST: Final[Mapping[str, str]] = dict.fromkeys(
    ("append", "clear", "extend", "insert", "pop", "remove", "sort"),
    "the whole list where the object is made (an agent that is made later by its name, as in "
    "handoffs=['Triage']), or dataclasses.replace(agent, tools=[*agent.tools, another])",
)
"""Methods of lists. The lists of an agent or a handoff are fixed when the object is made."""

_APPROVAL = "function_tool(needs_approval=True), and result.interruptions"
_CONTEXT = "from routelock import RunContext"
_GUARDRAIL = "from routelock import GuardrailResult"
_ITEM = "from routelock import RunItem, with the kind of item in item.kind"
_MCP = "from routelock_skills.mcp import MCPClient"
_MESSAGE = "{'role': 'user', 'content': 'Hi'}, or another dict with a role"
_MODEL = "Agent(model='openai/gpt-4o'), or from routelock_providers import OpenAICompatible"
_NO_TRACE = "nothing: a run is traced only with RunConfig(trace=...)"
_OUTPUT_MODE = "Agent(output_type=..., output_mode=...)"
_PYTHON = "Agent(handoffs=[...]), or Python code for steps that are known"
_SCRIPTED = "from routelock.testing import ScriptedHandler"
_SESSIONS = "from routelock.sessions import"
_VENDOR = "from routelock.tools import VendorTool, and Agent(tools=[VendorTool.web_search()])"

NAMES: Final[Mapping[str, str]] = {
    # openai-agents
    "AgentOutputSchema": "Agent(output_type=...)",
    "AgentUpdatedStreamEvent": "from routelock.run import AgentUpdated",
    "AgentsException": "from routelock import RoutelockError",
    "CodeInterpreterTool": _VENDOR,
    "FileSearchTool": _VENDOR,
    "FunctionTool": "from routelock import Tool",
    "GuardrailFunctionOutput": _GUARDRAIL,
    "HandoffCallItem": _ITEM,
    "HandoffHistoryMapper": "from routelock.history import HandoffHistoryMapper",
    "HandoffOutputItem": _ITEM,
    "HostedMCPTool": _VENDOR,
    "ImageGenerationTool": _VENDOR,
    "InputGuardrail": "Agent(input_guardrails=[function])",
    "InputGuardrailTripwireTriggered": "from routelock.errors import InputGuardrailTripped",
    "ItemHelpers": "from routelock.history import text_of, and text_of(item.message)",
    "LitellmModel": "from routelock_providers import LiteLLM",
    "MCPServerSse": _MCP,
    "MCPServerStdio": _MCP,
    "MCPServerStreamableHttp": _MCP,
    "MessageOutputItem": _ITEM,
    "Model": "from routelock import Handler",
    "ModelProvider": "from routelock import Handler, and RunConfig(model=...)",
    "ModelResponse": "from routelock.handlers import MessageDone",
    "OpenAIChatCompletionsModel": _MODEL,
    "OpenAIResponsesModel": _MODEL,
    "OutputGuardrail": "Agent(output_guardrails=[function])",
    "OutputGuardrailTripwireTriggered": "from routelock.errors import OutputGuardrailTripped",
    "RECOMMENDED_PROMPT_PREFIX": "from routelock.run import RECOMMENDED_PROMPT_PREFIX",
    "ReasoningItem": _ITEM,
    "RawResponsesStreamEvent": "from routelock.handlers import TextDelta",
    "RunContextWrapper": _CONTEXT,
    "RunItemStreamEvent": "from routelock.run import ToolCalled, ToolOutput",
    "RunResultStreaming": "from routelock import RunStream",
    "SQLiteSession": f"{_SESSIONS} Session, SQLiteSessions, and Session('user-7', SQLiteSessions(file))",
    "ScriptedModel": _SCRIPTED,
    "StopAtTools": "from routelock import HandoffRequest, which a tool returns",
    "StreamEvent": "from routelock import RunEvent",
    "TResponseInputItem": "from routelock import Message",
    "ToolCallItem": _ITEM,
    "ToolCallOutputItem": _ITEM,
    "ToolGuardrailFunctionOutput": _GUARDRAIL,
    "UserError": "from routelock import ConfigError",
    "WebSearchTool": _VENDOR,
    "add_trace_processor": "from routelock.tracing import OpenTelemetry, and RunConfig(trace=...)",
    "default_handoff_history_mapper": "from routelock.history import default_handoff_history_mapper",
    "enable_verbose_stdout_logging": "RunConfig(trace='runs.jsonl'), and then: routelock trace runs.jsonl",
    "get_conversation_history_wrappers": "from routelock.history import get_conversation_history_wrappers",
    "handoff_filters": "from routelock.history import remove_all_tools",
    "input_guardrail": "Agent(input_guardrails=[function]), without a decorator",
    "output_guardrail": "Agent(output_guardrails=[function]), without a decorator",
    "prompt_with_handoff_instructions": "from routelock.run import prompt_with_handoff_instructions",
    "remove_all_tools": "from routelock.history import remove_all_tools",
    "reset_conversation_history_wrappers": (
        "from routelock.history import reset_conversation_history_wrappers"
    ),
    "run_demo_loop": "routelock chat module:agent, on the command line",
    "set_conversation_history_wrappers": "from routelock.history import set_conversation_history_wrappers",
    "set_default_openai_api": _MODEL,
    "set_default_openai_client": _MODEL,
    "set_default_openai_key": _MODEL,
    "set_tracing_disabled": _NO_TRACE,
    "set_tracing_export_api_key": _NO_TRACE,
    "trace": "RunConfig(trace=...)",
    # pydantic-ai
    "AgentRunResult": "from routelock import RunResult",
    "AgentStreamEvent": "from routelock import RunEvent",
    "ApprovalRequired": _APPROVAL,
    "BinaryContent": "ToolResult(text, media=[...]), or a message with parts",
    "CallDeferred": "RunConfig(external_tools=[...])",
    "CodeExecutionTool": _VENDOR,
    "DeferredToolRequests": f"RunConfig(external_tools=[...]), or {_APPROVAL}",
    "FunctionModel": _SCRIPTED,
    "ImageUrl": "ToolResult(text, media=[...]), or a message with parts",
    "ModelMessage": "from routelock import Message",
    "ModelRetry": "raise ValueError(text), or another exception: the model gets its text",
    "NativeOutput": _OUTPUT_MODE,
    "PromptedOutput": _OUTPUT_MODE,
    "RunUsage": "from routelock import Usage",
    "StreamedRunResult": "from routelock import RunStream",
    "TestModel": _SCRIPTED,
    "ToolReturn": "from routelock import ToolResult",
    "UnexpectedModelBehavior": "from routelock import ModelBehaviorError",
    "UsageLimitExceeded": "from routelock import LimitExceeded",
    "UsageLimits": "from routelock import Limits, and RunConfig(limits=...)",
    "WebFetchTool": _VENDOR,
    # langgraph and langchain
    "AIMessage": _MESSAGE,
    "Command": "from routelock import HandoffRequest, which a tool returns",
    "END": _PYTHON,
    "GraphRecursionError": "from routelock import MaxTurnsExceeded",
    "HumanMessage": _MESSAGE,
    "InMemorySaver": f"{_SESSIONS} InMemorySessions, Session",
    "InjectedState": f"{_CONTEXT}, and a parameter ctx: RunContext",
    "MemorySaver": f"{_SESSIONS} InMemorySessions, Session",
    "PostgresSaver": f"{_SESSIONS} PostgresSessions, Session",
    "RunnableConfig": f"{_CONTEXT}, and a parameter ctx: RunContext",
    "START": _PYTHON,
    "SqliteSaver": f"{_SESSIONS} Session, SQLiteSessions",
    "StateGraph": _PYTHON,
    "SystemMessage": "Agent(instructions=...)",
    "ToolMessage": _MESSAGE,
    "create_agent": "from routelock import Agent",
    "create_handoff_tool": "from routelock import handoff, or Agent(handoffs=['Bob'])",
    "create_react_agent": "from routelock import Agent",
    "create_supervisor": "Agent(tools=[agent.as_tool()])",
    "create_swarm": "RunConfig(agents=[...]), and Agent(handoffs=['Bob'])",
    "init_chat_model": "Agent(model='openai/gpt-4o')",
    "interrupt": _APPROVAL,
    # Swarm
    "Response": "from routelock import RunResult",
    "Result": "from routelock import ToolResult, or HandoffRequest",
    "Swarm": "from routelock import Runner",
    # webagents
    "AgentHandoffSkill": "from routelock_skills import AgentHandoffSkill",
    "BaseAgent": "from routelock import Agent",
    "LiteLLMSkill": "from routelock_skills import LiteLLMSkill",
    "LocalAgentHandoff": "Agent(handoffs=[other])",
    "get_context": f"{_CONTEXT}, and a parameter context: RunContext",
    "hook": "from routelock.agents import hook",
    "http": "from routelock.serving import create_app, and a route of your own beside it",
    "prompt": "from routelock.agents import prompt",
    # names of routelock that are elsewhere
    "HandoffContext": "from routelock.handoffs import HandoffContext",
    "HandoffFilterError": "from routelock.errors import HandoffFilterError",
    "HandoffOccurred": "from routelock.run import HandoffOccurred",
    "HandoffPayload": "from routelock.handoffs import HandoffPayload",
    "HandoffStatus": "from routelock.handoff_request import HandoffStatus",
    "InMemorySessions": f"{_SESSIONS} InMemorySessions",
    "Journal": "from routelock.state import Journal",
    "LiteLLM": "from routelock_providers import LiteLLM",
    "MCPClient": _MCP,
    "MaxHandoffsExceeded": "from routelock.errors import MaxHandoffsExceeded",
    "OpenAICompatible": "from routelock_providers import OpenAICompatible",
    "OpenTelemetry": "from routelock.tracing import OpenTelemetry",
    "RemoteAgent": "from routelock_providers import RemoteAgent",
    "SQLiteSessions": f"{_SESSIONS} SQLiteSessions",
    "ScriptedHandler": _SCRIPTED,
    "Session": f"{_SESSIONS} Session",
    "TextDelta": "from routelock.handlers import TextDelta",
    "ToolCalled": "from routelock.run import ToolCalled",
    "ToolOutput": "from routelock.run import ToolOutput, or Agent(output_mode='tool') for an output",
    "TraceFile": "from routelock.tracing import TraceFile",
    "VendorTool": "from routelock.tools import VendorTool",
}
"""Names that programs import from other libraries, or from the wrong room, each with what to write."""
