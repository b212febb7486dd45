"""Agents and the handoffs between them: frozen declarations, checked when they are made.

An `Agent` holds nothing of a run, so any number of runs may share it. `Handoff` is the one handoff
concept: an edge to an agent or to a handler, offered to the model as ``transfer_to_<target>``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, resolve, wants
from routelock._names import frozen_list
from routelock._records import NEW_DICT, dataclass
from routelock.context import RunContext
from routelock.declarations import (
    HANDOFF_HOOKS,
    LISTS,
    agent_problems,
    collected,
    colliding_names,
    in_list,
    in_one,
    two_of_a_name,
)
from routelock.guardrails import Guardrail
from routelock.handlers.port import (
    Handler,
    ModelSettings,
    OutputMode,
    OutputSchema,
    schema_prompt,
)
from routelock.handoff_request import HandoffRequest, HandoffResponse
from routelock.handoffs.context import HandoffContext
from routelock.handoffs.handoff import Handoff, is_list
from routelock.hooks import AgentHooks
from routelock.registry import Equipment, Ranked, Section, rank
from routelock.scopes import permits
from routelock.skills import Skill, equip
from routelock.tools.agent_tool import AsTool
from routelock.tools.decorators import with_functions
from routelock.tools.schema import JsonType
from routelock.tools.tool import Tool

__all__ = ["Agent", "Instructions"]


T = TypeVar("T", default=Any)

Instructions = str | Callable[..., MaybeAwaitable[str]]
"""Text, or a sync or async function of nothing, of the context, or of the context and the agent."""

_Consent = MaybeAwaitable[HandoffResponse | None]

_OnHandoffRequest = (
    Callable[[HandoffRequest], _Consent] | Callable[[HandoffRequest, RunContext[Any]], _Consent]
)

_OnHandoffReceived = (
    Callable[[HandoffContext], MaybeAwaitable[None]]
    | Callable[[HandoffContext, RunContext[Any]], MaybeAwaitable[None]]
)


def _set(declaration: object, name: str, value: object) -> None:
    """Fill in a field of a frozen declaration while it is being made."""
    object.__setattr__(declaration, name, value)


def _as_edge(given: Agent[Any] | Handoff | Handler | str) -> Handoff:
    return given if isinstance(given, Handoff) else Handoff(target=given)


@dataclass(frozen=True, eq=False)
class Agent(AsTool, Generic[T]):
    """A declaration of who answers: instructions, a model, tools, and whom it may hand over to.

    Agents are immutable: `dataclasses.replace` makes a changed copy. ``T`` is the type of the object
    passed as ``context=`` to a run.

    Raises:
        ConfigError: anything in the declaration that cannot work, all of it in one message. Skills are
            initialised only if the rest can work.
    """

    name: str
    instructions: Instructions | None = None
    """The system prompt: text, or a sync or async function of (context) or (context, agent)."""
    model: str | Handler | None = field(default=None, kw_only=True)
    """A LiteLLM model string such as ``"openai/gpt-4o"``, or any handler."""
    handlers: Sequence[Handler | Callable[..., Any]] = field(default=(), kw_only=True)
    """More that can answer, beside ``model``: handlers, or async functions that become ones. The lowest
    priority is the default (``model`` has 10 if it does not say, the others 50), and each run starts with
    it; code may switch to the others by name, see `routelock.HandoffRequest`."""
    skills: Sequence[Skill] = field(default=(), kw_only=True)
    """Bundles of tools, handlers, prompts and hooks."""
    tools: Sequence[Tool | Callable[..., Any]] = field(default=(), kw_only=True)
    """Tools, or plain functions that become ones as `routelock.tool` makes them."""
    handoffs: Sequence[Agent[Any] | Handoff | Handler | str] = field(default=(), kw_only=True)
    """Whom this agent may hand over to. A name stands for an agent of the same graph: that is how
    two agents can name each other."""
    handoff_description: str | None = field(default=None, kw_only=True)
    """What this agent is for, as shown to agents that may hand over to it."""
    capabilities: Sequence[str] = field(default=(), kw_only=True)
    """What this agent can do, in words of the app's own; see ``Handoff.capabilities_required``."""
    on_handoff_request: _OnHandoffRequest | None = field(default=None, kw_only=True)
    """Asked before this agent takes over, with the request, and with the `RunContext` of the source if it
    takes two arguments. Sync or async; None accepts. What it raises is a rejection."""
    on_handoff_received: _OnHandoffReceived | None = field(default=None, kw_only=True)
    """Called once this agent has taken over, with the history that it is about to be shown, and with the
    `RunContext` if it takes two arguments. Sync or async."""
    handoff_note: bool = field(default=True, kw_only=True)
    """Whether this agent is told, in its system prompt, of a payload that came with a transfer."""
    model_settings: ModelSettings | Mapping[str, Any] = field(default_factory=NEW_DICT, kw_only=True)
    output_type: Any = field(default=None, kw_only=True)
    """The type of the final output, a union or a literal too, which are no ``type``; text when None."""
    output_mode: OutputMode = field(default="auto", kw_only=True)
    """How the model is asked for it, see `routelock.output_modes`; by default its provider decides."""
    input_guardrails: Sequence[Guardrail] = field(default=(), kw_only=True)
    output_guardrails: Sequence[Guardrail] = field(default=(), kw_only=True)
    hooks: AgentHooks | None = field(default=None, kw_only=True)
    equipment: Equipment = field(init=False, repr=False)
    """What ``model``, ``handlers`` and ``skills`` come to; made once, with the agent."""
    edges: tuple[Handoff, ...] = field(init=False, repr=False)
    """The handoffs, each as a `Handoff`, and one to each handler that is exposed."""

    def __post_init__(self) -> None:
        for name in LISTS:  # what is appended to a list afterwards would be ignored without a word
            if is_list(given := getattr(self, name)):
                _set(self, name, frozen_list(given))
        if isinstance(self.tools, tuple):
            _set(self, "tools", with_functions(self.tools))
        wrong = agent_problems(self)
        declared = collected(wrong, _as_edge, in_list(self.handoffs))
        equipment = equip(self.name, self.model, in_list(self.handlers), in_list(self.skills), wrong)
        exposed = [
            Handoff(target=each.handler, scope=each.scope)
            for each in equipment.handlers
            if each.expose and not any(edge.target == each.handler for edge in declared)
        ]
        _set(self, "equipment", equipment)
        _set(self, "edges", (*declared, *exposed))
        tools = [each for each in in_list(self.tools) if isinstance(each, Tool)]
        wrong += colliding_names(self.name, [*tools, *equipment.tools], self.edges)
        if wrong:
            raise in_one(wrong)

    async def get_system_prompt(self, context: RunContext[T]) -> str | None:
        """Return the instructions for this moment of a run."""
        if self.instructions is None or isinstance(self.instructions, str):
            return self.instructions
        return await resolve(self.instructions(*(context, self)[: self._instructions_take]))

    @cached_property
    def _instructions_take(self) -> int:
        assert callable(self.instructions)
        return wants(self.instructions, 2)

    @cached_property
    def told_context(self) -> Collection[str]:
        """Which of ``on_handoff_request`` and ``on_handoff_received`` take the `RunContext` as well."""
        hooks: dict[str, Any] = {name: getattr(self, name) for name in HANDOFF_HOOKS}
        return {name for name, hook in hooks.items() if hook is not None and wants(hook, 2) == 2}

    @cached_property
    def all_tools(self) -> tuple[Tool, ...]:
        """Its own tools, and then those of its skills."""
        return (*cast("tuple[Tool, ...]", self.tools), *self.equipment.tools)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """What joins the instructions: prompts of skills, and of all handlers that may take over."""
        known = {section.name for section in self.equipment.sections if section.of_handler}
        targets = {edge.to_handler.name: edge.to_handler for edge in self.edges if edge.to_handler}
        more = [rank(target).section for name, target in targets.items() if name not in known]
        return tuple(
            sorted([*self.equipment.sections, *filter(None, more)], key=lambda section: section.priority)
        )

    @cached_property
    def open_handlers(self) -> Sequence[Ranked]:
        """The handlers that anybody may reach, the default first."""
        return [each for each in self.equipment.handlers if permits(each.scope, ())]

    @cached_property
    def hooked(self) -> bool:
        """Whether it is watched by hooks: by its own, or by those of its skills."""
        return self.hooks is not None or bool(self.equipment.hooks)

    @cached_property
    def worked_out(self) -> dict[Any, Any]:
        """What follows from the declaration alone, kept for the next run by whoever worked it out."""
        return {}

    @cached_property
    def output(self) -> JsonType[Any] | None:
        """Parses the final text when there is an ``output_type`` other than ``str``."""
        return None if self.output_type in (None, str) else JsonType(self.output_type)

    @cached_property
    def output_schema(self) -> OutputSchema | None:
        """What each request says of the final text."""
        of = self.output
        return None if of is None else OutputSchema("final_output", of.schema, of.strict, self.output_mode)

    @cached_property
    def output_prompt(self) -> str:
        """What joins the instructions when they have to ask for the output."""
        of = self.output
        return "" if of is None or self.output_mode != "prompted" else schema_prompt(of.schema)

    def _repr_svg_(self) -> str:
        # upward and late: what draws is loaded where something is drawn
        from routelock.drawing import graph_svg  # noqa: PLC0415

        return graph_svg(self)

    @cached_property
    def graph(self) -> Mapping[str, Agent[Any]]:
        """All agents that can be reached from here by object, by name; the nearest first.

        Raises:
            ConfigError: two different agents have one name.
        """
        found: dict[str, Agent[Any]] = {}
        twice: dict[str, None] = {}
        waiting: deque[Agent[Any]] = deque([self])
        while waiting:
            agent = waiting.popleft()
            if found.setdefault(agent.name, agent) is agent:
                targets = [target for edge in agent.edges for target in (edge.target, *edge.others)]
                waiting += [
                    each for each in targets if isinstance(each, Agent) and each is not found.get(each.name)
                ]
            else:
                twice[agent.name] = None
        if twice:
            raise in_one([two_of_a_name(name) for name in twice])
        return found
