"""Names from other agent libraries, and what to write in their place.

A wrong keyword stays the TypeError that Python raises, and a wrong attribute an AttributeError. A note, or
the end of the message, says the name that routelock has for the same thing.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

__all__ = [
    "AGENT",
    "AGENT_KEYWORDS",
    "AS_TOOL_KEYWORDS",
    "CONFIG_KEYWORDS",
    "CONTEXT",
    "FUNCTION_TOOL_KEYWORDS",
    "HANDOFF_KEYWORDS",
    "RESULT",
    "RUN_KEYWORDS",
    "TOOL_KEYWORDS",
    "hint_attributes",
    "hint_keywords",
]


AGENT_KEYWORDS: Final[Mapping[str, str]] = {
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
    "sub_agents": "handoffs=",
    "system_message": "instructions=",
    "system_prompt": "instructions=",
    "temperature": "model_settings={'temperature': ...}",
    "tool_choice": "model_settings={'tool_choice': ...}",
    "toolsets": "tools=, or skills=",
}
"""Keywords of the agents of openai-agents, Swarm, pydantic-ai, LangChain and others."""

AS_TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "custom_output_extractor": "output=",
    "description": "tool_description=",
    "failure_error_function": "on_error=",
    "name": "tool_name=",
}
"""Keywords of ``Agent.as_tool``."""

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
    "conversation_id": "run_config=RunConfig(conversation_id=...)",
    "debug": "run_config=RunConfig(trace=...)",
    "deps": "context=, which tools read as ctx.context",
    "error_handlers": "run_config=RunConfig(on_limit=...)",
    "event_stream_handler": "Runner.run_streamed(...)",
    "limits": "run_config=RunConfig(limits=...)",
    "message_history": "the messages as input: [*earlier.to_input_list(), message]",
    "messages": "the messages as input, which is the second argument",
    "model": "run_config=RunConfig(model=...)",
    "model_override": "run_config=RunConfig(model=...)",
    "model_settings": "run_config=RunConfig(model_settings=...)",
    "output_type": "Agent(output_type=...)",
    "previous_response_id": "session=Session(...)",
    "stream": "Runner.run_streamed(...)",
    "thread_id": "session=Session(thread_id, ...)",
    "timeout": "run_config=RunConfig(timeout=...)",
    "usage_limits": "run_config=RunConfig(limits=Limits(...))",
    "user_prompt": "the text as input, which is the second argument",
}
"""Keywords of the methods that start a run."""

TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "description_override": "description=",
    "failure_error_function": "on_error=",
    "name_override": "name=",
    "strict_mode": "strict=",
}
"""Keywords of ``function_tool`` where ``tool`` has its own names."""

FUNCTION_TOOL_KEYWORDS: Final[Mapping[str, str]] = {
    "description": "description_override=",
    "name": "name_override=",
    "on_error": "failure_error_function=",
    "strict": "strict_mode=",
}
"""The other way around."""

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
    "data": "final_output",
    "input_guardrail_results": "guardrail_results, those whose kind is 'input'",
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

AGENT: Final[Mapping[str, str]] = {
    "clone": "dataclasses.replace(agent, ...)",
    "invoke": "Runner.run_sync(agent, text)",
    "iter": "Runner.run_streamed(agent, text)",
    "run": "Runner.run(agent, text)",
    "run_stream": "Runner.run_streamed(agent, text)",
    "run_sync": "Runner.run_sync(agent, text)",
    "tool": "@function_tool above the function, and Agent(tools=[function])",
    "tool_plain": "@function_tool above the function, and Agent(tools=[function])",
}
"""Attributes of the agents of other libraries."""

Named = TypeVar("Named", bound=Callable[..., Any])

Class = TypeVar("Class", bound=type[Any])


def hint_keywords(names: Mapping[str, str]) -> Callable[[Named], Named]:
    """Return a decorator that adds a note to the TypeError of a wrong keyword.

    The note says what to write in place of a keyword of another library. The signature stays as it is for
    people and for type checkers, and the error is that of Python. Of a class, ``__init__`` is decorated.

    Args:
        names: the keywords of other libraries, each with what to write in its place.
    """

    def decorate(named: Named) -> Named:
        note = _with_note_of_init if inspect.isclass(named) else _with_note
        return cast("Named", note(named, names))

    return decorate


def _with_note_of_init(named: Any, names: Mapping[str, str]) -> Any:
    """Decorate the ``__init__`` of a class, and return the class."""
    named.__init__ = _with_note(named.__init__, names)
    return named


def _with_note(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """Return a function that calls another, and adds the note if the call does not begin."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            _add_note(error, function, kwargs, names)
            raise

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    return call_async if inspect.iscoroutinefunction(function) else call


def _add_note(
    error: TypeError, function: Callable[..., Any], given: Iterable[str], names: Mapping[str, str]
) -> None:
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is not None:  # the function has begun
        return
    ours = inspect.signature(function).parameters
    for name in given:
        if name in names:
            error.add_note(_advice(name, names))
        elif name not in ours:
            for near in difflib.get_close_matches(name, [*ours, *names], n=1, cutoff=0.8):
                if near in ours and "Did you mean" in str(error):
                    continue  # Python 3.13 says it itself
                error.add_note(f"Did you mean {near}=? {_advice(near, names)}".strip())


def _advice(name: str, names: Mapping[str, str]) -> str:
    return f"Instead of {name}=, write {names[name]}." if name in names else ""


def hint_attributes(names: Mapping[str, str]) -> Callable[[Class], Class]:
    """Return a decorator for a class: the error for an attribute of another library says what to write.

    Type checkers do not see the ``__getattr__`` that it adds, and so report each name that is not there.

    Args:
        names: the attributes of other libraries, each with what to write in its place.
    """

    def decorate(named: Class) -> Class:
        def missing(self: object, name: str) -> Any:
            if name in names:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}: write {names[name]}.")
            return object.__getattribute__(self, name)  # raises the error of Python, or that of a property

        made: Any = named
        made.__getattr__ = missing
        return named

    return decorate
