"""A reply bound to a schema, with vendors that can and with those that cannot. Pure functions.

Where a vendor takes a schema for its text, it gets one. Where it does not, or not together with tools,
the model is offered one more tool, whose arguments are the answer: it may call the others first, and
hand over, and when it calls this one its arguments become the text of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from interlock.events import HandlerEvent, MessageDone, TextDelta, ToolCallDelta
from interlock.messages import Message, calls_of
from interlock.port import OutputSchema, Request, ToolChoice, ToolSpec
from interlock.records import record

__all__ = ["Plan", "as_answer", "as_answer_event", "plan_for"]

ANSWER_TOOL = "final_answer"


@record(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a request's tools and schema are put to the vendor."""

    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice | None
    response_format: Mapping[str, Any] | None = None
    answer_tool: str | None = None
    """The name of the tool whose arguments are the answer, if there is one."""


def plan_for(request: Request, *, native: bool, can_force: bool = True) -> Plan:
    """Decide how to ask for what the request wants.

    Args:
        request: with tools, a tool choice and an output schema, or without.
        native: whether this vendor takes a schema for its text in a request like this one.
        can_force: whether the model can be made to call a tool; Claude cannot while it thinks.
    """
    schema = request.output_schema
    if schema is None:
        return Plan(tools=request.tools, tool_choice=request.tool_choice)
    if native:
        return Plan(tools=request.tools, tool_choice=request.tool_choice, response_format=_format(schema))
    taken = {tool["function"]["name"] for tool in request.tools if "function" in tool}
    name = ANSWER_TOOL
    while name in taken:
        name += "_"
    choice = request.tool_choice
    if choice in (None, "auto") and can_force:
        choice = "required"
    return Plan(tools=[*request.tools, _tool(name, schema)], tool_choice=choice, answer_tool=name)


def as_answer(done: MessageDone, answer_tool: str | None) -> MessageDone:
    """Return the reply with a call of the answer tool turned into text.

    A reply that calls other tools as well is not the answer yet: their results may change it.
    """
    calls = calls_of(done.message)
    answers = [call for call in calls if call["function"]["name"] == answer_tool]
    if not answers:
        return done
    message: dict[str, Any] = dict(done.message)
    others = [call for call in calls if call not in answers]
    if others:
        message["tool_calls"] = others
    else:
        del message["tool_calls"]
        message["content"] = answers[0]["function"]["arguments"]
    return replace(done, message=cast(Message, message))


def as_answer_event(event: HandlerEvent, answer_tool: str | None) -> HandlerEvent | None:
    """Return the event as a reader is to see it: the answer's arguments as text."""
    if isinstance(event, ToolCallDelta) and answer_tool is not None and event.name == answer_tool:
        return TextDelta(event.arguments) if event.arguments else None
    return event


def _format(schema: OutputSchema) -> Mapping[str, Any]:
    body = {"name": schema.name, "schema": schema.schema, "strict": schema.strict}
    return {"type": "json_schema", "json_schema": body}


def _tool(name: str, schema: OutputSchema) -> ToolSpec:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Gives the final answer. Call it exactly once, when nothing else is left to do.",
            "parameters": schema.schema,
        },
    }
