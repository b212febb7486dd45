"""Agents as tools: ``agent.as_tool()`` returns a `Tool` whose calls are answered by a sub-run.

The agent that calls the tool stays active: it gets the answer as a tool result and goes on.
`routelock.run.subrun` starts the sub-run; this module declares it, and reads the arguments of its calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, cast

from typing_extensions import TypedDict, TypeVar

from routelock._callables import MaybeAwaitable, takes
from routelock._hints import hint_keywords
from routelock._peer_names import AS_TOOL_KEYWORDS
from routelock._tool_names import slug
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.guardrails import ToolGuardrail
from routelock.history.messages import RunInput
from routelock.scopes import Scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import ToolCallable
from routelock.tools.outcome import to_text
from routelock.tools.schema import JsonType, describe_error
from routelock.tools.tool import IsEnabled, OnError, Tool

if TYPE_CHECKING:
    from routelock.run.config import RunConfig
    from routelock.run.events import NestedEvent
    from routelock.run.result import RunResult
    from routelock.sessions.session import Session

__all__ = ["AgentCall", "UsableAsTool"]


Input = TypeVar("Input", default=str)

Output = TypeVar("Output", default=Any)

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


@dataclass(frozen=True, slots=True, eq=False)
class AgentCall(ToolCallable):
    """The ``on_invoke_tool`` of an agent's tool, in place of a function; see `UsableAsTool.as_tool`."""

    agent: Any
    """The `routelock.Agent` that answers."""
    input_type: type[Any] | None
    """The type of the arguments; None is one text."""
    input: Callable[[ToolContext[Any], Any], MaybeAwaitable[RunInput]] | None
    output: Callable[[Any], MaybeAwaitable[Any]] | None
    max_turns: int | None
    run_config: RunConfig | None
    hooks: RunHooks | None
    session: Session | Callable[[ToolContext[Any]], MaybeAwaitable[Session | None]] | None
    on_event: Callable[[ToolContext[Any], NestedEvent], MaybeAwaitable[None]] | None
    takes: JsonType[Any] = field(init=False)
    """The arguments that the model must pass."""
    settings: Mapping[str, Any] = field(init=False)
    """The settings of the sub-run that are not those of the outer run."""

    def __post_init__(self) -> None:
        arguments = _text_input() if self.input_type is None else _input_type(self.input_type)
        object.__setattr__(self, "takes", arguments)
        if wrong := _problems(self):
            raise ConfigError(f"as_tool() of agent {self.agent.name!r}: {'; '.join(wrong)}.")
        config = self.run_config
        object.__setattr__(self, "settings", {} if config is None else config.sub_run_settings())

    @property
    def tool_name(self) -> str:
        """The name of the tool, if the app gives none."""
        return slug(self.agent.name)

    @property
    def description(self) -> str:
        """The description of the tool, if the app gives none."""
        return f"Ask the {self.agent.name} agent. {self.agent.handoff_description or ''}".strip()

    def read(self, text: str) -> tuple[Any, Mapping[str, Any]]:
        """Return the arguments of a call: as a text or a value of ``input_type``, and by name.

        Raises:
            ModelBehaviorError: the arguments do not match the schema; the message is for the model.
        """
        value = self.takes.parse(text)
        if self.input_type is not None:
            return value, _by_name(value)
        names = cast("dict[str, str]", value)
        if not names["input"].strip():
            problem = ValueError("input: say what the agent is to do.")
            raise ModelBehaviorError(describe_error(problem, text, schema=self.takes.schema))
        return names["input"], names

    def text_of(self, value: Any) -> str:
        """Return the input of the sub-run without an ``input`` function: text, or the value as JSON."""
        return to_text(value)

    async def call(self, context: ToolContext[Any], values: Any) -> Any:
        """Raise an error: only a run can start a sub-run."""
        raise ConfigError(
            f"The tool of agent {self.agent.name!r} works only inside a run. Put it into the tools of "
            "another agent, or call Runner.run(...) yourself."
        )

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Do the same as `call`."""
        return await self.call(context, self.read(arguments))


class UsableAsTool(Generic[Output]):
    """Base of `routelock.Agent`, with the method that makes a tool of it."""

    __slots__ = ()

    @hint_keywords(AS_TOOL_KEYWORDS)
    def as_tool(
        self,
        tool_name: str | None = None,
        tool_description: str | None = None,
        *,
        input_type: type[Input] | None = None,
        input: Callable[[ToolContext[Any], Input], MaybeAwaitable[RunInput]] | None = None,
        output: Callable[[RunResult[Output]], MaybeAwaitable[Any]] | None = None,
        max_turns: int | None = 10,
        run_config: RunConfig | None = None,
        hooks: RunHooks | None = None,
        session: Session | Callable[[ToolContext[Any]], MaybeAwaitable[Session | None]] | None = None,
        on_event: Callable[[ToolContext[Any], NestedEvent], MaybeAwaitable[None]] | None = None,
        input_guardrails: Sequence[ToolGuardrail] = (),
        output_guardrails: Sequence[ToolGuardrail] = (),
        is_enabled: IsEnabled = True,
        scope: Scope = "all",
        timeout: float | None = None,
        on_error: OnError = "report",
        needs_approval: NeedsApproval = False,
        deferred: bool | None = None,
    ) -> Tool:
        """Return a tool with which another agent calls this one and stays active.

        The agent answers in a sub-run, see docs/agents-as-tools.md. It sees only the arguments that the model
        passes, and its final output is the result of the call.

        Args:
            tool_name: the name of the tool; by default the agent's name, in the letters that tool names
                allow.
            tool_description: the purpose of the agent; by default its ``handoff_description``.
            input_type: a pydantic model, dataclass or TypedDict that the model must pass instead of
                ``{"input": "..."}``. The agent gets it as JSON.
            input: a sync or async function of the context and the text, or the value of ``input_type``. It
                returns the input of the agent: text, or a list of messages.
            output: a sync or async function that makes the result of the call from the `routelock.RunResult`.
            max_turns: the most model calls of one sub-run, never more than the outer run has left.
            run_config: settings of the sub-run. A setting at its default is that of the outer run. The
                guardrails, ``handler``, ``on_limit`` and ``timeout`` of the outer run do not apply.
            hooks: called on the events of the sub-run, after the hooks of the outer run.
            session: the conversation of the agent with its callers: a `routelock.sessions.Session`, or a
                sync or async function of the context that returns one, or None for a call without history.
                Calls of one reply with the same session run one after the other.
            on_event: a sync or async function of the context and each `routelock.run.NestedEvent`. It is
                called also if the outer run is not streamed.
            input_guardrails: functions that check the arguments before each call, see
                `routelock.guardrails`.
            output_guardrails: functions that check the result of each call before the model is shown it.
            is_enabled: a bool, or a function of the context and the agent, called in each turn and before a
                call.
            scope: which runs may use the tool, see `routelock.scopes`.
            timeout: the time limit of one sub-run in seconds. The time that the reader of a stream takes does
                not count.
            on_error: ``"report"`` reports an error to the calling model, ``"raise"`` stops the run. A
                function of the context and the error makes the text for the model.
            needs_approval: whether a call needs approval: a bool, or a function of the context and the
                arguments. The agent's own tools have their own setting.
            deferred: whether the tool is offered only after the model has found it in a search, see
                `routelock.tools.ToolSearch`; None leaves that to the settings of the search.

        Raises:
            ConfigError: an argument is invalid.
        """
        call = AgentCall(self, input_type, input, output, max_turns, run_config, hooks, session, on_event)
        return Tool(
            name=call.tool_name if tool_name is None else tool_name,
            description=call.description if tool_description is None else tool_description,
            params_json_schema=call.takes.schema,
            strict=call.takes.strict,
            on_invoke_tool=call,
            timeout=timeout,
            is_enabled=is_enabled,
            scope=scope,
            on_error=on_error,
            needs_approval=needs_approval,
            deferred=deferred,
            origin=call.agent.name,
            input_guardrails=input_guardrails,
            output_guardrails=output_guardrails,
        )


def _input_type(input_type: type[Any]) -> JsonType[Any]:
    json_type = JsonType(input_type)
    if json_type.wrapped:
        raise ConfigError(
            f"input_type must be a pydantic model, a dataclass or a TypedDict, not {input_type!r:.80}, "
            "because a tool takes its arguments by name."
        )
    return json_type


def _by_name(value: object) -> Mapping[str, Any]:
    """Return the fields of a pydantic model, a dataclass or a TypedDict by name."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    model: Any = type(value)
    names = [each.name for each in fields(value)] if is_dataclass(value) else [*model.model_fields]
    return {name: getattr(value, name) for name in names}


