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
    "HANDOFF_FIELDS",
    "HANDOFF_KEYWORDS",
    "HOOKS",
    "LIMIT_KEYWORDS",
    "LIST",
    "NAMES",
    "REGISTRY",
    "RESULT",
    "RUN_KEYWORDS",
    "SESSION",
    "SKILL",
    "STREAM",
    "TOOL_KEYWORDS",
]


_ENDS = "from routelock import HandoffRequest, which a tool returns to end the run with its result"
_RETRIES = "RunConfig(max_mistakes=...), or retry=Retry(...) for the network, and pass it as run_config="
_TYPED = "Agent[YourType](...), and pass the object to the run: Runner.run(agent, text, context=...)"

AGENT_KEYWORDS: Final[Mapping[str, str]] = {
    "agents": "handoffs=",
    "allow_delegation": "handoffs=[...], or tools=[agent.as_tool()]",
    "backstory": "instructions=",
    "builtin_tools": "tools=, with a routelock.tools.VendorTool such as VendorTool.web_search()",
    "checkpointer": "Runner.run(agent, text, session=Session(thread_id, store))",
    "context": "Runner.run(agent, text, context=...)",
    "context_schema": _TYPED,
    "deps_type": _TYPED,
    "description": "handoff_description=",
    "event_stream_handler": "Runner.run_streamed(agent, text)",
    "functions": "tools=, with agents in handoffs= and a parameter ctx: RunContext for context_variables",
    "goal": "instructions=",
    "guardrails": "input_guardrails= or output_guardrails=",
    "history_processors": "compact=, or a handler around the model",
    "instruction": "instructions=",
    "instrument": "RunConfig(trace=...), and pass it as run_config=",
    "interrupt_before": "needs_approval= of the tool",
    "limits": "RunConfig(limits=...), and pass it as run_config=",
    "llm": "model=",
    "max_iter": "Runner.run(agent, text, max_turns=...)",
    "max_retries": _RETRIES,
    "max_tokens": "model_settings={'max_tokens': ...}",
    "max_turns": "Runner.run(agent, text, max_turns=...)",
    "mcp_servers": "tools=[*client.tools] with a routelock_skills.mcp.MCPClient",
    "memory": "Runner.run(agent, text, session=Session(name, store))",
    "middleware": "instructions=function, hooks=, or a handler around the model",
    "model_client": "model=",
    "model_context": "compact=",
    "output": "output_type=",
    "output_content_type": "output_type=",
    "output_pydantic": "output_type=",
    "output_retries": "RunConfig(max_mistakes=...), and pass it as run_config=",
    "parallel_tool_calls": "model_settings={'parallel_tool_calls': ...}",
    "pre_model_hook": "compact=, or a handler around the model",
    "prompt": "instructions=",
    "reflect_on_tool_use": "nothing: a model always sees the results of its calls",
    "reset_tool_choice": "nothing: a forced choice holds for the agent's first model call",
    "response_format": "output_type=",
    "result_type": "output_type=",
    "retries": _RETRIES,
    "role": "instructions=, and a name as the first argument",
    "scopes": "scope= of each tool, handler or skill, and RunConfig(scopes=...) for the user of a run",
    "session": "Runner.run(agent, text, session=Session(name, store))",
    "state_schema": _TYPED,
    "step_callback": "hooks=",
    "store": "Runner.run(agent, text, context=...)",
    "sub_agents": "handoffs=",
    "system_message": "instructions=",
    "system_prompt": "instructions=",
    "temperature": "model_settings={'temperature': ...}",
    "tool_choice": "model_settings={'tool_choice': ...}",
    "tool_use_behavior": _ENDS,
    "toolsets": "tools=, or skills=",
    "usage_limits": "RunConfig(limits=Limits(...)), and pass it as run_config=",
    "verbose": "RunConfig(trace=...), and pass it as run_config=",
    "workbench": "tools=[*client.tools] with a routelock_skills.mcp.MCPClient",
}
"""Keywords of agents of openai-agents, Swarm, pydantic-ai, LangChain, webagents, AutoGen, crewAI, others."""

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

HANDOFF_FIELDS: Final[Mapping[str, str]] = {
    "agent": "target=",
    "description": "tool_description=; a handler in the spelling of webagents is a routelock_skills.Handoff",
    "name": "tool_name=",
    "tool_description_override": "tool_description=",
    "tool_name_override": "tool_name=",
}
"""Keywords of the class of handoffs."""

