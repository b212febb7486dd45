"""Handoffs: from one agent to another agent or handler, as a tool that the model is offered.

A declaration is frozen and checked when it is made; all that is wrong with it is told in one message.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, overload

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, name_of, takes
from routelock._json import sendable
from routelock._tool_names import capable_name, frozen_list, transfer_tool_name
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.handlers.port import (
    Handler,
    is_handler,
)
from routelock.handoffs.payload import HandoffPayload
from routelock.history.filters import HandoffInputFilter
from routelock.scopes import Scope, checked_scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.schema import JsonType, strict_schema

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["Handoff", "check_handoff", "fill_in", "handoff", "is_list", "is_seconds", "target_name"]


def target_name(target: object) -> str:
    """Return the name of what a handoff leads to.

    Raises:
        ConfigError: it leads nowhere.
    """
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str) or not name:
        hint = "; wrap a function with routelock.function_handler(...)" if callable(target) else ""
        raise ConfigError(
            f"A handoff leads to an Agent, a Handler or the name of an agent, not to {target!r:.80}{hint}."
        )
    leads = isinstance(target, str) or hasattr(target, "handoff_description")  # an agent
    if not leads and not callable(getattr(target, "stream", None)):
        raise ConfigError(f"A handoff leads to an Agent or a Handler; {target!r:.80} has no stream method.")
    return name


def check_handoff(edge: Any) -> None:
    """Make sure that what a handoff declares can work.

    Raises:
        ConfigError: all that cannot.
    """
    where = f"Handoff to {edge.agent_name!r}"
    wrong = [f"{where}: {message}" for holds, message in _handoff_rules(edge) if not holds]
    wrong += _bad_others(edge, where)
    if edge.on_handoff is not None:
        wrong += _bad_callback(edge, where)
    wrong += _bad_payload(edge, where)
    if wrong:
        raise ConfigError("; ".join(wrong) + ".")


def _handoff_rules(edge: Any) -> tuple[tuple[bool, str], ...]:
    return (
        (
            edge.input_filter is None or callable(edge.input_filter),
            f"input_filter must be a function, not {edge.input_filter!r:.80}",
        ),
        (
            edge.input_filter is None or edge.preserve_context,
            "use either input_filter or preserve_context=False, not both",
        ),
        (
            edge.input_type is None or not edge.ask_reason,
            "put a reason field into input_type instead of ask_reason=True",
        ),
        (
            isinstance(edge.is_enabled, bool) or callable(edge.is_enabled),
            f"is_enabled must be a bool or a function, not {edge.is_enabled!r:.80}",
        ),
        (
            isinstance(edge.needs_approval, bool) or callable(edge.needs_approval),
            f"needs_approval must be a bool or a function, not {edge.needs_approval!r:.80}",
        ),
        (
            edge.on_invoke_handoff is None or callable(edge.on_invoke_handoff),
            f"on_invoke_handoff must be a function, not {edge.on_invoke_handoff!r:.80}",
        ),
        *_asking_rules(edge),
    )


def _asking_rules(edge: Any) -> tuple[tuple[bool, str], ...]:
    return (
        (
            edge.target is not None or not edge.others,
            "the first of several agents must be one",
        ),
        (
            edge.run_timeout is None or is_seconds(edge.run_timeout),
            f"run_timeout must be seconds or None, not {edge.run_timeout!r:.80}",
        ),
        (
            edge.timeout is None or is_seconds(edge.timeout),
            f"timeout must be seconds or None, not {edge.timeout!r:.80}",
        ),
        (
            is_list(edge.capabilities_required),
            f"capabilities_required must be a list of names, not {edge.capabilities_required!r:.80}",
        ),
        (
            isinstance(edge.priority, int) and not isinstance(edge.priority, bool),
            f"priority must be a whole number, not {edge.priority!r:.80}",
        ),
        (
            isinstance(edge.metadata, Mapping),
            f"metadata must be a dict, not {edge.metadata!r:.80}",
        ),
        (
            edge.share is None or _is_names(edge.share),
            f"share must be a list of names, not {edge.share!r:.80}",
        ),
        (
            re.fullmatch("[a-zA-Z0-9_-]{1,64}", edge.tool_name) is not None,
            f"providers take a tool name of 1 to 64 of a-z, A-Z, 0-9, _ and -, not {edge.tool_name!r:.80}",
        ),
    )


def _is_names(value: Any) -> bool:
    return hasattr(value, "__len__") and is_list(value) and all(isinstance(name, str) for name in value)


def _bad_others(edge: Any, where: str) -> list[str]:
    """Return what is wrong with who is asked next: found now, not when somebody declines."""
    if not is_list(edge.others):
        return [f"{where}: others must be a list, not {edge.others!r:.80}"]
    wrong: list[str] = []
    names = [edge.agent_name]
    for each in edge.others:
        try:
            names.append(target_name(each))
        except ConfigError as error:
            wrong.append(f"{where}: {str(error).removesuffix('.')}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    return [*wrong, *(f"{where}: {name!r} is in the list twice" for name in twice)]


def _bad_payload(edge: Any, where: str) -> list[str]:
    if callable(edge.payload):
        called = f"{where}: payload {name_of(edge.payload)!r}"
        return [] if takes(edge.payload, 2) else [f"{called} must take the context and the input"]
    if isinstance(edge.payload, HandoffPayload | Mapping | None):
        return []
    kind = type(edge.payload).__name__
    return [f"{where}: payload must be a HandoffPayload, a dict or a function, not {kind}"]


def _bad_callback(edge: Any, where: str) -> list[str]:
    called = f"{where}: on_handoff {name_of(edge.on_handoff)!r}"
    assert edge.on_handoff is not None
    if edge.input_type is not None:
        return [] if takes(edge.on_handoff, 2) else [f"{called} must take the context and the input"]
    if edge.ask_reason and edge.on_handoff_takes_input:
        return []
    return [] if takes(edge.on_handoff, 1) else [f"{called} must take one argument: the context"]


def is_seconds(value: object) -> bool:
    """Whether a value is a time to wait; infinity is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def is_list(value: object) -> bool:
    """Whether a value can stand for a list in a declaration; text and a dict cannot."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


T = TypeVar("T", default=Any)

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
    """Data that rides along, see `HandoffPayload`; or a function of the context, and of what the model
    passed, that makes it."""
    share: Sequence[str] | None = None
    """Which keys of the shared memory the target sees, and may change; None for the same dict as the source.
    A payload is not withheld. See `routelock.context`."""
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
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the target's ``on_handoff_request`` is to know; it is on the record."""

    def __post_init__(self) -> None:
        for name in ("others", "capabilities_required", "share"):
            if is_list(given := getattr(self, name)):
                fill_in(self, name, frozen_list(given))
        if not isinstance(cast(object, self.input_type), JsonType | None):
            raise ConfigError(
                f"Handoff: input_type must be a JsonType; write JsonType({self.input_type!r:.80})."
            )
        found = _end_of(self)
        fill_in(self, "agent_name", self.agent_name or found)
        fill_in(self, "tool_name", self.tool_name or transfer_tool_name(self.agent_name))
        fill_in(self, "tool_description", self.tool_description or _description(self))
        scope: object = getattr(self.target, "scope", "all") if self.scope is None else self.scope
        fill_in(self, "scope", checked_scope(scope, f"Handoff to {self.agent_name!r}"))
        if self.input_json_schema is None:
            schema, strict = _handoff_schema(self)
            fill_in(self, "input_json_schema", schema)
            fill_in(self, "strict_json_schema", self.strict_json_schema and strict)
        elif self.strict_json_schema:
            strict_form = strict_schema(self.input_json_schema)
            fill_in(self, "input_json_schema", strict_form or self.input_json_schema)
            fill_in(self, "strict_json_schema", strict_form is not None)
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


