"""The function `handoff`, which declares a handoff with the names that users of other libraries know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from routelock._callables import MaybeAwaitable
from routelock._hints import hint_keywords
from routelock._peer_names import HANDOFF_KEYWORDS
from routelock.context import RunContext
from routelock.handlers.port import Handler
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload
from routelock.history.filters import HandoffInputFilter
from routelock.scopes import Scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.schema import JsonType

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["handoff"]


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


@hint_keywords(HANDOFF_KEYWORDS)
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
        agent: the target, or a list of which the first that accepts takes over. None tries all agents that
            have ``capabilities_required``.
        tool_name_override: replaces ``transfer_to_<target>``.
        tool_description_override: replaces the description that is made from the target's.
        on_handoff: a sync or async function that is called when the transfer is made. It gets the context;
            with an ``input_type`` also the parsed input; with ``ask_reason`` also the reason, if it takes two
            arguments.
        input_type: what the model must pass with the transfer: a pydantic model, dataclass,
            TypedDict, or any type that pydantic can check. Nothing is coerced.
        input_filter: changes what the target sees; replaces the run's filter and nesting.
        nest_handoff_history: whether the target sees a summary; None follows the run.
        is_enabled: a bool, or a function of the context and the agent, called in every turn and before a
            transfer.
        reason: when to hand over; part of the tool's description.
        ask_reason: asks the model why it hands over.
        preserve_context: False shows the target only the newest user message.
        transfer_system_message: also shows the target the source's instructions.
        scope: the scope needed to hand over, see `routelock.scopes`; default: that of a handler, or all.
        capabilities_required: the capabilities that the target must have (``Agent.capabilities``).
        timeout: seconds that the target's ``on_handoff_request`` may take.
        payload: data for the target, see `HandoffPayload`, or a function that makes it, sync or async, from
            the context and the model's input.
        share: the keys of the shared memory that the target sees and may change, see `routelock.context`;
            None for all.
        return_to_caller: the target's output answers the source's call, and the source goes on. If the
            target fails, the error answers the call.
        run_timeout: seconds that the target has to answer, with or without ``return_to_caller``; then the
            source goes on without the answer.
        needs_approval: whether the transfer needs approval first; a bool, or a function of the context and
            the arguments.
        priority: urgency for stores and targets that decide: lower first.
        metadata: additional data for the target's ``on_handoff_request``.

    Raises:
        ConfigError: the options contradict one another, or a callback cannot be called as described.
    """
    fields = dict(locals())  # only the arguments: no other local variable exists yet
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