HANDOFF_KEYWORDS: Final[Mapping[str, str]] = {
    "agent_name": "the agent, or its name, as the first argument",
    "description": "tool_description_override=",
    "filter": "input_filter=",
    "input_schema": "input_type=",
    "name": "tool_name_override=",
    "on_invoke_handoff": "routelock.Handoff(on_invoke_handoff=...)",
    "prompt": "tool_description_override=, or routelock_skills.handoff to make a handler of a function",
    "target": "the agent, or its name, as the first argument",
    "tool_description": "tool_description_override=",
    "tool_name": "tool_name_override=",
}
"""Keywords of the functions that make handoffs."""

CONFIG_KEYWORDS: Final[Mapping[str, str]] = {
    "call_model_input_filter": "a handler around the model",
    "checkpointer": "Runner.run(..., session=Session(thread_id, store))",
    "configurable": "user_id=, conversation_id=, or Runner.run(..., context=...)",
    "context": "Runner.run(..., context=...)",
    "deps": "Runner.run(..., context=...)",
    "group_id": "conversation_id=",
    "hooks": "Runner.run(..., hooks=...)",
    "max_iter": "Runner.run(..., max_turns=...)",
    "max_turns": "Runner.run(..., max_turns=...), or limits=Limits(turns=...)",
    "model_provider": "model=, which takes a handler",
    "output_type": "Agent(output_type=...)",
    "recursion_limit": "Runner.run(..., max_turns=...)",
    "requests": "limits=Limits(requests=...)",
    "retries": "max_mistakes=, or retry=Retry(...) for the network",
    "session": "Runner.run(..., session=...)",
    "temperature": "model_settings={'temperature': ...}",
    "thread_id": "Runner.run(..., session=Session(thread_id, store))",
    "tokens": "limits=Limits(tokens=...)",
    "tool_calls": "limits=Limits(tool_calls=...)",
    "tool_error_formatter": "function_tool(failure_error_function=...)",
    "tools": "Agent(tools=[...])",
    "tracing_disabled": "nothing: a run is traced only with trace=",
    "turns": "limits=Limits(turns=...), or Runner.run(..., max_turns=...)",
    "usage_limits": "limits=Limits(...)",
    "verbose": "trace=",
    "workflow_name": "nothing: a run is traced only with trace=",
}
"""Keywords of the settings of a run."""

LIMIT_KEYWORDS: Final[Mapping[str, str]] = {
    "input_tokens_limit": "tokens=, which counts input and output",
    "max_handoffs": "handoffs=",
    "max_turns": "turns=",
    "output_tokens_limit": "tokens=, which counts input and output",
    "request_limit": "requests=",
    "request_tokens_limit": "tokens=, which counts input and output",
    "response_tokens_limit": "tokens=, which counts input and output",
    "timeout": "seconds=",
    "tool_calls_limit": "tool_calls=",
    "total_tokens_limit": "tokens=",
}
"""Keywords of the limits of a run."""

RUN_KEYWORDS: Final[Mapping[str, str]] = {
    "agent": "the agent as the first argument",
    "callbacks": "hooks=",
    "cancellation_token": "handle=RunHandle(), and handle.stop()",
    "checkpointer": "session=Session(thread_id, store)",
    "config": "run_config=RunConfig(...)",
    "context_variables": "context=, which tools read as ctx.context",
    "debug": "run_config=RunConfig(trace=...)",
    "deferred_tool_results": "the state as input, which is the second argument: result.state().approve(one)",
    "deps": "context=, which tools read as ctx.context",
    "error_handlers": "run_config=RunConfig(on_limit=..., on_invalid_output=..., on_refusal=...)",
    "event_stream_handler": "Runner.run_streamed(...)",
    "handoff_name": "run_config=RunConfig(handler=...)",
    "handoffs": "dataclasses.replace(agent, handoffs=[...])",
    "inputs": "context=, which instructions and tools read as ctx.context",
    "instructions": "dataclasses.replace(agent, instructions=...)",
    "message_history": "the messages as input: [*earlier.to_input_list(), message]",
    "messages": "the messages as input, which is the second argument",
    "model_override": "run_config=RunConfig(model=...)",
    "output_type": "Agent(output_type=...)",
    "previous_response_id": "session=Session(...)",
    "recursion_limit": "max_turns=",
    "session_id": "session=Session(session_id, store)",
    "stream": "Runner.run_streamed(...)",
    "stream_mode": "Runner.run_streamed(...)",
    "task": "the text as input, which is the second argument",
    "temperature": "run_config=RunConfig(model_settings={'temperature': ...})",
    "thread_id": "session=Session(thread_id, ...)",
    "tools": "run_config=RunConfig(external_tools=...) for tools that the caller runs, or Agent(tools=...)",
    "toolsets": "dataclasses.replace(agent, tools=[...])",
    "usage": "nothing: add up result.usage of the runs, and set Limits(...) to what is left",
    "usage_limits": "run_config=RunConfig(limits=Limits(...))",
    "user_prompt": "the text as input, which is the second argument",
}
"""Keywords of the methods that start a run, besides the settings in `RunConfig`."""