def fill_in(declaration: object, name: str, value: object) -> None:
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


Given = TypeVar("Given")


def _as_targets(agent: object) -> Sequence[Any]:
    """Return one target or several as a sequence; an empty list counts as a missing target."""
    return cast("Sequence[Any]", agent) or (None,) if isinstance(agent, list | tuple) else (agent,)


@overload
def handoff(
    agent: Agent[Any] | Handler | str | Sequence[Agent[Any] | Handler | str] | None = None,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[Any], Given], object] | None = None,
    input_type: type[Given],
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: bool | Callable[[RunContext[Any], Agent[Any]], MaybeAwaitable[bool]] = True,
    reason: str | None = None,
    ask_reason: bool = False,
    preserve_context: bool = True,
    transfer_system_message: bool = False,
    scope: Scope | None = None,
    capabilities_required: Sequence[str] = (),
    timeout: float | None = None,
    payload: HandoffPayload | Mapping[str, Any] | Callable[..., MaybeAwaitable[Any]] | None = None,
    share: Sequence[str] | None = None,
    return_to_caller: bool = False,
    run_timeout: float | None = None,
    needs_approval: NeedsApproval = False,
    priority: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Handoff: ...


@overload
def handoff(
    agent: Agent[Any] | Handler | str | Sequence[Agent[Any] | Handler | str] | None = None,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[Any]], object] | Callable[[RunContext[Any], Any], object] | None = None,
    input_type: None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: bool | Callable[[RunContext[Any], Agent[Any]], MaybeAwaitable[bool]] = True,
    reason: str | None = None,
    ask_reason: bool = False,
    preserve_context: bool = True,
    transfer_system_message: bool = False,
    scope: Scope | None = None,
    capabilities_required: Sequence[str] = (),
    timeout: float | None = None,
    payload: HandoffPayload | Mapping[str, Any] | Callable[..., MaybeAwaitable[Any]] | None = None,
    share: Sequence[str] | None = None,
    return_to_caller: bool = False,
    run_timeout: float | None = None,
    needs_approval: NeedsApproval = False,
    priority: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Handoff: ...


