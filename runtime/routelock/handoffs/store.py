"""Stores of pending handoffs, for targets that decide later: people, or workers in other processes.

A run needs no store: it calls the agents of its own process directly. For any other target the request is
filed in a store, the target finds it there and decides, and the caller reads the decision.
`HandoffStore` is the contract, for a database of yours; `InMemoryHandoffStore` serves one process.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import anyio

from routelock._callables import MaybeAwaitable, resolve
from routelock._json_document import check_json
from routelock.errors import ConfigError, HandoffStateError
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus

__all__ = ["HandoffStore", "InMemoryHandoffStore", "asks", "decided", "finished", "incoming"]


T = TypeVar("T")

_WITHDRAWN = "the caller no longer waits for it"

_WITHDRAW_SECONDS = 5.0
"""The longest that a cancelled run waits for the store while it withdraws its request."""


class HandoffStore(Protocol):
    """Keeps handoffs until they are done. Each method may be sync or async.

    Every change follows the states of `HandoffStatus`. A second decision on the same handoff raises an error
    and changes nothing: if two workers accept it, one of them gets the work.
    """

    def request(self, request: HandoffRequest) -> MaybeAwaitable[str]:
        """File a request and return its handoff id. Filing the same request again returns the same id.

        Two requests are the same if ``request_id`` and target are equal: a run may ask several targets under
        one id.

        Raises:
            ValueError: ``request_id`` or ``from_agent`` is empty, the request cannot be written as JSON, or
                it differs from the one that was filed under the same id.
        """
        ...

    def pending(self, agent: str) -> MaybeAwaitable[Sequence[tuple[str, HandoffRequest]]]:
        """Return the pending requests to an agent with their handoff ids: lowest ``priority``, then oldest.

        Raises:
            ValueError: the name is empty.
        """
        ...

    def status(self, handoff_id: str) -> MaybeAwaitable[HandoffResponse]:
        """Return the state of a handoff.

        Raises:
            HandoffStateError: no handoff has this id. The methods below raise this error as well.
            ValueError: the id is empty. The methods below raise this error as well.
        """
        ...

    def accept(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None
    ) -> MaybeAwaitable[HandoffResponse]:
        """Accept a pending handoff; ``metadata`` is JSON data for the caller.

        Raises:
            HandoffStateError: the handoff is not pending any more. The methods below raise this error as
                well.
        """
        ...

    def reject(self, handoff_id: str, reason: str) -> MaybeAwaitable[HandoffResponse]:
        """Decline a pending handoff; the source gets the reason."""
        ...

    def expire(self, handoff_id: str) -> MaybeAwaitable[HandoffResponse]:
        """Withdraw a pending handoff: the caller no longer waits for it."""
        ...

    def complete(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None
    ) -> MaybeAwaitable[HandoffResponse]:
        """Mark an accepted handoff as done; ``metadata`` adds to that of `accept`."""
        ...

    def fail(self, handoff_id: str, reason: str) -> MaybeAwaitable[HandoffResponse]:
        """Mark a pending or accepted handoff as failed."""
        ...

    def clear(self) -> MaybeAwaitable[None]:
        """Delete all handoffs."""
        ...


@dataclass(slots=True)
class _Entry:
    """One stored handoff. Its data is JSON text, so that no caller shares a part of it."""

    handoff_id: str
    target: str
    order: tuple[int, int]
    """Priority, and the number of requests filed before."""
    request: str
    expires_at: float | None
    timeout: float | None
    status: HandoffStatus = HandoffStatus.PENDING
    reason: str | None = None
    metadata: str = "{}"

    def response(self) -> HandoffResponse:
        """Return the state of the handoff."""
        return HandoffResponse(
            status=self.status,
            handoff_id=self.handoff_id,
            rejection_reason=self.reason,
            metadata=json.loads(self.metadata),
        )

    def key(self) -> tuple[str, str]:
        """Return what identifies the request: its id and its target."""
        return json.loads(self.request)["request_id"], self.target


def _default_id(request: HandoffRequest) -> str:
    return f"{request.request_id}:{request.target_name}"


class InMemoryHandoffStore:
    """A `HandoffStore` for one process. Threads and event loops may share it.

    It stores requests as JSON, like a store between processes. So callers may edit the requests that it
    returns. A request with a ``timeout`` expires that many seconds after it was filed.

    Args:
        clock: returns seconds from any fixed point; read on each access.
        new_id: makes the handoff id of a new request, by default ``<request_id>:<to_agent>``, which stays the
            same when a run is replayed. It is called while the store is locked, and must not use the store.
        keep: how many finished handoffs are kept, the newest; None keeps all.

    Raises:
        ConfigError: ``keep`` is negative.
    """

    __slots__ = ("_clock", "_count", "_entries", "_finished", "_ids", "_keep", "_lock", "_new_id", "_pending")

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[HandoffRequest], str] = _default_id,
        keep: int | None = 10_000,
    ) -> None:
        if keep is not None and keep < 0:
            raise ConfigError(f"keep must be 0 or more, or None, not {keep}.")
        self._clock = clock
        self._new_id = new_id
        self._keep = keep
        self._count = 0
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._pending: dict[str, dict[str, _Entry]] = {}
        self._finished: deque[str] = deque()

    def request(self, request: HandoffRequest) -> str:
        """File a request; see `HandoffStore.request`.

        Raises:
            ValueError: as in `HandoffStore.request`; or ``new_id`` returned no text, or an id that is in use.
        """
        data = request.to_dict()
        HandoffRequest.from_dict(data)  # the caller must get the error, and not the worker that reads it
        key = _checked("request_id", request.request_id), request.target_name
        with self._lock:
            if (known := self._ids.get(key)) is not None:
                _check_same(data, json.loads(self._entries[known].request))
                return known
            handoff_id = self._new_id(request)
            if not isinstance(cast(object, handoff_id), str) or not handoff_id or handoff_id in self._entries:
                raise ConfigError(f"new_id must make a new text each time, not {handoff_id!r:.80}.")
            expires_at = None if request.timeout is None else self._clock() + request.timeout
            order = (request.priority, self._count)
            self._count += 1
            entry = _Entry(handoff_id, key[1], order, json.dumps(data), expires_at, request.timeout)
            self._ids[key] = handoff_id
            self._entries[handoff_id] = self._pending.setdefault(key[1], {})[handoff_id] = entry
            return handoff_id

    def pending(self, agent: str) -> list[tuple[str, HandoffRequest]]:
        """Return the pending requests to an agent; see `HandoffStore.pending`."""
        _checked("agent", agent)
        with self._lock:
            for entry in [*self._pending.get(agent, {}).values()]:
                self._expire_if_late(entry)
            entries = sorted(self._pending.get(agent, {}).values(), key=lambda entry: entry.order)
        return [(entry.handoff_id, HandoffRequest.from_dict(json.loads(entry.request))) for entry in entries]

    def status(self, handoff_id: str) -> HandoffResponse:
        """Return the state of a handoff; see `HandoffStore.status`."""
        with self._lock:
            return self._entry(handoff_id).response()

    def accept(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None, *, agent: str | None = None
    ) -> HandoffResponse:
        """Accept a pending handoff; see `HandoffStore.accept`.

        Args:
            handoff_id: the id of the handoff.
            metadata: JSON data for the caller.
            agent: the agent that accepts; None does not check that the handoff is meant for it.

        Raises:
            HandoffStateError: as in `HandoffStore.accept`; or the handoff is meant for another agent.
        """
        return self._change(handoff_id, HandoffStatus.ACCEPTED, metadata=metadata, agent=agent)

    def reject(self, handoff_id: str, reason: str, *, agent: str | None = None) -> HandoffResponse:
        """Decline a pending handoff; see `HandoffStore.reject`, and for ``agent`` `accept`."""
        return self._change(handoff_id, HandoffStatus.REJECTED, reason, agent=agent)

    def expire(self, handoff_id: str) -> HandoffResponse:
        """Withdraw a pending handoff; see `HandoffStore.expire`."""
        return self._change(handoff_id, HandoffStatus.EXPIRED, _WITHDRAWN)

    def complete(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None, *, agent: str | None = None
    ) -> HandoffResponse:
        """Mark an accepted handoff as done; see `HandoffStore.complete`, and for ``agent`` `accept`."""
        return self._change(handoff_id, HandoffStatus.COMPLETED, metadata=metadata, agent=agent)

    def fail(self, handoff_id: str, reason: str) -> HandoffResponse:
        """Mark a handoff as failed; see `HandoffStore.fail`."""
        return self._change(handoff_id, HandoffStatus.FAILED, reason)

    def clear(self) -> None:
        """Delete all handoffs; see `HandoffStore.clear`."""
        with self._lock:
            self._reset()

    def _change(
        self,
        handoff_id: str,
        status: HandoffStatus,
        reason: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        agent: str | None = None,
    ) -> HandoffResponse:
        added = dict(metadata or {})
        check_json({"metadata": added})
        with self._lock:
            entry = self._entry(handoff_id)
            if agent is not None and agent != entry.target:
                raise HandoffStateError(f"Handoff {handoff_id} is for {entry.target!r}, not for {agent!r}.")
            entry.status.to(status, handoff_id)
            entry.metadata = json.dumps(json.loads(entry.metadata) | added)
            self._set_status(entry, status, reason)
            return entry.response()

    def _entry(self, handoff_id: str) -> _Entry:
        entry = self._entries.get(_checked("handoff_id", handoff_id))
        if entry is None:
            raise HandoffStateError(
                f"Handoff {handoff_id} not found: it was deleted, or never in this store."
            )
        self._expire_if_late(entry)
        return entry

    def _expire_if_late(self, entry: _Entry) -> None:
        is_late = entry.expires_at is not None and self._clock() >= entry.expires_at
        if is_late and entry.status is HandoffStatus.PENDING:
            reason = f"{entry.target!r} did not accept within {entry.timeout:g} s"
            self._set_status(entry, HandoffStatus.EXPIRED, reason)

    def _set_status(self, entry: _Entry, status: HandoffStatus, reason: str | None) -> None:
        if entry.status is HandoffStatus.PENDING:
            pending = self._pending[entry.target]
            del pending[entry.handoff_id]
            if not pending:
                del self._pending[entry.target]  # otherwise every name ever used would stay in memory
        entry.status, entry.reason = status, reason
        if status is not HandoffStatus.ACCEPTED:
            self._finished.append(entry.handoff_id)
        while self._keep is not None and len(self._finished) > self._keep:
            removed = self._entries.pop(self._finished.popleft())
            del self._ids[removed.key()]


def _checked(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"A handoff store needs a {what} that is text and not empty, not {value!r:.80}.")
    return value


def _check_same(data: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a different request under a known id: it would get the decision on the first one."""
    if other := [name for name, value in known.items() if data[name] != value]:
        raise ConfigError(
            f"Another request was filed under request_id {data['request_id']!r:.80}, with another "
            f"{', '.join(other)}; give each request an id of its own."
        )