_OF_BOTH = {
    "args_schema": "annotations of the parameters, or Tool(params_json_schema=..., on_invoke_tool=...)",
    "docstring_format": "nothing: the style of a docstring is found",
    "docstring_style": "nothing: the style of a docstring is found",
    "max_retries": "RunConfig(max_mistakes=...), for all mistakes of a model",
    "parse_docstring": "nothing: a docstring is always read",
    "prepare": "is_enabled=",
    "requires_approval": "needs_approval=",
    "result_as_answer": _ENDS,
    "retries": "RunConfig(max_mistakes=...), for all mistakes of a model",
    "return_direct": _ENDS,
    "takes_ctx": "nothing: a parameter annotated RunContext gets the context",
    "use_docstring_info": "nothing: a docstring is always read",
}
"""Keywords of the decorators of other libraries."""

TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    **_OF_BOTH,
    "defer_loading": "deferred=",
    "description_override": "description=",
    "failure_error_function": "on_error=",
    "name_override": "name=",
    "strict_mode": "strict=",
    "tool_input_guardrails": "input_guardrails=",
    "tool_output_guardrails": "output_guardrails=",
}
"""Keywords of ``function_tool`` where ``tool`` has its own names."""

FUNCTION_TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    **_OF_BOTH,
    "deferred": "defer_loading=",
    "description": "description_override=",
    "input_guardrails": "tool_input_guardrails=",
    "name": "name_override=",
    "on_error": "failure_error_function=",
    "output_guardrails": "tool_output_guardrails=",
    "strict": "strict_mode=",
}
"""Keywords of ``tool`` where ``function_tool`` has its own names."""

CONTEXT: Final[Mapping[str, str]] = {
    "config": "user_id, conversation_id or context",
    "configurable": "context",
    "context_variables": "context",
    "deps": "context",
    "interrupt": "a ToolQuestion, which the tool returns, and answer of its ToolContext",
    "run_step": "turn",
    "state": "context, or shared_memory",
    "store": "context",
    "tool_call_id": "ctx: ToolContext, which has it, as the parameter of the tool",
    "tool_name": "ctx: ToolContext, which has it, as the parameter of the tool",
}
"""Attributes of the contexts that tools of other libraries are given."""

RESULT: Final[Mapping[str, str]] = {
    "active_agent": "last_agent, or next_agent",
    "agent": "last_agent",
    "all_messages": "messages, or to_input_list() for the next run",
    "all_messages_json": "json.dumps(result.messages): messages are dicts",
    "chat_history": "messages",
    "content": "final_output",
    "context_variables": "context.context, or context.shared_memory",
    "context_wrapper": "context",
    "cost": "usage.cost",
    "current_agent": "last_agent, which answered",
    "data": "final_output",
    "input": "items[:result.input_count]",
    "input_guardrail_results": "guardrail_results, those whose kind is 'input'",
    "interrupts": "interruptions",
    "is_complete": "stop_reason == 'done'",
    "last_response": "raw_replies[-1]",
    "last_response_id": "raw_replies[-1].response_id",
    "new_messages": "[item.message for item in result.new_items]",
    "output": "final_output",
    "output_guardrail_results": "guardrail_results, those whose kind is 'output'",
    "pydantic": "final_output",
    "raw": "final_output",
    "raw_responses": "raw_replies",
    "response": "raw_replies[-1]",
    "response_id": "raw_replies[-1].response_id",
    "run_id": "context.run_id",
    "text": "final_output",
    "to_state": "state()",
    "token_usage": "usage",
    "tool_calls": "item.message.get('tool_calls') of each of new_items",
    "tool_input_guardrail_results": "guardrail_results, those whose kind is 'tool_input'",
    "tool_output_guardrail_results": "guardrail_results, those whose kind is 'tool_output'",
    "value": "final_output",
}
"""Attributes of the results of other libraries."""

