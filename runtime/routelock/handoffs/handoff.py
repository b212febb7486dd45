"""Declares a handoff from an agent to another agent or a handler, offered to the model as a tool.

A declaration is frozen and checked when it is made; one error lists everything that is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, takes
from routelock._hints import hint_keywords
from routelock._peer_names import HANDOFF_FIELDS
from routelock._sendable import sendable
from routelock._tool_names import frozen_list, transfer_tool_name
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.handlers.port import Handler, is_handler
from routelock.handoffs.handoff_defaults import default_name_of, description_of, schema_of
from routelock.handoffs.handoff_problems import is_list, problems_of_handoff
from routelock.handoffs.payload import HandoffPayload
from routelock.history.filters import HandoffInputFilter
from routelock.scopes import Scope, checked_scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.schema import JsonType, strict_schema

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["Handoff", "fill_in"]


T = TypeVar("T", default=Any)


@hint_keywords(HANDOFF_FIELDS)
@dataclass(frozen=True, kw_only=True)
class Handoff:
    """A handoff to an agent or a handler. `routelock.handoff` makes one; the class itself has all settings.

    `Handoff.to` is short for the common case. Subclass it to change `get_transfer_message`.
    """

    target: Agent[Any] | Handler | str | None = None
    """The target. None if ``on_invoke_handoff`` chooses it, or if any agent with ``capabilities_required``
    fits."""
    others: Sequence[Agent[Any] | Handler | str] = ()
    """The targets to try next, in order, when the target declines or is not available."""
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
    """Takes the context and the raw arguments and returns the agent or handler to hand over to, which may
    differ from ``target``."""
    input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool | None = None
    """Whether the target sees a summary of the history; None follows the setting of the run."""
    is_enabled: bool | Callable[[RunContext[Any], Agent[Any]], MaybeAwaitable[bool]] = True
    """Checked in every turn and before the transfer; a disabled handoff is not offered and cannot be used."""
    reason: str | None = None
    """When to hand over to this target; shown to the model and kept in the record."""
    ask_reason: bool = False
    """Whether the model is asked why it hands over; if it does not say, it is ``"No reason provided"``."""
    preserve_context: bool = True
    """Whether the target sees the conversation; if not, it sees only the newest user message."""
    transfer_system_message: bool = False
    """Whether the source's instructions are appended, with a label, to those of the target."""
    scope: Scope | None = None
    """The scope needed to hand over, see `routelock.scopes`; by default that of a handler target, or all."""
    capabilities_required: Sequence[str] = ()
    """The capabilities that the target must have, see ``Agent.capabilities``. Checked at the transfer."""
    timeout: float | None = None
    """Seconds that the target's ``on_handoff_request`` has to accept; None for no limit."""
    payload: HandoffPayload | Mapping[str, Any] | Callable[..., MaybeAwaitable[Any]] | None = None
    """Data for the target, see `HandoffPayload`; or a function that makes it from the context and the input
    that the model passed."""
    share: Sequence[str] | None = None
    """The keys of the shared memory that the target sees and may change; None for the source's own dict. A
    payload is always shown. See `routelock.context`."""
    return_to_caller: bool = False
    """Whether the target's output answers the source's call, and the source goes on. If the target fails, the
    error answers the call, unless ``RunConfig.raise_on`` has ``"failed_handoff"``."""
    run_timeout: float | None = None
    """Seconds that the target has to answer; then the source goes on without the answer. If the target is in
    time, its answer goes to the source with ``return_to_caller``, and is the run's final output otherwise. A
    running tool is not interrupted: give it a timeout of its own."""
    needs_approval: NeedsApproval = False
    """Whether the transfer needs approval first: the run ends with it, see docs/approvals.md."""
    priority: int = 0
    """Urgency for stores and targets that decide: lower first, see ``HandoffRequest.priority``."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: {})
    """Additional data for the target's ``on_handoff_request``; it is on the record."""

    def __post_init__(self) -> None:
        for name in ("others", "capabilities_required", "share"):
            if is_list(given := getattr(self, name)):
                fill_in(self, name, frozen_list(given))
        if not isinstance(cast(object, self.input_type), JsonType | None):
            raise ConfigError(
                f"Handoff: input_type must be a JsonType; write JsonType({self.input_type!r:.80})."
            )
        found = default_name_of(self)
        fill_in(self, "agent_name", self.agent_name or found)
        fill_in(self, "tool_name", self.tool_name or transfer_tool_name(self.agent_name))
        fill_in(self, "tool_description", self.tool_description or description_of(self))
        scope: object = getattr(self.target, "scope", "all") if self.scope is None else self.scope
        fill_in(self, "scope", checked_scope(scope, f"Handoff to {self.agent_name!r}"))
        if self.input_json_schema is None:
            schema, strict = schema_of(self)
            fill_in(self, "input_json_schema", schema)
            fill_in(self, "strict_json_schema", self.strict_json_schema and strict)
        elif self.strict_json_schema:
            strict_form = strict_schema(self.input_json_schema)
            fill_in(self, "input_json_schema", strict_form or self.input_json_schema)
            fill_in(self, "strict_json_schema", strict_form is not None)
        if problems := [
            f"Handoff to {self.agent_name!r}: {problem}" for problem in problems_of_handoff(self)
        ]:
            raise ConfigError("; ".join(problems) + ".")

    @classmethod
    def to(cls, target: Agent[Any] | Handler | str, reason: str | None = None) -> Handoff:
        """Return a plain handoff to ``target``, with the reason to hand over."""
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
        """Whether ``on_handoff`` takes the model's input as well as the context."""
        if self.on_handoff is None:
            return False
        return self.input_type is not None or (self.ask_reason and takes(self.on_handoff, 2))

    def described(self, graph: Mapping[str, Agent[Any]]) -> Handoff:
        """Return the handoff with the named agent's description, unless it has a description of its own."""
        if not isinstance(self.target, str) or self.tool_description != description_of(self):
            return self
        return replace(self, target=graph.get(self.target, self.target), tool_description="")

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The tool definition that the model is offered."""
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


def fill_in(declaration: object, name: str, value: object) -> None:
    """Set a field of a frozen declaration in its ``__post_init__``."""
    object.__setattr__(declaration, name, value)