def _problems(call: AgentCall) -> list[str]:
    """Return the mistakes in the options of ``as_tool``."""
    most, hooks, config = call.max_turns, cast(object, call.hooks), cast(object, call.run_config)
    rules = (
        (
            most is None or (isinstance(cast(object, most), int) and most >= 1),
            f"max_turns must be at least 1, or None for the rest of the outer run, not {most!r}",
        ),
        (_is_function(call.output, 1), f"output must be a function of the result, not {call.output!r:.80}"),
        (
            _is_function(call.input, 2),
            f"input must be a function of the context and the arguments, not {call.input!r:.80}",
        ),
        (
            _is_function(call.on_event, 2),
            f"on_event must be a function of the context and the event, not {call.on_event!r:.80}",
        ),
        (
            hooks is None or (isinstance(hooks, RunHooks) and not isinstance(hooks, AgentHooks)),
            f"hooks must be a RunHooks object, not {hooks!r:.80}; AgentHooks are for Agent(hooks=...)",
        ),
        (
            _is_function(call.session, 1) or _has(call.session, "store_of_sub_run"),
            f"session must be a Session, or a function of the context, not {call.session!r:.80}",
        ),
        (
            config is None or _has(config, "sub_run_settings"),
            f"run_config must be a RunConfig, not {config!r:.80}",
        ),
    )
    return [message for holds, message in rules if not holds]


def _is_function(given: object, arguments: int) -> bool:
    """Whether an option is None, or a function of this number of arguments."""
    return given is None or (callable(given) and takes(given, arguments))


def _has(given: object, method: str) -> bool:
    """Whether an option is an object with a method, and not a class."""
    return not isinstance(given, type) and hasattr(given, method)