_DELTAS = "event.text of each event of the stream whose event.type is 'text_delta'"
_PARTIAL = "async for value in stream.partial_output()"
_DRAIN = "await stream.drain(), which returns the result"
_OF_RESULT = (
    "calls citations compactions context errors guardrail_results handoffs input_count "
    "interruptions items last_handler messages nested new_items next_agent pending raw_replies refusal "
    "repairs stop_reason usage usage_by_agent usage_by_edge usage_by_handler usage_by_model vendor_calls "
    "warnings"
).split()

STREAM: Final[Mapping[str, str]] = {
    **{name: f"stream.result.{ours}" for name, ours in RESULT.items() if " " not in ours},
    **{name: f"stream.result.{name}" for name in _OF_RESULT},
    "all_messages": "stream.result.messages, or to_input_list() for the next run",
    "cancel": "await stream.aclose(), or leave the async with block",
    "final_output_as": "stream.result.final_output_as(...)",
    "final_result": _DRAIN,
    "get_final_message": _DRAIN,
    "get_output": _DRAIN,
    "is_complete": "stream.result.stop_reason == 'done'",
    "new_messages": "[item.message for item in stream.result.new_items]",
    "require_output": "stream.result.require_output()",
    "state": "stream.result.state()",
    "stream_output": _PARTIAL,
    "stream_responses": "async for event in stream",
    "stream_structured": _PARTIAL,
    "stream_text": _DELTAS,
    "text_deltas": _DELTAS,
    "text_stream": _DELTAS,
    "until_done": _DRAIN,
}
"""Attributes of the streams of other libraries, and those that only the result of a stream has."""

_LOADED = "(await session.load()).messages"

SESSION: Final[Mapping[str, str]] = {
    "add_items": "await session.add(messages)",
    "clear_session": "await session.clear()",
    "get_items": _LOADED,
    "get_messages": _LOADED,
    "messages": _LOADED,
    "session_id": "name",
}
"""Attributes of the sessions of other libraries."""

_FUNCTION_TOOL = "@function_tool above the function, and Agent(tools=[function])"

_OTHER_SKILLS = "dataclasses.replace(agent, skills=[...])"

