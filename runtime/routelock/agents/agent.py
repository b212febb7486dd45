"""The class `Agent`: an immutable declaration, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

from typing_extensions import TypeVar, Unpack

from routelock._callables import MaybeAwaitable, argument_count, resolve
from routelock._hints import hint_attributes, hint_keywords
from routelock._peer_names import AGENT, AGENT_KEYWORDS
from routelock._tool_names import frozen_list
from routelock.agents.agent_problems import (
    HANDOFF_HOOKS,
    LISTS,
    agent_problems,
    as_list,
    check_model,
    colliding_names,
    combine_errors,
    duplicate_name_error,
)
from routelock.agents.agent_tool import UsableAsTool
from routelock.agents.checked_graph import checked_graph, reachable
from routelock.agents.deferral import Deferrals
from routelock.agents.hooks import AgentHooks
from routelock.agents.offer import OfferedTools, fixed_offer
from routelock.agents.registry import PromptSection, Registered, RegisteredHandler, collect, register
from routelock.agents.skill import Skill, register_all
from routelock.context import RunContext
from routelock.guardrails import Guardrail
from routelock.handlers.port import Handler, ModelSettings, OutputMode, OutputSchema, ToolSpec
from routelock.handlers.structured_output import schema_prompt
from routelock.handoff_request import HandoffRequest, HandoffResponse
from routelock.handoffs.context import HandoffContext
from routelock.handoffs.handoff import Handoff, fill_in
from routelock.handoffs.handoff_problems import is_list
from routelock.history.compaction import Compact
from routelock.scopes import permits
from routelock.tools.decorators import is_tool, with_functions
from routelock.tools.schema import JsonType
from routelock.tools.search import ToolSearch
from routelock.tools.tool import Tool
from routelock.tools.vendor_tool import VendorTool

__all__ = [
    "Agent",
    "Instructions",
]


Context = TypeVar("Context", default=Any, contravariant=True)

Output = TypeVar("Output", default=Any)

_Context = TypeVar("_Context", default=Any)

_Output = TypeVar("_Output", default=Any)

Instructions = (
    str | Callable[[RunContext[_Context]], MaybeAwaitable[str]] | Callable[..., MaybeAwaitable[str]]
)
"""Text, or a sync or async function of (), (context) or (context, agent)."""

_Consent = MaybeAwaitable[HandoffResponse | None]

_OnHandoffRequest = (
    Callable[[HandoffRequest], _Consent] | Callable[[HandoffRequest, RunContext[Any]], _Consent]
)

_OnHandoffReceived = (
    Callable[[HandoffContext], MaybeAwaitable[None]]
    | Callable[[HandoffContext, RunContext[Any]], MaybeAwaitable[None]]
)


def _as_handoff(given: Agent[Any] | Handoff | Handler | str) -> Handoff:
    return given if isinstance(given, Handoff) else Handoff(target=given)


class _Fields(TypedDict, Generic[_Context], total=False):
    """Types of the arguments of `Agent` that do not decide the type of its output."""

    model: str | Handler | None
    handlers: Sequence[Handler | Callable[..., Any]]
    skills: Sequence[Skill]
    tools: Sequence[Tool[_Context] | VendorTool | ToolSpec | Callable[..., Any]]
    handoff_description: str | None
    capabilities: Sequence[str]
    on_handoff_request: _OnHandoffRequest | None
    on_handoff_received: _OnHandoffReceived | None
    handoff_note: bool
    model_settings: ModelSettings
    output_mode: OutputMode
    compact: Compact | None
    input_guardrails: Sequence[Guardrail]
    output_guardrails: Sequence[Guardrail]
    hooks: AgentHooks | None
    tool_search: ToolSearch | None


@hint_attributes(AGENT)
@hint_keywords(AGENT_KEYWORDS)
@dataclass(frozen=True, eq=False)
class Agent(UsableAsTool[Output], Generic[Context, Output]):
    """An agent: instructions, a model, tools, and the targets of its handoffs.

    Agents are immutable: `dataclasses.replace` makes a changed copy. ``Context`` is the type that the tools
    expect of the object that a run gets as ``context=``. ``Output`` is the type of the final output of a run
    that starts with this agent: that of ``output_type``, or text. If the agent has handoffs, another agent
    may answer: then it is `Any`, unless the type is given, as in ``Agent[App, Invoice](...)``.

    Raises:
        ConfigError: the declaration is invalid; the message lists all errors. Skills are initialised only if
            the rest of the declaration is valid.
    """

    name: str
    instructions: Instructions[Any] | None = None
    """The system prompt: text, or a sync or async function of (), (context) or (context, agent)."""
    model: str | Handler | None = field(default=None, kw_only=True)
    """A LiteLLM model string such as ``"openai/gpt-4o"``, or any handler."""
    handlers: Sequence[Handler | Callable[..., Any]] = field(default=(), kw_only=True)
    """More handlers beside ``model``, or async functions that become handlers. The one with the lowest
    priority is the default (without a priority ``model`` has 10 and the others 50), and each run starts with
    it. Code may switch to the others by name, see `routelock.HandoffRequest`."""
    skills: Sequence[Skill] = field(default=(), kw_only=True)
    """Bundles of tools, handlers, prompts and hooks."""
    tools: Sequence[Tool[Any] | VendorTool | ToolSpec | Callable[..., Any]] = field(default=(), kw_only=True)
    """Tools, plain functions, which `routelock.tool` makes tools, and vendors' own tools, also as dicts."""
    handoffs: Sequence[Agent[Any] | Handoff | Handler | str] = field(default=(), kw_only=True)
    """The targets that this agent may hand over to. A name stands for an agent of the same graph, so two
    agents can name each other."""
    handoff_description: str | None = field(default=None, kw_only=True)
    """The purpose of this agent, shown to agents that may hand over to it."""
    capabilities: Sequence[str] = field(default=(), kw_only=True)
    """The capabilities of this agent, named by the app; see ``Handoff.capabilities_required``."""
    on_handoff_request: _OnHandoffRequest | None = field(default=None, kw_only=True)
    """A sync or async function that accepts or rejects a handoff to this agent. It gets the request, and the
    `RunContext` of the source if it takes two arguments. None accepts, and an exception rejects."""
    on_handoff_received: _OnHandoffReceived | None = field(default=None, kw_only=True)
    """A sync or async function that is called after this agent has taken over. It gets the history that the
    agent will see, and the `RunContext` if it takes two arguments."""
    handoff_note: bool = field(default=True, kw_only=True)
    """Whether the system prompt of this agent describes the payload of a handoff to it."""
    model_settings: ModelSettings = field(default_factory=ModelSettings, kw_only=True)
    """Settings for the vendor. Keys that `ModelSettings` does not name are sent too."""
    output_type: Any = field(default=None, kw_only=True)
    """The type of the final output; it may be a union or a literal. None is text."""
    output_mode: OutputMode = field(default="auto", kw_only=True)
    """How the model is asked for the output, see `routelock.handlers.OutputMode`."""
    compact: Compact | None = field(default=None, kw_only=True)
    """How a long conversation is shown to this agent; None for ``RunConfig.compact``."""
    input_guardrails: Sequence[Guardrail] = field(default=(), kw_only=True)
    output_guardrails: Sequence[Guardrail] = field(default=(), kw_only=True)
    hooks: AgentHooks | None = field(default=None, kw_only=True)
    tool_search: ToolSearch | None = field(default=None, kw_only=True)
    """Which tools the model has to find first, and how; None for ``RunConfig.tool_search``."""
    registered: Registered = field(init=False, repr=False)
    """The handlers, and the parts of the skills; registered once, when the agent is made."""
    all_handoffs: tuple[Handoff, ...] = field(init=False, repr=False)
    """The handoffs as `Handoff` objects, and one to each exposed handler."""

    if TYPE_CHECKING:  # the type of the output depends on the arguments, and a dataclass has one signature
        # mypy gives the types in `Agent[App](...)` to the type variables of the class only
        @overload
        def __init__(
            self: Agent[Context, str],  # pyright: ignore[reportInvalidTypeVarUse]
            name: str,
            instructions: Instructions[Context] | None = None,
            *,
            output_type: None = None,
            **fields: Unpack[_Fields[Context]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[Context, _Output],  # pyright: ignore[reportInvalidTypeVarUse]
            name: str,
            instructions: Instructions[Context] | None = None,
            *,
            output_type: type[_Output],
            **fields: Unpack[_Fields[Context]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            instructions: Instructions[Context] | None = None,
            *,
            output_type: Any = None,
            handoffs: Sequence[Agent[Any, Any] | Handoff | Handler | str] = (),
            **fields: Unpack[_Fields[Context]],
        ) -> None: ...
        def __init__(self, *args: Any, **fields: Any) -> None: ...

    def __post_init__(self) -> None:
        for name in LISTS:  # an element that is appended later would be ignored
            if is_list(given := getattr(self, name)):
                fill_in(self, name, frozen_list(given))
        if isinstance(self.tools, tuple):
            fill_in(self, "tools", with_functions(self.tools))
        wrong = agent_problems(self)
        declared = collect(wrong, _as_handoff, as_list(self.handoffs))
        registered = register_all(self.name, self.model, as_list(self.handlers), as_list(self.skills), wrong)
        exposed = [
            Handoff(target=each.handler, scope=each.scope)
            for each in registered.handlers
            if each.expose and not any(own.target == each.handler for own in declared)
        ]
        fill_in(self, "registered", registered)
        fill_in(self, "all_handoffs", (*declared, *exposed))
        tools: list[Any] = [each for each in as_list(self.tools) if isinstance(each, Tool | VendorTool)]
        wrong += colliding_names(self.name, [*tools, *registered.tools], self.all_handoffs)
        if wrong:
            raise combine_errors(wrong)
        _ = self.deferrals

    async def get_system_prompt(self, context: RunContext[Any]) -> str | None:
        """Return the instructions for the next model call of a run."""
        if self.instructions is None or isinstance(self.instructions, str):
            return self.instructions
        write: Callable[..., MaybeAwaitable[str]] = self.instructions
        return await resolve(write(*(context, self)[: self._instruction_arguments]))

    @cached_property
    def _instruction_arguments(self) -> int:
        assert callable(self.instructions)
        return argument_count(self.instructions, 2)

    @cached_property
    def hooks_with_context(self) -> Collection[str]:
        """Those of ``on_handoff_request`` and ``on_handoff_received`` that take the `RunContext` too."""
        hooks: dict[str, Any] = {name: getattr(self, name) for name in HANDOFF_HOOKS}
        return {name for name, hook in hooks.items() if hook is not None and argument_count(hook, 2) == 2}

    @cached_property
    def all_tools(self) -> tuple[Tool, ...]:
        """The agent's own tools, and then those of its skills."""
        return (*filter(is_tool, self.tools), *self.registered.tools)

    @cached_property
    def fixed_vendor_tools(self) -> Sequence[VendorTool]:
        """The tools of the vendor that every run of the agent offers, whatever its scopes and its context."""
        of_vendor = [each for each in self.tools if isinstance(each, VendorTool)]
        return [each for each in of_vendor if each.is_enabled is True and each.scope == "all"]

    @cached_property
    def deferrals(self) -> Deferrals:
        """The tools that the model has to find first. Raises the errors of `Deferrals.of`."""
        return Deferrals(self)

    @cached_property
    def sections(self) -> tuple[PromptSection, ...]:
        """The sections after the instructions: prompts of skills, and of handlers that may take over."""
        known = {section.name for section in self.registered.sections if section.of_handler}
        targets = {each.to_handler.name: each.to_handler for each in self.all_handoffs if each.to_handler}
        more = [register(target).section for name, target in targets.items() if name not in known]
        return tuple(
            sorted([*self.registered.sections, *filter(None, more)], key=lambda section: section.priority)
        )

    @cached_property
    def open_handlers(self) -> Sequence[RegisteredHandler]:
        """The handlers that a run without scopes may use, the default first."""
        return [each for each in self.registered.handlers if permits(each.scope, ())]

    @cached_property
    def has_hooks(self) -> bool:
        """Whether the agent or one of its skills has hooks."""
        return self.hooks is not None or bool(self.registered.hooks)

    @cached_property
    def default_handler(self) -> Handler | None:
        """The first handler of runs without scopes; None for a model string. Raises as `check_model`."""
        check_model(self)
        first = self.open_handlers[0].handler if self.open_handlers else None
        return None if isinstance(first, str) else first

    @cached_property
    def fixed_offers(self) -> Mapping[str, OfferedTools | None]:
        """The offers of runs without scopes and external tools, by the name of the active handler.

        An offer has no handoff to the active handler itself. A handler that is the target of no handoff has
        the offer of ``""``. All runs share these objects, because providers recognise tools that they have
        encoded.
        """
        targets = {each.to_handler.name for each in self.all_handoffs if each.to_handler is not None}
        return {handler: fixed_offer(self, handler) for handler in ("", *targets)}

    @cached_property
    def output(self) -> JsonType[Any] | None:
        """The parser of the final output; None if the output is text."""
        return None if self.output_type in (None, str) else JsonType(self.output_type)

    @cached_property
    def output_schema(self) -> OutputSchema | None:
        """The output schema of each request; None if the output is text."""
        of = self.output
        return None if of is None else OutputSchema("final_output", of.schema, of.strict, self.output_mode)

    @cached_property
    def output_prompt(self) -> str:
        """The instruction that asks for the output, for ``output_mode="prompted"``; empty in other modes."""
        of = self.output
        return "" if of is None or self.output_mode != "prompted" else schema_prompt(of.schema)

    def _repr_svg_(self) -> str:
        # upward and lazy: the drawing code is imported only where a picture is drawn
        from routelock.agents.svg import graph_svg  # noqa: PLC0415

        return graph_svg(self)

    @cached_property
    def graph(self) -> Mapping[str, Agent[Any]]:
        """All agents that are reachable through agent objects, by name; the nearest first.

        Raises:
            ConfigError: two different agents have one name.
        """
        found, twice = reachable(self)
        if twice:
            raise combine_errors([duplicate_name_error(name) for name in twice])
        return found

    @cached_property
    def vendor_tool_users(self) -> Sequence[Agent[Any]]:
        """The agents of `graph` with `fixed_vendor_tools`."""
        return [each for each in self.graph.values() if each.fixed_vendor_tools]

    @cached_property
    def checked_graph(self) -> Mapping[str, Agent[Any]]:
        """The checked agents of a run that begins with this agent and adds no others, by name.

        Raises the errors of the function `checked_graph`.
        """
        return checked_graph(self)
