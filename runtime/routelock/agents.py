"""Agents and the handoffs between them: frozen declarations, checked when they are made.

An `Agent` holds nothing of a run, so any number of runs may share it. `Handoff` is the one handoff
concept: an edge to an agent or to a handler, offered to the model as ``transfer_to_<target>``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, resolve, takes, wants
from routelock._json import sendable
from routelock._names import capable_name, frozen_list, transfer_tool_name
from routelock._records import NEW_DICT, dataclass
from routelock.context import RunContext
from routelock.declarations import (
    HANDOFF_HOOKS,
    LISTS,
    agent_problems,
    check_handoff,
    collected,
    colliding_names,
    in_list,
    in_one,
    is_list,
    target_name,
    two_of_a_name,
)
from routelock.errors import ConfigError
from routelock.guardrails import Guardrail
from routelock.handlers.port import (
    Handler,
    ModelSettings,
    OutputMode,
    OutputSchema,
    is_handler,
    schema_prompt,
)
from routelock.handoff_context import HandoffContext
from routelock.handoff_request import HandoffRequest, HandoffResponse
from routelock.history.filters import HandoffInputFilter
from routelock.hooks import AgentHooks
from routelock.payloads import HandoffPayload
from routelock.registry import Equipment, Ranked, Section, rank
from routelock.scopes import Scope, checked_scope, permits
from routelock.skills import Skill, equip
from routelock.tools.agent_tool import AsTool
from routelock.tools.approvals import NeedsApproval
from routelock.tools.decorators import with_functions
from routelock.tools.schema import JsonType, strict_schema
from routelock.tools.tool import Tool

__all__ = ["Agent", "Handoff", "Instructions"]

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

_ASK_REASON = "The reason for handing off to this agent"


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """An edge to an agent or a handler. Make one with `routelock.handoff`; make it directly for full control.

    `Handoff.to` is short for the common case. Subclass to change `get_transfer_message`.
    """

    target: Agent[Any] | Handler | str | None = None
    """None when ``on_invoke_handoff`` decides, or any agent with ``capabilities_required`` will do."""
    others: Sequence[Agent[Any] | Handler | str] = ()
    """Who is asked next, in order, when the target declines or is not available."""
    agent_name: str = ""
    """Name of the target; taken from ``target`` when left out."""
    tool_name: str = ""
    """``transfer_to_<slug of agent_name>`` when left out."""
    tool_description: str = ""
    input_type: JsonType[Any] | None = None
    """Checks and parses what the model passes with the transfer."""
    input_json_schema: Mapping[str, Any] | None = None
    """The schema shown to the model; made from ``input_type`` when left out."""
    strict_json_schema: bool = True
    on_handoff: Callable[..., MaybeAwaitable[None]] | None = None
    on_invoke_handoff: Callable[[RunContext[Any], str], MaybeAwaitable[Any]] | None = None
    """Given the context and the raw arguments, returns the agent or handler to go to: it may be
    another one than was declared."""
    input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool | None = None
    """True or False overrides the run's setting; None follows it."""
    is_enabled: bool | Callable[[RunContext[Any], Agent[Any]], MaybeAwaitable[bool]] = True
    """Asked in every turn and before it is taken; a disabled handoff is not offered and cannot be taken."""
    reason: str | None = None
    """Why one would hand over to this target; shown to the model and kept in the record."""
    ask_reason: bool = False
    """Whether the model must say why it hands over."""
    preserve_context: bool = True
    """False shows the target only the newest user message."""
    transfer_system_message: bool = False
    """True appends the source's instructions, labelled, to the target's."""
    scope: Scope | None = None
    """Who may hand over, see `routelock.scopes`; when left out, that of a handler target, or all."""
    capabilities_required: Sequence[str] = ()
    """What the target must be able to do, see ``Agent.capabilities``. Asked when the transfer is made."""
    timeout: float | None = None
    """Seconds that the target has to accept, in its ``on_handoff_request``; None waits for ever."""
    payload: HandoffPayload | Mapping[str, Any] | Callable[..., MaybeAwaitable[Any]] | None = None
    """Data that rides along, see `routelock.payloads`; or a function of the context, and of what the
    model passed, that makes it."""
    share: Sequence[str] | None = None
    """Which keys of the shared memory the target sees, and may change; None for the same dict as the source.
    A payload is not withheld. See `routelock.sharing`."""
    return_to_caller: bool = False
    """Whether the target's output answers the source's call, and the source goes on. If the target fails, the
    source is told, unless ``RunConfig.raise_on`` has ``"failed_handoff"``."""
    run_timeout: float | None = None
    """Seconds that the target has to answer; then the source goes on without. With ``return_to_caller`` the
    source waits for the output, otherwise it stands by and the target's answer is final. A tool that runs is
    not interrupted: give it a timeout of its own."""
    needs_approval: NeedsApproval = False
    """Whether somebody has to approve the transfer first: the run ends with it, see docs/approvals.md."""
    priority: int = 0
    """How urgent it is, for those who decide: lower first, see ``HandoffRequest.priority``."""
    metadata: Mapping[str, Any] = field(default_factory=NEW_DICT)
    """What else the target's ``on_handoff_request`` is to know; it is on the record."""

    def __post_init__(self) -> None:
        for name in ("others", "capabilities_required", "share"):
            if is_list(given := getattr(self, name)):
                _set(self, name, frozen_list(given))
        if not isinstance(cast(object, self.input_type), JsonType | None):
            raise ConfigError(
                f"Handoff: input_type must be a JsonType; write JsonType({self.input_type!r:.80})."
            )
        found = _end_of(self)
        _set(self, "agent_name", self.agent_name or found)
        _set(self, "tool_name", self.tool_name or transfer_tool_name(self.agent_name))
        _set(self, "tool_description", self.tool_description or _description(self))
        scope: object = getattr(self.target, "scope", "all") if self.scope is None else self.scope
        _set(self, "scope", checked_scope(scope, f"Handoff to {self.agent_name!r}"))
        if self.input_json_schema is None:
            schema, strict = _handoff_schema(self)
            _set(self, "input_json_schema", schema)
            _set(self, "strict_json_schema", self.strict_json_schema and strict)
        elif self.strict_json_schema:
            strict_form = strict_schema(self.input_json_schema)
            _set(self, "input_json_schema", strict_form or self.input_json_schema)
            _set(self, "strict_json_schema", strict_form is not None)
        check_handoff(self)

    @classmethod
    def to(cls, target: Agent[Any] | Handler | str, reason: str | None = None) -> Handoff:
        """Return a plain handoff to ``target``, with a reason to do so."""
        return cls(target=target, reason=reason)

    @property
    def label(self) -> str:
        """A short name for logs: ``Handoff: <reason>`` or ``Handoff to <name>``."""
        return f"Handoff: {self.reason}" if self.reason else f"Handoff to {self.agent_name}"

    @property
    def to_handler(self) -> Handler | None:
        """The target, if it is a handler."""
        return self.target if is_handler(self.target) else None

    @cached_property
    def on_handoff_takes_input(self) -> bool:
        """Whether ``on_handoff`` wants what the model passed, beside the context."""
        if self.on_handoff is None:
            return False
        return self.input_type is not None or (self.ask_reason and takes(self.on_handoff, 2))

    def described(self, graph: Mapping[str, Agent[Any]]) -> Handoff:
        """Return the handoff with what the agent that it names is for, unless it says so itself."""
        if not isinstance(self.target, str) or self.tool_description != _description(self):
            return self
        return replace(self, target=graph.get(self.target, self.target), tool_description="")

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The tool as the model is offered it."""
        function: dict[str, Any] = {
            "name": self.tool_name,
            "description": self.tool_description,
            "parameters": self.input_json_schema,
        }
        if self.strict_json_schema:
            function["strict"] = True
        return sendable({"type": "function", "function": function})

    def get_transfer_message(self, agent: Agent[Any] | Handler) -> str:
        """Return the text that answers the transfer call: ``{"assistant": "<name>"}``."""
        return f'{{"assistant": {_as_json(agent.name)}}}'


_as_json = json.JSONEncoder(ensure_ascii=False).encode


def _end_of(edge: Handoff) -> str:
    """Return the name of where a handoff leads, or what stands for it when that is decided later."""
    if edge.target is None and edge.on_invoke_handoff is not None and edge.agent_name:
        return edge.agent_name
    if edge.target is None and edge.capabilities_required:
        if not is_list(edge.capabilities_required):
            raise ConfigError("Handoff: capabilities_required must be a list of names, not one text.")
        return capable_name(edge.capabilities_required)
    return target_name(edge.target)


def _set(declaration: object, name: str, value: object) -> None:
    """Fill in a field of a frozen declaration while it is being made."""
    object.__setattr__(declaration, name, value)


def _description(edge: Handoff) -> str:
    field_of = "prompt" if is_handler(edge.target) else "handoff_description"
    about = cast("str | None", getattr(edge.target, field_of, None))
    found_later = edge.target is None and bool(edge.capabilities_required)
    to = f"an {edge.agent_name}" if found_later else f"the {edge.agent_name} agent"
    parts = [f"Handoff to {to} to handle the request.", about, edge.reason]
    return " ".join(part for part in parts if part)


def _handoff_schema(edge: Handoff) -> tuple[Mapping[str, Any], bool]:
    if edge.input_type is not None:
        return edge.input_type.schema, edge.input_type.strict
    reason = {"reason": {"type": "string", "description": _ASK_REASON}} if edge.ask_reason else {}
    schema = {
        "additionalProperties": False,
        "type": "object",
        "properties": reason,
        "required": list(reason),
    }
    return schema, True


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