AGENT: Final[Mapping[str, str]] = {
    "add_skill": _OTHER_SKILLS,
    "ainvoke": "Runner.run(agent, text)",
    "astream": "Runner.run_streamed(agent, text)",
    "bind_tools": "Agent(tools=[...])",
    "clone": "dataclasses.replace(agent, ...)",
    "execute_handoff": "Runner.run(agent, messages, run_config=RunConfig(handler=...))",
    "functions": "tools",
    "get_handoff_by_target": "agent.registered.get(name)",
    "handoff": "@handler(expose=True) above the function, and Agent(handlers=[function])",
    "hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "invoke": "Runner.run_sync(agent, text)",
    "iter": "Runner.run_streamed(agent, text)",
    "kickoff": "Runner.run_sync(agent, text)",
    "list_available_handoffs": "agent.registered.handlers",
    "output_validator": "output_guardrails=[...], with GuardrailResult(False, answer=text) to ask again",
    "override": "RunConfig(model=...), which is for all agents of the run",
    "register_handoff": "Agent(handlers=[...])",
    "register_hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "register_tool": "Agent(tools=[...])",
    "remove_skill": _OTHER_SKILLS,
    "run": "Runner.run(agent, text)",
    "run_stream": "Runner.run_streamed(agent, text)",
    "run_stream_events": "Runner.run_streamed(agent, text)",
    "run_streaming": "Runner.run_streamed(agent, messages)",
    "run_sync": "Runner.run_sync(agent, text)",
    "stream": "Runner.run_streamed(agent, text)",
    "system_prompt": "Agent(instructions=function)",
    "to_cli_sync": "routelock chat module:agent, on the command line",
    "tool": _FUNCTION_TOOL,
    "tool_plain": _FUNCTION_TOOL,
    "toolset": "Agent(tools=[...], skills=[...])",
    "with_structured_output": "Agent(output_type=...)",
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
_ASKS = f"from routelock.tools import ToolQuestion, which a tool returns, or {_APPROVAL}"
_COMPACT = "from routelock import Compact, and Agent(compact=...)"
_CONTEXT = "from routelock import RunContext"
_GUARDRAIL = "from routelock import GuardrailResult"
_ITEM = "from routelock import RunItem, with the kind of item in item.kind"
_MCP = "from routelock_skills.mcp import MCPClient"
_LIMITS = "from routelock import Limits, and RunConfig(limits=...)"
_MESSAGE = "{'role': 'user', 'content': 'Hi'}, or another dict with a role"
_MODEL = "Agent(model='openai/gpt-4o'), or from routelock_providers import OpenAICompatible"
_NO_TRACE = "nothing: a run is traced only with RunConfig(trace=...)"
_ONE_BY_ONE = "Python code that calls Runner.run for each step, or Agent(handoffs=[...]) if a model decides"
_OUTPUT_MODE = "Agent(output_type=..., output_mode=...)"
_PYTHON = "Agent(handoffs=[...]), or Python code for steps that are known"
_SCRIPTED = "from routelock.testing import ScriptedHandler"
_SESSIONS = "from routelock.sessions import"
_RECORD = "from routelock.guardrails import GuardrailRecord, and result.guardrail_results"
_RESULT = "from routelock import RunResult"
_VENDOR = "from routelock.tools import VendorTool, and Agent(tools=[VendorTool.web_search()])"

NAMES: Final[Mapping[str, str]] = {
    # openai-agents
    "AgentOutputSchema": "Agent(output_type=...)",
    "AgentUpdatedStreamEvent": "from routelock.run import AgentUpdated",
    "AgentsException": "from routelock import RoutelockError",
    "CodeInterpreterTool": _VENDOR,
    "EncryptedSession": f"{_SESSIONS} Session, EncryptedSessions",
    "FileSearchTool": _VENDOR,
    "FunctionTool": "from routelock import Tool",
    "FunctionToolResult": _ENDS,
    "GuardrailFunctionOutput": _GUARDRAIL,
    "HandoffCallItem": _ITEM,
    "HandoffHistoryMapper": "from routelock.history import HandoffHistoryMapper",
    "HandoffOutputItem": _ITEM,
    "HostedMCPTool": _VENDOR,
    "ImageGenerationTool": _VENDOR,
    "InputGuardrail": "Agent(input_guardrails=[function])",
    "InputGuardrailResult": _RECORD,
    "InputGuardrailTripwireTriggered": "from routelock.errors import InputGuardrailTripped",
    "ItemHelpers": "from routelock.history import text_of, and text_of(item.message)",
    "LitellmModel": "from routelock_providers import LiteLLM",
    "MCPServer": _MCP,
    "MCPServerSse": _MCP,
    "MCPServerStdio": _MCP,
    "MCPServerStreamableHttp": _MCP,
    "MessageOutputItem": _ITEM,
    "Model": "from routelock import Handler",
    "ModelProvider": "from routelock import Handler, and RunConfig(model=...)",
    "ModelRefusalError": "from routelock import ModelBehaviorError, or RunConfig(on_refusal=...)",
    "ModelResponse": "from routelock.handlers import MessageDone",
    "OpenAIChatCompletionsModel": _MODEL,
    "OpenAIProvider": _MODEL,
    "OpenAIResponsesModel": _MODEL,
    "OutputGuardrail": "Agent(output_guardrails=[function])",
    "OutputGuardrailResult": _RECORD,
    "OutputGuardrailTripwireTriggered": "from routelock.errors import OutputGuardrailTripped",
    "RECOMMENDED_PROMPT_PREFIX": "from routelock.run import RECOMMENDED_PROMPT_PREFIX",
    "ReasoningItem": _ITEM,
    "RawResponsesStreamEvent": "from routelock.handlers import TextDelta",
    "RunContextWrapper": _CONTEXT,
    "RunItemStreamEvent": "from routelock.run import ToolCalled, ToolOutput",
    "RunResultStreaming": "from routelock import RunStream",
    "SQLAlchemySession": f"{_SESSIONS} Session, PostgresSessions",
    "SQLiteSession": f"{_SESSIONS} Session, SQLiteSessions, and Session('user-7', SQLiteSessions(file))",
    "ScriptedModel": _SCRIPTED,
    "StopAtTools": "from routelock import HandoffRequest, which a tool returns",
    "StreamEvent": "from routelock import RunEvent",
    "TResponseInputItem": "from routelock import Message",
    "ToolCallItem": _ITEM,
    "ToolCallOutputItem": _ITEM,
    "ToolGuardrailFunctionOutput": _GUARDRAIL,
    "ToolInputGuardrailData": "function_tool(tool_input_guardrails=[function]), whose third argument it is",
    "ToolInputGuardrailTripwireTriggered": "from routelock.errors import ToolGuardrailTripped",
    "ToolOutputGuardrailData": "function_tool(tool_output_guardrails=[function]), whose third argument it is",
    "ToolOutputGuardrailTripwireTriggered": "from routelock.errors import ToolGuardrailTripped",
    "ToolTimeoutError": "from routelock.errors import ToolTimeout",
    "ToolsToFinalOutputResult": _ENDS,
    "UserError": "from routelock import ConfigError",
    "WebSearchTool": _VENDOR,
    "add_trace_processor": "from routelock.tracing import OpenTelemetry, and RunConfig(trace=...)",
    "default_handoff_history_mapper": "from routelock.history import default_handoff_history_mapper",
    "enable_verbose_stdout_logging": "RunConfig(trace='runs.jsonl'), and then: routelock trace runs.jsonl",
    "get_conversation_history_wrappers": "from routelock.history import get_conversation_history_wrappers",
    "gen_trace_id": "RunConfig(conversation_id=...), which traces have",
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
    "tool_input_guardrail": "function_tool(tool_input_guardrails=[function]), without a decorator",
    "tool_output_guardrail": "function_tool(tool_output_guardrails=[function]), without a decorator",
    "trace": "RunConfig(trace=...)",
    # pydantic-ai
    "ALLOW_MODEL_REQUESTS": "from routelock.testing import no_models",
    "AgentRunResult": "from routelock import RunResult",
    "AgentStreamEvent": "from routelock import RunEvent",
    "AnthropicModel": _MODEL,
    "ApprovalRequired": _APPROVAL,
    "BinaryContent": "ToolResult(text, media=[...]), or a message with parts",
    "CallDeferred": "RunConfig(external_tools=[...])",
    "CodeExecutionTool": _VENDOR,
    "DeferredToolRequests": f"RunConfig(external_tools=[...]), or {_APPROVAL}",
    "DeferredToolResults": "result.state().approve(one), or .reject(one)",
    "FallbackModel": "Agent(handlers=[...]), and RunConfig(fallback=True)",
    "FunctionModel": _SCRIPTED,
    "FunctionToolCallEvent": "from routelock.run import ToolCalled",
    "GoogleModel": _MODEL,
    "Graph": _ONE_BY_ONE,
    "ImageUrl": "ToolResult(text, media=[...]), or a message with parts",
    "ModelMessage": "from routelock import Message",
    "ModelMessagesTypeAdapter": "json.dumps(result.to_input_list()): messages are dicts",
    "ModelRequest": "from routelock import Message",
    "ModelRetry": "raise ValueError(text) in a tool, or GuardrailResult(False, answer=text) from a guardrail",
    "NativeOutput": _OUTPUT_MODE,
    "OpenAIChatModel": _MODEL,
    "OpenAIModel": _MODEL,
    "PartDeltaEvent": "from routelock.handlers import TextDelta",
    "PromptedOutput": _OUTPUT_MODE,
    "RunUsage": "from routelock import Usage",
    "StreamedRunResult": "from routelock import RunStream",
    "TestModel": _SCRIPTED,
    "ToolApproved": "result.state().approve(one)",
    "ToolDenied": "result.state().reject(one, message=...)",
    "ToolReturn": "from routelock import ToolResult",
    "UnexpectedModelBehavior": "from routelock import ModelBehaviorError",
    "UsageLimitExceeded": "from routelock import LimitExceeded",
    "UsageLimits": "from routelock import Limits, and RunConfig(limits=...)",
    "WebFetchTool": _VENDOR,
    "capture_run_messages": "result.messages, or error.result.messages",
    # langgraph and langchain
    "AIMessage": _MESSAGE,
    "AIMessageChunk": "from routelock.handlers import TextDelta",
    "AgentState": _TYPED,
    "AnyMessage": "from routelock import Message",
    "BaseMessage": "from routelock import Message",
    "Command": "from routelock import HandoffRequest, which a tool returns",
    "END": _PYTHON,
    "GraphRecursionError": "from routelock import MaxTurnsExceeded",
    "HumanInTheLoopMiddleware": _APPROVAL,
    "HumanMessage": _MESSAGE,
    "InMemorySaver": f"{_SESSIONS} InMemorySessions, Session",
    "InMemoryStore": "an object of yours: Runner.run(agent, text, context=...)",
    "InjectedState": f"{_CONTEXT}, and a parameter ctx: RunContext",
    "MemorySaver": f"{_SESSIONS} InMemorySessions, Session",
    "MessagesState": _TYPED,
    "PostgresSaver": f"{_SESSIONS} PostgresSessions, Session",
    "ProviderStrategy": _OUTPUT_MODE,
    "RetryPolicy": "from routelock import Retry, and RunConfig(retry=...)",
    "RunnableConfig": f"{_CONTEXT}, and a parameter ctx: RunContext",
    "START": _PYTHON,
    "Send": _ONE_BY_ONE,
    "SqliteSaver": f"{_SESSIONS} Session, SQLiteSessions",
    "StateGraph": _PYTHON,
    "SummarizationMiddleware": _COMPACT,
    "SystemMessage": "Agent(instructions=...)",
    "ToolMessage": _MESSAGE,
    "ToolNode": "Agent(tools=[...])",
    "ToolRuntime": "from routelock import ToolContext, and a parameter ctx: ToolContext",
    "ToolStrategy": _OUTPUT_MODE,
    "create_agent": "from routelock import Agent",
    "create_handoff_tool": "from routelock import handoff, or Agent(handoffs=['Bob'])",
    "create_react_agent": "from routelock import Agent",
    "create_supervisor": "Agent(tools=[agent.as_tool()]), or handoff(agent, return_to_caller=True)",
    "create_swarm": "RunConfig(agents=[...]), and Agent(handoffs=['Bob'])",
    "dynamic_prompt": "Agent(instructions=function), without a decorator",
    "init_chat_model": "Agent(model='openai/gpt-4o')",
    "interrupt": _ASKS,
    "trim_messages": _COMPACT,
    # Swarm
    "Response": "from routelock import RunResult",
    "Result": "from routelock import ToolResult, or HandoffRequest",
    "Swarm": "from routelock import Runner, with agents in Agent(handoffs=[...])",
    # webagents
    "AgentHandoffSkill": "from routelock_skills import AgentHandoffSkill",
    "BaseAgent": "from routelock import Agent",
    "LiteLLMSkill": "from routelock_skills import LiteLLMSkill",
    "LocalAgentHandoff": "Agent(handoffs=[other])",
    "get_context": f"{_CONTEXT}, and a parameter context: RunContext",
    "hook": "from routelock.agents import hook",
    "http": "from routelock.serving import create_app, and a route of your own beside it",
    "prompt": "from routelock.agents import prompt",
    # autogen
    "AgentTool": "agent.as_tool(...)",
    "AssistantAgent": "from routelock import Agent",
    "CancellationToken": "from routelock import RunHandle, and Runner.run(..., handle=...)",
    "Console": "routelock chat module:agent, on the command line",
    "HandoffMessage": _MESSAGE,
    "HandoffTermination": "nothing: a reply without calls ends the run, and the user answers",
    "MaxMessageTermination": _LIMITS,
    "OpenAIChatCompletionClient": _MODEL,
    "ReplayChatCompletionClient": _SCRIPTED,
    "RoundRobinGroupChat": _ONE_BY_ONE,
    "SelectorGroupChat": _ONE_BY_ONE,
    "TaskResult": _RESULT,
    "TextMessage": _MESSAGE,
    "UserProxyAgent": _ASKS,
    # crewAI
    "BaseTool": "from routelock import function_tool",
    "Crew": _ONE_BY_ONE,
    "CrewOutput": _RESULT,
    "Flow": _ONE_BY_ONE,
    "LLM": "Agent(model='openai/gpt-4o')",
    "Process": _ONE_BY_ONE,
    "Task": "the text of the task as input, and Agent(output_type=...) for its expected output",
    "TaskOutput": _RESULT,
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
