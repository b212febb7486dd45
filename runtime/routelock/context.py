"""The context that functions of the app get during a run, and the scope of shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from routelock._hints import hint_attributes
from routelock._peer_names import CONTEXT
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.handoffs.payload import HandoffPayload
    from routelock.tools.questions import ToolAnswer

__all__ = ["PAYLOAD_KEY", "MemoryScope", "RunContext", "ToolContext", "scoped"]


PAYLOAD_KEY = "handoff_context"
"""The key of the payload of a transfer in a run's shared memory."""

T = TypeVar("T", default=Any)


@hint_attributes(CONTEXT)
@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[T]):
    """The state of a run at one moment, for instructions, tools, filters, hooks and ``is_enabled``.

    The object is immutable, except for ``shared_memory``, which belongs to this run alone.
    """

    context: T
    """The object that the app passed as ``context=`` to the run. It is never sent to a model."""
    run_id: str = ""
    agent: str = ""
    """Name of the active agent."""
    turn: int = 0
    """Number of the model call, counted from 1 over all agents of the run."""
    usage: Usage = field(default_factory=Usage)
    """Tokens and cost of the run so far."""
    shared_memory: dict[str, Any] = field(default_factory=lambda: {})
    """Data that the agents and tools of one run share; deleted when the run ends."""
    scopes: frozenset[str] = frozenset()
    """The scopes granted to the run, see ``RunConfig.scopes`` and `routelock.scopes`."""
    user_id: str | None = None
    """The app's name for the user, as ``RunConfig.user_id`` says."""
    conversation_id: str | None = None
    """The app's name for the conversation, as ``RunConfig.conversation_id`` says."""

    @property
    def handoff_payload(self) -> HandoffPayload | None:
        """The payload of the last transfer; None without one, or if it cannot be read.

        `routelock.handoffs.payload_of` also returns what is wrong with it. It is read on each access.
        """
        from routelock.handoffs.payload import payload_of  # noqa: PLC0415 - an upward import

        return payload_of(self.shared_memory)[0]


_RUN_FIELDS = tuple(each.name for each in fields(RunContext))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(RunContext[T]):
    """The context of one tool call."""

    tool_name: str = ""
    tool_call_id: str = ""
    tool_arguments: str = ""
    """JSON text as the model wrote it."""
    arguments: Mapping[str, Any] = field(default_factory=lambda: {})
    """The validated arguments, for the tool itself; hooks get ``tool_arguments``."""
    answer: ToolAnswer | None = None
    """The answer to the question that the tool asked in this call, see `routelock.tools.ToolQuestion`."""

    @classmethod
    def of(
        cls,
        moment: RunContext[T],
        *,
        tool_name: str,
        tool_call_id: str,
        tool_arguments: str,
        answer: ToolAnswer | None = None,
    ) -> ToolContext[T]:
        """Return the context of a call at this moment of a run."""
        return cls(
            **{name: getattr(moment, name) for name in _RUN_FIELDS},
            tool_name=tool_name,
            tool_call_id=tool_call_id,
            tool_arguments=tool_arguments,
            answer=answer,
        )

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same if this call is retried: pass it to payment APIs."""
        return f"{self.run_id}:{self.turn}:{self.tool_call_id}"


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """A part of a shared memory, as a dict of its own."""

    outer: dict[str, Any]
    inner: dict[str, Any]
    given: dict[str, Any]
    """The content of ``inner`` when the scope was made."""
    keys: Sequence[str] | None
    """The shared keys; None for all."""

    def widened(self) -> dict[str, Any]:
        """Write the changes of shared keys back to the outer dict, and return it.

        Unchanged keys are left alone: they may have changed in the outer dict in the meantime.
        """
        keys = {**self.given, **self.inner} if self.keys is None else self.keys
        for key in keys:
            if key == PAYLOAD_KEY or self.inner.get(key, self) is self.given.get(key, self):
                continue
            if key in self.inner:
                self.outer[key] = self.inner[key]
            else:
                self.outer.pop(key, None)
        return self.outer


def scoped(memory: dict[str, Any], keys: Sequence[str] | None) -> MemoryScope:
    """Return a scope of a shared memory with these keys; None for all.

    The payload of a transfer is always in the scope, because it is meant for the target.
    """
    kept = memory if keys is None else (*keys, PAYLOAD_KEY)
    given = {key: memory[key] for key in kept if key in memory}
    return MemoryScope(memory, dict(given), given, None if keys is None else tuple(keys))
