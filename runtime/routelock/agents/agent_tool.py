"""Agents as tools: ``agent.as_tool()`` returns a `Tool` whose calls are answered by a sub-run.

The agent that calls the tool stays active: it gets the answer as a tool result and goes on.
`routelock.run.subrun` starts the sub-run; this module makes its input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from typing_extensions import TypedDict

from routelock._callables import MaybeAwaitable
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.tools.invoke import ToolCallable, to_text
from routelock.tools.schema import JsonType, describe_error

__all__ = ["AgentCall"]


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
class AgentCall(ToolCallable):
    """The ``on_invoke_tool`` of an agent's tool, in place of a function."""

    agent: Any
    """The `routelock.Agent` that answers."""
    input_type: type[Any] | None
    """The type of the arguments; None is one text."""
    max_turns: int | None
    output: Callable[[Any], MaybeAwaitable[Any]] | None
    takes: JsonType[Any] = field(init=False)
    """The arguments that the model must pass."""

    def __post_init__(self) -> None:
        takes = _text_input() if self.input_type is None else _input_type(self.input_type)
        object.__setattr__(self, "takes", takes)
        _check(self)

    def read(self, text: str) -> str:
        """Return the input of the sub-run: the text, or a value of ``input_type`` as JSON.

        Raises:
            ModelBehaviorError: the arguments do not match the schema; the message is for the model.
        """
        value = self.takes.parse(text)
        if self.input_type is not None:
            return to_text(value)
        task = cast("dict[str, str]", value)["input"]
        if not task.strip():
            problem = ValueError("input: say what the agent is to do.")
            raise ModelBehaviorError(describe_error(problem, text, schema=self.takes.schema))
        return task

    async def call(self, context: ToolContext[Any], values: Any) -> Any:
        """Raise an error: only a run can start a sub-run."""
        raise ConfigError(
            f"The tool of agent {self.agent.name!r} works only inside a run. Put it into the tools of "
            "another agent, or call Runner.run(...) yourself."
        )

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Do the same as `call`."""
        return await self.call(context, self.read(arguments))


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
