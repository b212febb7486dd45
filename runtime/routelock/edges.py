"""Declaring a handoff, with types that tie its callback to what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from routelock._callables import MaybeAwaitable
from routelock.agents import Agent, Handoff
from routelock.context import RunContext
from routelock.handlers.port import Handler
from routelock.history.filters import HandoffInputFilter
from routelock.payloads import HandoffPayload
from routelock.scopes import Scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.schema import JsonType

__all__ = ["handoff"]

Given = TypeVar("Given")


def _listed(agent: object) -> Sequence[Any]:
    """Return one target or several as several; an empty list as one that is missing."""
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
        payload: data that rides along, see `routelock.payloads`, or a function of the context and what
            the model passed, sync or async, that makes it.
        share: which keys of the shared memory the target sees and may change, see `routelock.sharing`; None
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
    targets = _listed(agent)
    return Handoff(
        target=targets[0],
        others=tuple(targets[1:]),
        tool_name=tool_name_override or "",
        tool_description=tool_description_override or "",
        on_handoff=on_handoff,
        input_type=None if input_type is None else JsonType(input_type),
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=is_enabled,
        reason=reason,
        ask_reason=ask_reason,
        preserve_context=preserve_context,
        transfer_system_message=transfer_system_message,
        scope=scope,
        capabilities_required=capabilities_required,
        timeout=timeout,
        payload=payload,
        share=share,
        return_to_caller=return_to_caller,
        run_timeout=run_timeout,
        needs_approval=needs_approval,
        priority=priority,
        metadata={} if metadata is None else metadata,
    )
