"""The tools that a client of the Responses API runs: functions, custom tools, and namespaces of both.

A model is offered functions alone. A custom tool is a function with one text, ``input``, and a tool of a
namespace has it in its name, such as ``crm__look_up``. A client is shown calls in the form of its tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import pydantic

from routelock.handlers.port import ToolSpec
from routelock.serving.requests import (
    MOST_TOOLS,
    ToolFunction,
    ToolName,
    bad_request,
    check_known,
    tool_specs,
    validated,
)

__all__ = ["CallForm", "ClientTools", "custom_arguments", "name_in", "read_tools"]


_LONGEST_NAME = 64


class _Function(ToolFunction):
    type: Literal["function"]
    strict: bool | None = None


class _Format(pydantic.BaseModel):
    type: Literal["text", "grammar"]
    syntax: str = ""
    definition: str = ""


class _Custom(pydantic.BaseModel):
    type: Literal["custom"]
    name: ToolName
    description: str | None = None
    format: _Format | None = None


class _Namespace(pydantic.BaseModel):
    type: Literal["namespace"]
    name: ToolName
    description: str | None = None
    tools: Annotated[list[dict[str, Any]], pydantic.Field(max_length=MOST_TOOLS), pydantic.FailFast()]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """The form of a call that its client is shown.

    Args:
        name: the name of the tool in its namespace.
        namespace: the namespace; None without one.
        custom: whether the tool is a custom tool, which takes a text.
    """

    name: str
    namespace: str | None = None
    custom: bool = False

    def text(self, arguments: str) -> str:
        """Return the arguments of a function, or the text of a custom tool."""
        if not self.custom:
            return arguments
        try:
            given: object = json.loads(arguments)
        except ValueError:  # the model has written the text itself
            return arguments
        text = cast("dict[str, object]", given).get("input") if isinstance(given, dict) else None
        return text if isinstance(text, str) else arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTools:
    """The tools of a client, as a model is offered them, and as the client is shown their calls."""

    specs: Sequence[ToolSpec]
    forms: Mapping[str, CallForm]
    """The forms of calls by the names that the model uses, except those of functions without a namespace."""


def name_in(namespace: str | None, name: str) -> str:
    """Return the name of a tool that a model is offered."""
    return f"{namespace}__{name}" if namespace else name


def custom_arguments(text: str) -> str:
    """Return the arguments of a call of a custom tool with a text."""
    return json.dumps({"input": text}, ensure_ascii=False)


def read_tools(given: Sequence[Mapping[str, Any]]) -> ClientTools:
    """Return the tools of a request.

    Raises:
        Refusal: 400, a tool is wrong, or of a type that is not supported, or two have the same name.
    """
    read: list[tuple[ToolFunction, CallForm]] = []
    for place, tool in enumerate(given):
        read += _read(tool, f"tools[{place}]")
        if len(read) > MOST_TOOLS:
            raise bad_request(f"tools: must have at most {MOST_TOOLS} tools.", "tools")
    forms = {tool.name: form for tool, form in read if form.custom or form.namespace}
    return ClientTools(specs=tool_specs([tool for tool, _ in read]), forms=forms)


def _read(tool: Mapping[str, Any], where: str) -> Iterator[tuple[ToolFunction, CallForm]]:
    if tool.get("type") != "namespace":
        function, custom = _function(tool, where)
        yield function, CallForm(name=function.name, custom=custom)
        return
    space = validated(_Namespace, tool, where)
    check_known(tool, _Namespace.model_fields, f"{where}.")
    for place, inner in enumerate(space.tools):
        path = f"{where}.tools[{place}]"
        function, custom = _function(inner, path)
        form = CallForm(name=function.name, namespace=space.name, custom=custom)
        name = name_in(space.name, function.name)
        if len(name) > _LONGEST_NAME:
            why = f"{path}.name: {name!r} has more than {_LONGEST_NAME} characters, with its namespace."
            raise bad_request(why, f"{path}.name")
        told = function.description
        if not place and space.description:
            told = f"About all tools {space.name}__*: {space.description}\n\n{told or ''}".rstrip()
        yield function.model_copy(update={"name": name, "description": told}), form


def _function(tool: Mapping[str, Any], where: str) -> tuple[ToolFunction, bool]:
    """Return a function or a custom tool as a function, and whether it is a custom tool."""
    kind = tool.get("type")
    if kind == "function":
        function = validated(_Function, tool, where)
        check_known(tool, _Function.model_fields, f"{where}.")
        return function, False
    if kind == "custom":
        custom = validated(_Custom, tool, where)
        check_known(tool, _Custom.model_fields, f"{where}.")
        check_known(tool.get("format") or {}, _Format.model_fields, f"{where}.format.")
        parameters = {
            "type": "object",
            "properties": {"input": _text_schema(custom.format)},
            "required": ["input"],
            "additionalProperties": False,
        }
        name, told = custom.name, custom.description
        return ToolFunction(name=name, description=told, parameters=parameters), True
    path = f"{where}.type"
    if kind == "namespace":
        raise bad_request(f"{path}: there is no namespace in another.", path)
    why = f"{path}: this server runs no {kind!r:.80} for its clients. Send tools of type 'function'."
    raise bad_request(why, path)


def _text_schema(form: _Format | None) -> dict[str, Any]:
    """Return the schema of a custom tool's text. Few vendors enforce a grammar, so the model is told it."""
    if form is None or form.type == "text":
        return {"type": "string"}
    told = f"Text in this {form.syntax} grammar:\n{form.definition}"
    return {"type": "string", "description": told}