def handoff(
    agent: Agent[Any] | Handler | str | Sequence[Agent[Any] | Handler | str] | None = None,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[..., Any] | None = None,
    input_type: type[Any] | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: bool | Callable[[RunContext[Any], Agent[Any]], MaybeAwaitable[bool]] = True,
    reason: str | None = None,
    ask_reason: bool = False,
    preserve_context: bool = True,
    transfer_system_message: bool = False,
    scope: Scope | None = None,
    capabilities_required: Sequence[str] = (),
    timeout: float | None = None,
    payload: HandoffPayload | Mapping[str, Any] | Callable[..., MaybeAwaitable[Any]] | None = None,
    share: Sequence[str] | None = None,
    return_to_caller: bool = False,
    run_timeout: float | None = None,
    needs_approval: NeedsApproval = False,
    priority: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Handoff:
    """Return a handoff to an agent, a handler, or the name of an agent of the same graph.

    Args:
        agent: the target, or several: the first that agrees. None asks all with the capabilities.
        tool_name_override: replaces ``transfer_to_<target>``.
        tool_description_override: replaces the description that is made from the target's.
        on_handoff: called with the context when the transfer is made, and with the parsed input as
            well when there is an ``input_type`` (or with the reason, if it takes two arguments and
            ``ask_reason`` is set). Sync or async.
        input_type: what the model must pass with the transfer: a pydantic model, dataclass,
            TypedDict, or any type that pydantic can check. Nothing is coerced.
        input_filter: changes what the target sees; wins over the run's filter and over nesting.
        nest_handoff_history: whether the target sees a summary; None follows the run.
        is_enabled: a bool, or a function of the context and the agent, asked in every turn and before a call.
        reason: why one would hand over; part of the tool's description.
        ask_reason: makes the model say why.
        preserve_context: False shows the target only the newest user message.
        transfer_system_message: also shows the target the source's instructions.
        scope: who may hand over, see `routelock.scopes`; default: that of a handler, or all.
        capabilities_required: what the target must be able to do (``Agent.capabilities``).
        timeout: seconds that the target's ``on_handoff_request`` may take.
        payload: data that rides along, see `HandoffPayload`, or a function of the context and what the model
            passed, sync or async, that makes it.
        share: which keys of the shared memory the target sees and may change, see `routelock.context`; None
            for all.
        return_to_caller: the target's output answers the source's call, and the source goes on. If the
            target fails, the source is told instead.
        run_timeout: seconds that the target has to answer, with or without ``return_to_caller``; then the
            source goes on without.
        needs_approval: whether somebody has to approve the transfer before it is made; a bool, or a function
            of the context and the arguments.
        priority: how urgent it is, for those who decide, such as a store: lower first.
        metadata: what else the target's ``on_handoff_request`` is to know.

    Raises:
        ConfigError: the options contradict one another, or a callback cannot be called as described.
    """
    fields = dict(locals())  # read before any other local exists: options that are fields of that name
    for renamed in ("agent", "tool_name_override", "tool_description_override"):
        del fields[renamed]
    fields["input_type"] = None if input_type is None else JsonType(input_type)
    fields["metadata"] = {} if metadata is None else metadata
    targets = _as_targets(agent)
    return Handoff(
        target=targets[0],
        others=tuple(targets[1:]),
        tool_name=tool_name_override or "",
        tool_description=tool_description_override or "",
        **fields,
    )
