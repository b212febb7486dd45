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
    "REGISTRY",
    "RESULT",
    "RUN_KEYWORDS",
    "SESSION",
    "SKILL",
    "STREAM",
    "TOOL_FIELDS",
    "TOOL_KEYWORDS",
]


_ENDS = "from routelock import HandoffRequest, which a tool returns to end the run with its result"
_MESSAGE_OF_HANDOFF = "instructions= of the agent that takes over, or input_filter="
_PACE = "a handler around the model that waits, or a gateway in front of the model"
_RETRIES = "RunConfig(max_mistakes=...), or retry=Retry(...) for the network, and pass it as run_config="
_SEARCH = "tools=, with a function that searches"
_STATELESS = "nothing: an agent keeps no conversation; a Session does"
_TYPED = "Agent[YourType](...), and pass the object to the run: Runner.run(agent, text, context=...)"
_UNCACHED = "nothing: each call is made; keep a cache in the tool"

AGENT_KEYWORDS: Final[Mapping[str, str]] = {
    "a2a": "handoffs=, with a routelock_providers.A2AAgent",
    "agents": "handoffs=",
    "allow_delegation": "handoffs=[...], or tools=[agent.as_tool()]",
    "backstory": "instructions=",
    "builtin_tools": "tools=, with a routelock.tools.VendorTool such as VendorTool.web_search()",
    "cache": _UNCACHED,
    "callback": "hooks=",
    "callbacks": "hooks=",
    "checkpoint": "Runner.run(agent, text, session=Session(name, store)), or result.state()",
    "checkpointer": "Runner.run(agent, text, session=Session(thread_id, store))",
    "context": "Runner.run(agent, text, context=...)",
    "context_schema": _TYPED,
    "deps_type": _TYPED,
    "description": "handoff_description=",
    "embedder": _SEARCH,
    "event_stream_handler": "Runner.run_streamed(agent, text)",
    "expected_output": "instructions=, or output_type= for a value that is checked",
    "function_calling_llm": "model=",
    "functions": "tools=, with agents in handoffs= and a parameter ctx: RunContext for context_variables",
    "goal": "instructions=",
    "guardrail": "output_guardrails=, with GuardrailResult(False, answer=text) to ask again",
    "guardrail_max_retries": "RunConfig(max_mistakes=...), and pass it as run_config=",
    "guardrails": "input_guardrails= or output_guardrails=",
    "history_processors": "compact=, or a handler around the model",
    "human_input": "needs_approval= of a tool, or the answer of the person as the next input",
    "inject_date": "instructions=, a function that returns the date with the rest",
    "instruction": "instructions=",
    "instrument": "RunConfig(trace=...), and pass it as run_config=",
    "interrupt_before": "needs_approval= of the tool",
    "knowledge": _SEARCH,
    "knowledge_sources": _SEARCH,
    "limits": "RunConfig(limits=...), and pass it as run_config=",
    "llm": "model=",
    "max_execution_time": "RunConfig(timeout=...), and pass it as run_config=",
    "max_iter": "Runner.run(agent, text, max_turns=...)",
    "max_retries": _RETRIES,
    "max_retry_limit": _RETRIES,
    "max_rpm": _PACE,
    "max_tokens": "model_settings={'max_tokens': ...}",
    "max_tool_iterations": "Runner.run(agent, text, max_turns=...)",
    "max_turns": "Runner.run(agent, text, max_turns=...)",
    "mcp_servers": "tools=[*client.tools] with a routelock_skills.mcp.MCPClient",
    "mcps": "tools=[*client.tools] with a routelock_skills.mcp.MCPClient",
    "memory": "Runner.run(agent, text, session=Session(name, store))",
    "middleware": "instructions=function, hooks=, or a handler around the model",
    "model_client": "model=",
    "model_client_stream": "Runner.run_streamed(agent, text)",
    "model_context": "compact=",
    "output": "output_type=",
    "output_content_type": "output_type=",
    "output_file": "nothing: write result.final_output to the file",
    "output_json": "output_type=",
    "output_pydantic": "output_type=",
    "output_retries": "RunConfig(max_mistakes=...), and pass it as run_config=",
    "parallel_tool_calls": "model_settings={'parallel_tool_calls': ...}",
    "planning": "instructions= that ask for a plan first",
    "planning_config": "instructions= that ask for a plan first",
    "pre_model_hook": "compact=, or a handler around the model",
    "prompt": "instructions=",
    "prompt_template": "instructions=",
    "reasoning": "model_settings={'reasoning_effort': ...}",
    "reflect_on_tool_use": "nothing: a model always sees the results of its calls",
    "reset_tool_choice": "nothing: a forced choice holds for the agent's first model call",
    "respect_context_window": "compact=",
    "response_format": "output_type=",
    "response_model": "output_type=",
    "response_template": "instructions=",
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
    "system_template": "instructions=",
    "task_callback": "hooks=",
    "temperature": "model_settings={'temperature': ...}",
    "tool_call_summary_format": _ENDS,
    "tool_call_summary_formatter": _ENDS,
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
    "return_value_as_last_message": "output=, a function of the result",
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
    "message": _MESSAGE_OF_HANDOFF,
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
    "message": _MESSAGE_OF_HANDOFF,
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
    "checkpoint": "Runner.run(..., session=Session(name, store)), or result.state()",
    "checkpointer": "Runner.run(..., session=Session(thread_id, store))",
    "configurable": "user_id=, conversation_id=, or Runner.run(..., context=...)",
    "context": "Runner.run(..., context=...)",
    "deps": "Runner.run(..., context=...)",
    "group_id": "conversation_id=",
    "hooks": "Runner.run(..., hooks=...)",
    "max_iter": "Runner.run(..., max_turns=...)",
    "max_rpm": _PACE,
    "max_turns": "Runner.run(..., max_turns=...), or limits=Limits(turns=...)",
    "memory": "Runner.run(..., session=Session(name, store))",
    "model_provider": "model=, which takes a handler",
    "output_type": "Agent(output_type=...)",
    "recursion_limit": "Runner.run(..., max_turns=...)",
    "requests": "limits=Limits(requests=...)",
    "retries": "max_mistakes=, or retry=Retry(...) for the network",
    "session": "Runner.run(..., session=...)",
    "step_callback": "Runner.run(..., hooks=...)",
    "stream": "Runner.run_streamed(...)",
    "task_callback": "Runner.run(..., hooks=...)",
    "temperature": "model_settings={'temperature': ...}",
    "termination_condition": "limits=Limits(...), or Runner.run(..., max_turns=...)",
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
    "from_checkpoint": "the state as input, the second argument: RunState.from_json(text, agents=[agent])",
    "handoff_name": "run_config=RunConfig(handler=...)",
    "handoffs": "dataclasses.replace(agent, handoffs=[...])",
    "input_files": "a message with parts as input, which is the second argument",
    "inputs": "context=, which instructions and tools read as ctx.context",
    "instructions": "dataclasses.replace(agent, instructions=...)",
    "max_tool_iterations": "max_turns=",
    "message_history": "the messages as input: [*earlier.to_input_list(), message]",
    "messages": "the messages as input, which is the second argument",
    "model_override": "run_config=RunConfig(model=...)",
    "output_task_messages": "nothing: result.new_items leaves the input out",
    "output_type": "Agent(output_type=...)",
    "previous_response_id": "session=Session(...)",
    "recursion_limit": "max_turns=",
    "response_format": "Agent(output_type=...)",
    "response_model": "Agent(output_type=...)",
    "session_id": "session=Session(session_id, store)",
    "step_callback": "hooks=",
    "stream": "Runner.run_streamed(...)",
    "stream_mode": "Runner.run_streamed(...)",
    "task": "the text as input, which is the second argument",
    "task_callback": "hooks=",
    "temperature": "run_config=RunConfig(model_settings={'temperature': ...})",
    "termination_condition": "max_turns=, or run_config=RunConfig(limits=Limits(...))",
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
    "cache_function": _UNCACHED,
    "docstring_format": "nothing: the style of a docstring is found",
    "docstring_style": "nothing: the style of a docstring is found",
    "global_imports": "nothing: a tool is not stored as code",
    "max_retries": "RunConfig(max_mistakes=...), for all mistakes of a model",
    "max_usage_count": "is_enabled=, or RunConfig(limits=Limits(tool_calls=...)) for all tools",
    "parse_docstring": "nothing: a docstring is always read",
    "prepare": "is_enabled=",
    "requires_approval": "needs_approval=",
    "result_as_answer": _ENDS,
    "result_schema": "nothing: the value that the function returns is shown as it is",
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

TOOL_FIELDS: Final[Mapping[str, str]] = {
    "": "@function_tool above the function, or function_tool(function), to make a tool of a function",
    "args_schema": "params_json_schema=, a JSON schema",
    "coroutine": "function_tool(function)",
    "fn": "function_tool(function)",
    "func": "function_tool(function)",
    "function": "function_tool(function)",
    "input_schema": "params_json_schema=",
    "parameters": "params_json_schema=",
}
"""Keywords of the class of tools; the empty name is a positional argument."""

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
    "chat_message": "final_output",
    "content": "final_output",
    "context_variables": "context.context, or context.shared_memory",
    "context_wrapper": "context",
    "cost": "usage.cost",
    "current_agent": "last_agent, which answered",
    "data": "final_output",
    "has_tool_failures": "errors",
    "inner_messages": "new_items",
    "input": "items[:result.input_count]",
    "input_guardrail_results": "guardrail_results, those whose kind is 'input'",
    "interrupts": "interruptions",
    "is_complete": "stop_reason == 'done'",
    "json_dict": "final_output",
    "last_response": "raw_replies[-1]",
    "last_response_id": "raw_replies[-1].response_id",
    "models_usage": "usage",
    "new_messages": "[item.message for item in result.new_items]",
    "output": "final_output",
    "output_guardrail_results": "guardrail_results, those whose kind is 'output'",
    "pydantic": "final_output",
    "raw": "final_output",
    "raw_responses": "raw_replies",
    "response": "raw_replies[-1]",
    "response_id": "raw_replies[-1].response_id",
    "run_id": "context.run_id",
    "tasks_output": "final_output of each run, one for each task",
    "text": "final_output",
    "to_state": "state()",
    "token_usage": "usage",
    "tool_calls": "item.message.get('tool_calls') of each of new_items",
    "tool_failures": "errors",
    "tool_input_guardrail_results": "guardrail_results, those whose kind is 'tool_input'",
    "tool_output_guardrail_results": "guardrail_results, those whose kind is 'tool_output'",
    "usage_metrics": "usage",
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
    "akickoff": "Runner.run(agent, text)",
    "astream": "Runner.run_streamed(agent, text)",
    "backstory": "instructions",
    "bind_tools": "Agent(tools=[...])",
    "clone": "dataclasses.replace(agent, ...)",
    "description": "handoff_description",
    "execute_handoff": "Runner.run(agent, messages, run_config=RunConfig(handler=...))",
    "execute_task": "Runner.run_sync(agent, text)",
    "functions": "tools",
    "get_handoff_by_target": "agent.registered.get(name)",
    "goal": "instructions",
    "handoff": "@handler(expose=True) above the function, and Agent(handlers=[function])",
    "hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "invoke": "Runner.run_sync(agent, text)",
    "iter": "Runner.run_streamed(agent, text)",
    "kickoff": "Runner.run_sync(agent, text)",
    "kickoff_async": "Runner.run(agent, text)",
    "list_available_handoffs": "agent.registered.handlers",
    "load_state": "RunState.from_json(text, agents=[agent]), or Session(name, store)",
    "message": "Runner.run_sync(agent, text)",
    "model_client": "model",
    "model_context": "compact",
    "on_messages": "Runner.run(agent, messages)",
    "on_messages_stream": "Runner.run_streamed(agent, messages)",
    "on_reset": _STATELESS,
    "output_validator": "output_guardrails=[...], with GuardrailResult(False, answer=text) to ask again",
    "override": "RunConfig(model=...), which is for all agents of the run",
    "register_handoff": "Agent(handlers=[...])",
    "register_hook": "Agent(hooks=AgentHooks()), or @hook in a skill",
    "register_tool": "Agent(tools=[...])",
    "remove_skill": _OTHER_SKILLS,
    "reset": _STATELESS,
    "role": "name",
    "run": "Runner.run(agent, text)",
    "run_stream": "Runner.run_streamed(agent, text)",
    "run_stream_events": "Runner.run_streamed(agent, text)",
    "run_streaming": "Runner.run_streamed(agent, messages)",
    "run_sync": "Runner.run_sync(agent, text)",
    "save_state": "result.state().to_json(), or Session(name, store)",
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
