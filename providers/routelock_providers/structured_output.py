"""Structured output: how a request asks a vendor for a reply that fits a schema.

A vendor that takes a schema for its text gets it. For any other vendor, and for a vendor that takes no schema
beside tools, the model is offered an answer tool, whose arguments are the answer. The model may call other
tools or hand over first. When it calls the answer tool, the arguments become the text of the reply. A model
that cannot call tools gets the schema in its instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import OutputMode, OutputSchema, Request, ToolChoice, ToolSpec
from routelock.handlers.structured_output import schema_prompt
from routelock.history.messages import Message, calls_of

__all__ = ["AnswerEvents", "Plan", "as_answer", "plan_for", "with_prompt"]


ANSWER_TOOL = "final_answer"

_GAP = "\n\n"


@dataclass(slots=True, kw_only=True)
class Plan:
    """The form in which the tools and the schema of a request are sent to the vendor."""

    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice | None
    response_format: Mapping[str, Any] | None = None
    answer_tool: str | None = None
    """The name of the tool whose arguments are the answer, or None."""
    prompt: str | None = None
    """Text that is added to the instructions."""


def plan_for(request: Request, *, native: bool, calls: bool = True, can_force: bool = True) -> Plan:
    """Return how the tools and the schema of a request are sent.

    Args:
        request: the request of the run.
        native: whether the vendor takes a schema for its text in a request like this one.
        calls: whether the model can call tools.
        can_force: whether the model can be forced to call a tool; Claude cannot while it thinks.
    """
    schema, choice = request.output_schema, request.tool_choice
    if schema is None or schema.mode == "prompted":  # the run has put it into the instructions
        return Plan(tools=request.tools, tool_choice=choice)
    mode = _mode(native, calls) if schema.mode == "auto" else schema.mode
    if mode == "native":
        return Plan(tools=request.tools, tool_choice=choice, response_format=_format(schema))
    if mode == "prompted":
        return Plan(tools=request.tools, tool_choice=choice, prompt=schema_prompt(schema.schema))
    taken = {tool["function"]["name"] for tool in request.tools if "function" in tool}
    name = ANSWER_TOOL
    while name in taken:
        name += "_"
    if choice in (None, "auto") and can_force:
        choice = "required"
    return Plan(tools=[*request.tools, _tool(name, schema)], tool_choice=choice, answer_tool=name)


def _mode(native: bool, calls: bool) -> OutputMode:
    if native:
        return "native"
    return "tool" if calls else "prompted"


def with_prompt(messages: Sequence[Message], prompt: str | None) -> Sequence[Message]:
    """Return the messages with ``prompt`` added to the instructions."""
    if prompt is None:
        return messages
    system, rest = messages[0], messages[1:]
    if system["role"] != "system":
        return [{"role": "system", "content": prompt}, *messages]
    return [cast(Message, {**system, "content": _joined(system.get("content"), [prompt])}), *rest]


def as_answer(done: MessageDone, answer_tool: str | None) -> MessageDone:
    """Return the reply with calls of the answer tool turned into text, after its other text.

    A reply that also calls other tools is not the answer yet, since their results may change it: it keeps
    those calls, and the model answers again. Several answers in one reply are not valid JSON together, so the
    model is asked to choose one.
    """
    calls = calls_of(done.message)
    answers = [call for call in calls if call["function"]["name"] == answer_tool]
    if not answers:
        return done
    message: dict[str, Any] = dict(done.message)
    message["tool_calls"] = [call for call in calls if call not in answers]
    if not message["tool_calls"]:
        del message["tool_calls"]
    message["content"] = _joined(message.get("content"), [call["function"]["arguments"] for call in answers])
    return replace(done, message=cast(Message, message))


def _joined(content: Any, more: Sequence[str]) -> str | list[Any]:
    """Return the content of a message with more text after it."""
    if isinstance(content, list) and content:
        return [*content, {"type": "text", "text": _GAP + _GAP.join(more)}]
    return _GAP.join([content, *more] if isinstance(content, str) and content else more)


class AnswerEvents:
    """Turns the deltas of the answer tool's call into text deltas.

    Args:
        answer_tool: the name of the answer tool, or None.
    """

    __slots__ = ("_answer_tool", "_call", "_has_text")

    def __init__(self, answer_tool: str | None) -> None:
        self._answer_tool = answer_tool
        self._has_text = False
        self._call: int | None = None

    def convert(self, event: HandlerEvent) -> HandlerEvent | None:
        """Return the event that the reader of the stream gets, or None if it gets none."""
        if self._answer_tool is None:
            return event
        if isinstance(event, TextDelta):
            self._has_text = True
        if not isinstance(event, ToolCallDelta) or event.name != self._answer_tool:
            return event
        if not event.arguments:
            return None
        gap = _GAP if self._has_text and event.index != self._call else ""
        self._has_text, self._call = True, event.index
        return TextDelta(gap + event.arguments)


def _format(schema: OutputSchema) -> Mapping[str, Any]:
    body = {"name": schema.name, "schema": schema.schema, "strict": schema.strict}
    return {"type": "json_schema", "json_schema": body}


def _tool(name: str, schema: OutputSchema) -> ToolSpec:
    function: dict[str, Any] = {
        "name": name,
        "description": "Gives the final answer. Call it exactly once, when nothing else is left to do.",
        "parameters": schema.schema,
    }
    return {"type": "function", "function": function | ({"strict": True} if schema.strict else {})}
