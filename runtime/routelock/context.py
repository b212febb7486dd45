"""What the code of an app is given while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.handoffs.payload import HandoffPayload

__all__ = ["PAYLOAD_KEY", "MemoryScope", "RunContext", "ToolContext", "scoped"]


PAYLOAD_KEY = "handoff_context"
"""Where the shared memory of a run holds the payload of a transfer."""

T = TypeVar("T", default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[T]):
    """One moment of a run, handed to instructions, tools, filters, hooks and ``is_enabled``.

    The object itself cannot be changed; ``shared_memory`` is the one bag that can, and it belongs
    to this run alone.
    """

    context: T
    """The object that the app passed as ``context=`` to the run. It is never sent to a model."""
    run_id: str = ""
    agent: str = ""
    """Name of the agent that is active now."""
    turn: int = 0
    """Number of the model call, counted from 1 over all agents of the run."""
    usage: Usage = field(default_factory=Usage)
    """What the run has consumed until now."""
    shared_memory: dict[str, Any] = field(default_factory=dict[str, Any])
    """Data that the parts of one run share; gone when the run ends."""
    scopes: frozenset[str] = frozenset()
    """Who is asking, as ``RunConfig.scopes`` says; see `routelock.scopes`."""
    user_id: str | None = None
    """The app's name for the user, as ``RunConfig.user_id`` says."""
    conversation_id: str | None = None
    """The app's name for the conversation, as ``RunConfig.conversation_id`` says."""

    @property
    def handoff_payload(self) -> HandoffPayload | None:
        """The data that rode along with a transfer; None when there is none, or it cannot be read.

        `routelock.handoffs.payload_of` also says what is wrong with it. It is read anew each time.
        """
        from routelock.handoffs.payload import payload_of  # noqa: PLC0415 - see above

        return payload_of(self.shared_memory)[0]


_SHARED = tuple(each.name for each in fields(RunContext))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(RunContext[T]):
    """The context of one tool call."""

    tool_name: str = ""
    tool_call_id: str = ""
    tool_arguments: str = ""
    """JSON text as the model wrote it."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments after validation, for the tool itself; hooks see ``tool_arguments``."""

    @classmethod
    def of(
        cls, moment: RunContext[T], *, tool_name: str, tool_call_id: str, tool_arguments: str
    ) -> ToolContext[T]:
        """Return the context of a call that is made at this moment of a run."""
        return cls(
            **{name: getattr(moment, name) for name in _SHARED},
            tool_name=tool_name,
            tool_call_id=tool_call_id,
            tool_arguments=tool_arguments,
        )

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same when this very call is retried: pass it to payment APIs."""
        return f"{self.run_id}:{self.turn}:{self.tool_call_id}"


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """A part of a shared memory, as a dict of its own."""

    outer: dict[str, Any]
    inner: dict[str, Any]
    given: dict[str, Any]
    """What was in the inner one at the beginning."""
    keys: Sequence[str] | None
    """What is shared; None for everything."""

    def widened(self) -> dict[str, Any]:
        """Return the outer dict, with what changed of that which is shared.

        What did not change is left alone: others may have changed it in the meantime.
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
    """Return a dict of its own within a memory, with these keys of it; None for all.

    A payload is not withheld: it is for the target.
    """
    kept = memory if keys is None else (*keys, PAYLOAD_KEY)
    given = {key: memory[key] for key in kept if key in memory}
    return MemoryScope(memory, dict(given), given, None if keys is None else tuple(keys))