async def decided(store: HandoffStore, handoff_id: str, *, poll: float = 0.1) -> HandoffResponse:
    """Wait until a handoff is not pending any more, and return its state.

    Args:
        store: the store in which the handoff was filed.
        handoff_id: the id that `HandoffStore.request` returned.
        poll: seconds between two reads of the store.

    Raises:
        HandoffStateError: the store has no such handoff, or has deleted it.
    """
    return await _poll(
        lambda: store.status(handoff_id), lambda found: found.status is not HandoffStatus.PENDING, poll
    )


async def finished(store: HandoffStore, handoff_id: str, *, poll: float = 0.1) -> HandoffResponse:
    """Wait until a handoff is declined, expired, completed or failed, and return its state.

    Arguments and errors are those of `decided`.
    """
    unfinished = (HandoffStatus.PENDING, HandoffStatus.ACCEPTED)
    return await _poll(lambda: store.status(handoff_id), lambda found: found.status not in unfinished, poll)


async def incoming(store: HandoffStore, agent: str, *, poll: float = 0.1) -> tuple[str, HandoffRequest]:
    """Wait until a request to an agent is pending, and return the first one with its handoff id.

    The request stays pending until it is decided. If several workers wait for it, only one of them can accept
    it with `HandoffStore.accept`; the others get a `HandoffStateError`.

    Args:
        store: the store in which requests are filed.
        agent: the name of the target.
        poll: seconds between two reads of the store.
    """
    return (await _poll(lambda: store.pending(agent), bool, poll))[0]


