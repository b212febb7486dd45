"""Agents as tools: ``agent.as_tool()`` returns a `Tool` whose calls are answered by a sub-run.

The agent that calls the tool stays active: it gets the answer as a tool result and goes on.
`routelock.run.subrun` starts the sub-run; this module makes its input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

from typing_extensions import TypedDict

from routelock._callables import MaybeAwaitable
from routelock._tool_names import slug
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.scopes import Scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import to_text
from routelock.tools.schema import JsonType, describe_error
from routelock.tools.tool import IsEnabled, OnError, Tool

__all__ = ["AgentCall", "AsTool"]


_INPUT_DESCRIPTION = (
    "The task, with everything that the agent needs to know: it sees nothing else of the conversation."
)


@functools.cache
def _text_input() -> JsonType[Any]:
    import pydantic  # noqa: PLC0415 - see `routelock.tools.schema`

    make_type: Any = TypedDict
    return JsonType(
        make_type("Task", {"input": Annotated[str, pydantic.Field(description=_INPUT_DESCRIPTION)]})
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentCall:
    """The ``on_invoke_tool`` of an agent's tool, in place of a function."""

    agent: Any
    """The `routelock.Agent` that answers."""
    takes: JsonType[Any]
    """The arguments that the model must pass."""
    is_text: bool
    """Whether the arguments are one text, and not a type of the app."""
    max_turns: int | None
    output: Callable[[Any], MaybeAwaitable[Any]] | None

    def read(self, arguments: str) -> str:
        """Return the input of the sub-run: the text, or a value of ``input_type`` as JSON.

        Raises:
            ModelBehaviorError: the arguments do not match the schema; the message is for the model.
        """
        value = self.takes.parse(arguments)
        if not self.is_text:
            return to_text(value)
        text = cast("dict[str, str]", value)["input"]
        if not text.strip():
            problem = ValueError("input: say what the agent is to do.")
            raise ModelBehaviorError(describe_error(problem, arguments, schema=self.takes.schema))
        return text

    def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Raise an error: only a run can start a sub-run."""
        raise ConfigError(
            f"The tool of agent {self.agent.name!r} works only inside a run. Put it into the tools of "
            "another agent, or call Runner.run(...) yourself."
        )


class AsTool:
    """The method of `routelock.Agent` that makes a tool of the agent."""

    def as_tool(
        self,
        tool_name: str | None = None,
        tool_description: str | None = None,
        *,
        input_type: type[Any] | None = None,
        max_turns: int | None = 10,
        output: Callable[[Any], MaybeAwaitable[Any]] | None = None,
        is_enabled: IsEnabled = True,
        scope: Scope = "all",
        timeout: float | None = None,
        on_error: OnError = "report",
        needs_approval: NeedsApproval = False,
    ) -> Tool:
        """Return a tool with which another agent calls this one and stays active.

        The agent answers in a sub-run, see "Agents as tools" in docs/agents.md. It sees only what the model
        passes, and its final output is the result of the call.

        Args:
            tool_name: the name of the tool; by default the agent's name, in the letters that tool names
                allow.
            tool_description: the purpose of the agent; by default its ``handoff_description``.
            input_type: a pydantic model, dataclass or TypedDict that the model must pass instead of
                ``{"input": "..."}``. The agent gets it as JSON.
            max_turns: the most model calls of one sub-run, never more than the outer run has left.
            output: a sync or async function that makes the result of the call from the `routelock.RunResult`.
            is_enabled: a bool, or a function of the context and the agent, called in each turn and before a
                call.
            scope: which runs may use the tool, see `routelock.scopes`.
            timeout: the time limit of one sub-run in seconds. The time that the reader of a stream takes does
                not count.
            on_error: ``"report"`` reports an error to the calling model, ``"raise"`` stops the run, and a
                function of the context and the error makes the text for the model.
            needs_approval: whether a call needs approval: a bool, or a function of the context and the
                arguments. The agent's own tools have their own setting.

        Raises:
            ConfigError: an argument is invalid.
        """
        agent: Any = self
        is_text, takes = input_type is None, _text_input() if input_type is None else _input_type(input_type)
        call = AgentCall(agent=agent, takes=takes, is_text=is_text, max_turns=max_turns, output=output)
        _check(call)
        about = agent.handoff_description or ""
        return Tool(
            name=slug(agent.name) if tool_name is None else tool_name,
            description=f"Ask the {agent.name} agent. {about}".strip()
            if tool_description is None
            else tool_description,
            params_json_schema=takes.schema,
            strict=takes.strict,
            on_invoke_tool=call,
            timeout=timeout,
            is_enabled=is_enabled,
            scope=scope,
            on_error=on_error,
            needs_approval=needs_approval,
        )


def _input_type(input_type: type[Any]) -> JsonType[Any]:
    json_type = JsonType(input_type)
    if json_type.wrapped:
        raise ConfigError(
            f"input_type must be a pydantic model, a dataclass or a TypedDict, not {input_type!r:.80}: the "
            "arguments of a tool have names."
        )
    return json_type


def _check(call: AgentCall) -> None:
    most = call.max_turns
    if most is not None and (not isinstance(cast(object, most), int) or most < 1):
        raise ConfigError(
            f"max_turns must be at least 1, or None for the rest of the outer run, not {most!r}."
        )
    if call.output is not None and not callable(call.output):
        raise ConfigError(f"output must be a function of the result, not {call.output!r:.80}.")
