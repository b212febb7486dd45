"""Served agents as tools of MCP, and the JSON of the protocol. This module does no input or output.

See https://modelcontextprotocol.io/specification/2025-11-25/server/tools. It needs no SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from routelock._text import escape_control
from routelock.agents.agent_tool import AgentCall
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.handlers.events import MessageDone
from routelock.run.events import AgentUpdated, HandoffOccurred, NestedEvent, RunEvent, ToolCalled
from routelock.run.result import RunResult
from routelock.serving.catalog import Catalog, ServedAgent
from routelock.serving.config import MCP
from routelock.serving.errors import Refusal
from routelock.serving.forms import question_text
from routelock.serving.json_rpc import json_rpc_error
from routelock.serving.run_data import INCOMPLETE, MadeFile, made_files, output_data, run_data
from routelock.tools.approvals import Interruption

__all__ = ["ServedTool", "error_body", "json_rpc_refusal", "progress_text", "question", "served_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    """A served agent as a tool: its definition for clients, and its calls."""

    served: ServedAgent
    call: AgentCall
    """Reads the arguments, as those of an agent that is a tool of another one."""
    output_schema: Mapping[str, Any] | None
    """The schema of the output, if every agent that may answer has it."""

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in ``tools/list``, without the agent's instructions, tools and team."""
        body: dict[str, Any] = {
            "name": self.call.tool_name,
            "title": self.served.agent.name,
            "description": self.call.description,
            "inputSchema": dict(self.call.takes.schema),
        }
        if self.output_schema is not None:
            body["outputSchema"] = dict(self.output_schema)
        return body

    def read(self, arguments: Mapping[str, Any] | None) -> str:
        """Return the arguments of a call as the agent's input: the text, or JSON.

        Raises:
            Refusal: 400, they do not match the schema. The message is for the client's model.
        """
        try:
            value, _ = self.call.read(json.dumps(arguments or {}))
        except ModelBehaviorError as error:
            raise Refusal(400, str(error), "invalid_request", "arguments") from error
        return self.call.text_of(value)

    def answer(self, result: RunResult[Any], text: str, finish: str) -> dict[str, Any]:
        """Return the result of a call.

        Args:
            result: the result of the run.
            text: the text that its agents wrote.
            finish: the finish reason of the run, as chat completions have it.
        """
        about = {f"routelock/{name}": value for name, value in run_data(result, finish).items()}
        texts = [text, *([INCOMPLETE[finish]] if finish in INCOMPLETE else [])]
        content: list[dict[str, Any]] = [{"type": "text", "text": each} for each in texts]
        body: dict[str, Any] = {"content": content, "_meta": about}
        if (data := output_data(result)) is not None:
            body["structuredContent"] = data
        elif self.output_schema is not None:  # clients refuse a result without the output that was promised
            body["isError"] = True
        else:
            content += map(_file_content, made_files(result))
        return body


def served_tools(catalog: Catalog, settings: MCP) -> Mapping[str, ServedTool]:
    """Return the tools of an app by name.

    Raises:
        ConfigError: two agents have the same tool name, or an input type cannot be used.
    """
    if unknown := [name for name in settings.input_types if name not in catalog.names]:
        raise ConfigError(f"MCP: input_types names {unknown[0]!r:.80}, which is not a served agent.")
    tools: dict[str, ServedTool] = {}
    for name in catalog.names:
        tool = _served_tool(catalog.find(name), settings)
        if (other := tools.get(tool.call.tool_name)) is not None:
            raise ConfigError(
                f"Agents {other.served.agent.name!r} and {name!r} are the same MCP tool, "
                f"{tool.call.tool_name!r}; rename one."
            )
        tools[tool.call.tool_name] = tool
    return tools


def _served_tool(served: ServedAgent, settings: MCP) -> ServedTool:
    call: Any = served.agent.as_tool(input_type=settings.input_types.get(served.agent.name)).on_invoke_tool
    outputs = [agent.output for agent in served.graph.values()]
    schemas = [None if output is None else output.schema for output in outputs]
    shared = schemas[0] if all(schema == schemas[0] for schema in schemas) else None
    return ServedTool(served=served, call=call, output_schema=shared)


def _file_content(file: MadeFile) -> dict[str, Any]:
    """Return the content block of a file."""
    if file.url:
        return {
            "type": "resource_link",
            "uri": file.url,
            "name": file.name or file.url,
            "mimeType": file.kind,
        }
    form = file.kind.partition("/")[0]
    if form in ("image", "audio"):
        return {"type": form, "data": file.data, "mimeType": file.kind}
    about = {"uri": f"routelock:made/{quote(file.name or 'file')}", "mimeType": file.kind, "blob": file.data}
    return {"type": "resource", "resource": about}


def error_body(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return the result of a call that failed."""
    return {
        "content": [{"type": "text", "text": refusal.message}],
        "isError": True,
        "_meta": {"routelock/code": refusal.code, "routelock/requestId": request_id},
    }


def json_rpc_refusal(refusal: Refusal, request_id: str, call_id: object = None) -> dict[str, Any]:
    """Return the JSON-RPC error for a request that was refused before the SDK read it, or cut off after it.

    Args:
        refusal: the refusal.
        request_id: the id in the server's log.
        call_id: the id of the request, if it is known.
    """
    return json_rpc_error(refusal, {"code": refusal.code, "requestId": request_id}, call_id=call_id)


def question(call: Interruption) -> dict[str, Any]:
    """Return the request that asks the user: the question of the tool, or whether the call may be made.

    To accept it is to approve the call.
    """
    schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    # JSON has no line ends within values, and an escaped character is the same value
    arguments = escape_control(call.arguments).replace("\n", " ")
    message = f"May the agent {call.agent} call {call.name} with these arguments? {arguments}"
    if (asked := call.question) is not None:
        schema = asked.schema or schema
        message = question_text(asked)
    return {"mode": "form", "message": message, "requestedSchema": schema}


def progress_text(event: RunEvent, path: Sequence[str] = ()) -> str:
    """Return the progress text of an event of agents, turns, tools or handoffs; empty for all others."""
    match event:
        case NestedEvent(path=callers, event=inner):
            return progress_text(inner, callers)
        case AgentUpdated(agent=agent):
            said = f"{agent} is active"
        case MessageDone():
            said = "the model has replied"
        case ToolCalled(name=name):
            said = f"calls {name}"
        case HandoffOccurred(source=source, target=target):
            said = f"{source} hands over to {target}"
        case _:
            return ""
    return ": ".join((" > ".join(path), said)) if path else said