async def _poll(read: Callable[[], MaybeAwaitable[T]], is_enough: Callable[[T], bool], seconds: float) -> T:
    while True:
        found = await resolve(read())
        if is_enough(found):
            return found
        await anyio.sleep(seconds)


def asks(
    store: HandoffStore, *, poll: float = 0.1, withdraw: bool = True
) -> Callable[[HandoffRequest], Awaitable[HandoffResponse]]:
    """Return an ``on_handoff_request`` that files each request and waits for the decision.

    If the run stops waiting, because it was cancelled or ``handoff(timeout=...)`` passed, the request
    expires. A request that was accepted in that moment becomes failed.

    Args:
        store: where the requests are filed.
        poll: seconds between two reads of the store.
        withdraw: False leaves a request in the store when the run stops waiting; its timeout is then up to
            the store. A later run with the same ``run_id`` files the same request and finds the decision.
    """

    async def ask(request: HandoffRequest) -> HandoffResponse:
        handoff_id = await resolve(store.request(request))
        try:
            response = await decided(store, handoff_id, poll=poll)
            if anyio.current_time() >= anyio.current_effective_deadline():
                await anyio.sleep_forever()  # the run will not take the response: wait for the cancellation
            return response
        except anyio.get_cancelled_exc_class():
            if withdraw:
                with anyio.move_on_after(_WITHDRAW_SECONDS, shield=True):
                    await _withdraw(store, handoff_id)
            raise

    return ask


async def _withdraw(store: HandoffStore, handoff_id: str) -> None:
    try:
        await resolve(store.expire(handoff_id))
    except HandoffStateError:  # the handoff was decided, or expired, at this moment
        with suppress(HandoffStateError):
            await resolve(store.fail(handoff_id, _WITHDRAWN))
