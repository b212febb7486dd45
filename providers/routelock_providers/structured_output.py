"""A reply bound to a schema, with vendors that can and with those that cannot. Pure functions.

Where a vendor takes a schema for its text, it gets one. Where it does not, or not together with tools,
the model is offered one more tool, whose arguments are the answer: it may call the others first, and
hand over, and when it calls this one its arguments become text of the reply. A model that calls no tools
is told the schema in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import OutputMode, OutputSchema, Request, ToolChoice, ToolSpec, schema_prompt
from routelock.history.messages import Message, calls_of

__all__ = ["AnswerEvents", "Plan", "as_answer", "plan_for", "told"]


ANSWER_TOOL = "final_answer"

_GAP = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a request's tools and schema are put to the vendor."""

    tools: Sequence[ToolSpec]
    tool_choice: ToolChoice | None
    response_format: Mapping[str, Any] | None = None
    answer_tool: str | None = None
    """The name of the tool whose arguments are the answer, if there is one."""
    prompt: str | None = None
    """What has to be added to the instructions."""


def plan_for(request: Request, *, native: bool, calls: bool = True, can_force: bool = True) -> Plan:
    """Decide how to ask for what the request wants.

    Args:
        request: with tools, a tool choice and an output schema, or without.
        native: whether this vendor takes a schema for its text in a request like this one.
        calls: whether the model can call tools.
        can_force: whether the model can be made to call a tool; Claude cannot while it thinks.
    """
    schema, choice = request.output_schema, request.tool_choice
    if schema is None or schema.mode == "prompted":  # which the run has seen to
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


def told(messages: Sequence[Message], prompt: str | None) -> Sequence[Message]:
    """Return the messages with ``prompt`` at the end of the instructions."""
    if prompt is None:
        return messages
    system, rest = messages[0], messages[1:]
    if system["role"] != "system":
        return [{"role": "system", "content": prompt}, *messages]
    return [cast(Message, {**system, "content": _joined(system.get("content"), [prompt])}), *rest]


def as_answer(done: MessageDone, answer_tool: str | None) -> MessageDone:
    """Return the reply with calls of the answer tool turned into text, behind whatever text there is.

    A reply that calls other tools as well is not the answer yet, since their results may change it: it
    keeps those calls, and the model answers again. Nor is one with several answers: they are no JSON
    together, so that the model is asked to decide.
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
    """Return the content of a message with more text behind it."""
    if isinstance(content, list) and content:
        return [*content, {"type": "text", "text": _GAP + _GAP.join(more)}]
    return _GAP.join([content, *more] if isinstance(content, str) and content else more)


class AnswerEvents:
    """Shows the pieces of a reply as a reader is to see them: those of the answer as text.

    Args:
        answer_tool: the name of the answer tool, if there is one.
    """

    __slots__ = ("_answer_tool", "_call", "_said")

    def __init__(self, answer_tool: str | None) -> None:
        self._answer_tool = answer_tool
        self._said = False
        self._call: int | None = None

    def shown(self, event: HandlerEvent) -> HandlerEvent | None:
        """Return the event as it is to be seen, or None if there is nothing to see."""
        if self._answer_tool is None:
            return event
        if isinstance(event, TextDelta):
            self._said = True
        if not isinstance(event, ToolCallDelta) or event.name != self._answer_tool:
            return event
        if not event.arguments:
            return None
        gap = _GAP if self._said and event.index != self._call else ""
        self._said, self._call = True, event.index
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
