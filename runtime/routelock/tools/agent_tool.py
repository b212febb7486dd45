"""Agents as tools: ``agent.as_tool()`` makes a `Tool` that a run answers with a run within itself.

The agent that has the tool stays in charge: it asks, is answered, and goes on. That run is started by
`routelock.run.subrun`; here is only what it is told.
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


_WHAT = "The task, with everything that the agent needs to know: it sees nothing else of the conversation."


@functools.cache
def _task() -> JsonType[Any]:
    import pydantic  # noqa: PLC0415 - see `routelock.tools.schema`

    make_type: Any = TypedDict
    return JsonType(make_type("Task", {"input": Annotated[str, pydantic.Field(description=_WHAT)]}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentCall:
    """What stands behind the tool of an agent, in the place of a function."""

    agent: Any
    """The `routelock.Agent` that answers."""
    takes: JsonType[Any]
    """What the model has to pass."""
    is_text: bool
    """Whether that is the one text, and not a type of the app's."""
    max_turns: int | None
    output: Callable[[Any], MaybeAwaitable[Any]] | None

    def read(self, arguments: str) -> str:
        """Return what the agent is asked: the text, or a value of ``input_type`` as JSON.

        Raises:
            ModelBehaviorError: the arguments do not fit; the message is for the model.
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
        """Refuse: only a run can start a run within itself."""
        raise ConfigError(
            f"The tool of agent {self.agent.name!r} works inside of a run only. Put it into the tools of "
            "another agent, or call Runner.run(...) yourself."
        )


class AsTool:
    """What makes an agent a tool for others; every `routelock.Agent` can do it."""

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
        """Return a tool with which another agent asks this one, and stays in charge.

        The agent answers in a run of its own, see "Agents as tools" in docs/agents.md. It sees nothing
        but what the model passes, and its final output is the answer of the call.

        Args:
            tool_name: the agent's name when left out, in the letters that a tool's name may have.
            tool_description: what the agent is for; its ``handoff_description`` when left out.
            input_type: what the model must pass instead of ``{"input": "..."}``: a pydantic model,
                dataclass or TypedDict. The agent is shown it as JSON.
            max_turns: most model calls of one answer. Never more than the outer run has left.
            output: makes the answer of the `routelock.RunResult`, sync or async.
            is_enabled: a bool, or a function of the context and the agent: for the offer and before a call.
            scope: who may use it, see `routelock.scopes`.
            timeout: seconds that one answer may take; time that the reader of a stream takes for
                itself does not count.
            on_error: ``"report"`` tells the model that asked and goes on, ``"raise"`` stops the run,
                and a function of the context and the error makes the text for the model.
            needs_approval: whether somebody has to approve that the agent is asked; a bool, or a function
                of the context and the arguments. What the agent itself calls is another matter.

        Raises:
            ConfigError: the tool cannot work as described.
        """
        agent: Any = self
        is_text, takes = input_type is None, _task() if input_type is None else _checked(input_type)
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


def _checked(input_type: type[Any]) -> JsonType[Any]:
    made = JsonType(input_type)
    if made.wrapped:
        raise ConfigError(
            f"input_type must be a pydantic model, a dataclass or a TypedDict, not {input_type!r:.80}: what "
            "a model passes to a tool has names."
        )
    return made


def _check(call: AgentCall) -> None:
    most = call.max_turns
    if most is not None and (not isinstance(cast(object, most), int) or most < 1):
        raise ConfigError(f"max_turns must be at least 1, or None for what the run has left, not {most!r}.")
    if call.output is not None and not callable(call.output):
        raise ConfigError(f"output must be a function of the result, not {call.output!r:.80}.")
