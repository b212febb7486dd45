"""Where handoffs wait that are not decided at once: for a person, or for a worker in another process.

A run needs none of this: in one process its agents are asked directly. A store is for those who cannot be
called: what is asked of them is filed, they look for it, decide, and whoever asked sees the decision.
`HandoffStore` is the contract, for a database of yours; `InMemoryHandoffStore` keeps it in one process.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import anyio

from routelock._callables import MaybeAwaitable, resolve
from routelock._json import check_json
from routelock.errors import ConfigError, HandoffStateError
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus

__all__ = ["HandoffStore", "InMemoryHandoffStore", "asks", "decided", "finished", "incoming"]


_NOBODY_WAITS = "nobody waits for it any more"

_LONGEST_GOODBYE = 5.0
"""Seconds that a store may take to note that nobody waits any more."""


class HandoffStore(Protocol):
    """Keeps handoffs until they are done. Each method may be sync or async.

    Every change goes through the states of `HandoffStatus`. Whoever comes second to a decision is told so by
    an error, and nothing is changed: of two workers that accept, one has the work.
    """

    def request(self, request: HandoffRequest) -> MaybeAwaitable[str]:
        """File a request and return its handoff id; the same request gets the same id again.

        It is the same when ``request_id`` and target are: a run may ask several targets under one.

        Raises:
            ValueError: ``request_id`` or ``from_agent`` is empty, the request cannot leave the process, or
                it is not as it was when it was filed before.
        """
        ...

    def pending(self, agent: str) -> MaybeAwaitable[Sequence[tuple[str, HandoffRequest]]]:
        """Return what waits for this agent, with the handoff ids: lowest ``priority`` first, then oldest.

        Raises:
            ValueError: the name is empty.
        """
        ...

    def status(self, handoff_id: str) -> MaybeAwaitable[HandoffResponse]:
        """Return how a handoff stands.

        Raises:
            HandoffStateError: there is none with this id.
            ValueError: the id is empty. So in all that follow.
        """
        ...

    def accept(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None
    ) -> MaybeAwaitable[HandoffResponse]:
        """Take a pending handoff; ``metadata`` is JSON data for whoever asked.

        Raises:
            HandoffStateError: it is not pending any more. The same below.
        """
        ...

    def reject(self, handoff_id: str, reason: str) -> MaybeAwaitable[HandoffResponse]:
        """Decline a pending handoff; the source is told the reason."""
        ...

    def expire(self, handoff_id: str) -> MaybeAwaitable[HandoffResponse]:
        """Take a pending handoff back: nobody waits for it any more."""
        ...

    def complete(
        self, handoff_id: str, metadata: Mapping[str, Any] | None = None
    ) -> MaybeAwaitable[HandoffResponse]:
        """Say that the work of an accepted handoff is done; ``metadata`` adds to what was said before."""
        ...

    def fail(self, handoff_id: str, reason: str) -> MaybeAwaitable[HandoffResponse]:
        """Say that a handoff came to nothing, accepted or not."""
        ...

    def clear(self) -> MaybeAwaitable[None]:
        """Forget everything."""
        ...


@dataclass(slots=True)
class _Filed:
    """One handoff as it is kept: what is data is text, so that nobody else holds a part of it."""

    handoff_id: str
    target: str
    place: tuple[int, int]
    """Priority, and how many were filed before."""
    request: str
    expires: float | None
    timeout: float | None
    status: HandoffStatus = HandoffStatus.PENDING
    reason: str | None = None
    metadata: str = "{}"

    @property
    def shown(self) -> HandoffResponse:
        """What anybody may see of it."""
        return HandoffResponse(
            status=self.status,
            handoff_id=self.handoff_id,
            rejection_reason=self.reason,
            metadata=json.loads(self.metadata),
        )

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same request when it is filed once more."""
        return json.loads(self.request)["request_id"], self.target


def _usual_id(request: HandoffRequest) -> str:
    return f"{request.request_id}:{request.target_name}"


class InMemoryHandoffStore:
    """A `HandoffStore` for one process. Any number of threads and event loops may share one.

    It keeps JSON, so what works with it works between processes, and what it returns is the reader's own. A
    request with a ``timeout`` expires so many seconds after it was filed.

    Args:
        clock: seconds, from any point on; asked whenever somebody looks.
        new_id: makes the handoff id of a new request. By default that is ``<request_id>:<to_agent>``, the
            same whenever a run is replayed. It is called while the store is locked, and must not use it.
        keep: so many handoffs that are over are remembered, the latest. None forgets none.

    Raises:
        ConfigError: ``keep`` is negative.
    """

    __slots__ = ("_clock", "_count", "_filed", "_ids", "_keep", "_lock", "_new_id", "_over", "_waiting")

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[HandoffRequest], str] = _usual_id,
        keep: int | None = 10_000,
    ) -> None:
        if keep is not None and keep < 0:
            raise ConfigError(f"keep must be 0 or more, or None, not {keep}.")
        self._clock = clock
        self._new_id = new_id
        self._keep = keep
        self._count = 0
        self._lock = threading.Lock()
        self._forget_all()

    def _forget_all(self) -> None:
        self._filed: dict[str, _Filed] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._waiting: dict[str, dict[str, _Filed]] = {}
        self._over: deque[str] = deque()

    def request(self, request: HandoffRequest) -> str:
        """File a request; see `HandoffStore.request`.

        Raises:
            ValueError: as said there; or ``new_id`` made no text, or one that is in use.
        """
        data = request.to_dict()
        HandoffRequest.from_dict(data)  # else whoever looks for it would be the first to find out
        key = _named("request_id", request.request_id), request.target_name
        text = json.dumps(data)
        with self._lock:
            if (known := self._ids.get(key)) is not None:
                _check_same(data, json.loads(self._filed[known].request))
                return known
            handoff_id = self._new_id(request)
            if not isinstance(cast(object, handoff_id), str) or not handoff_id or handoff_id in self._filed:
                raise ConfigError(f"new_id must make a new text each time, not {handoff_id!r:.80}.")
            expires = None if request.timeout is None else self._clock() + request.timeout
            place = (request.priority, self._count)
            self._count += 1
            filed = _Filed(handoff_id, key[1], place, text, expires, request.timeout)
            self._ids[key] = handoff_id
            self._filed[handoff_id] = self._waiting.setdefault(key[1], {})[handoff_id] = filed
            return handoff_id

    def pending(self, agent: str) -> list[tuple[str, HandoffRequest]]:
        """Return what waits for this agent; see `HandoffStore.pending`."""
        _named("agent", agent)
        with self._lock:
            for filed in [*self._waiting.get(agent, {}).values()]:
                self._expire_if_late(filed)
            left = sorted(self._waiting.get(agent, {}).values(), key=lambda filed: filed.place)
            texts = [(filed.handoff_id, filed.request) for filed in left]
        return [(handoff_id, HandoffRequest.from_dict(json.loads(text))) for handoff_id, text in texts]

    def status(self, handoff_id: str) -> HandoffResponse:
        """Return how a handoff stands; see `HandoffStore.status`."""
        with self._lock:
            return self._found(handoff_id).shown

    def accept(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        """Take a pending handoff; see `HandoffStore.accept`."""
        return self._move(handoff_id, HandoffStatus.ACCEPTED, metadata=metadata)

    def reject(self, handoff_id: str, reason: str) -> HandoffResponse:
        """Decline a pending handoff; see `HandoffStore.reject`."""
        return self._move(handoff_id, HandoffStatus.REJECTED, reason)

    def expire(self, handoff_id: str) -> HandoffResponse:
        """Take a pending handoff back; see `HandoffStore.expire`."""
        return self._move(handoff_id, HandoffStatus.EXPIRED, _NOBODY_WAITS)

    def complete(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        """Say that the work is done; see `HandoffStore.complete`."""
        return self._move(handoff_id, HandoffStatus.COMPLETED, metadata=metadata)

    def fail(self, handoff_id: str, reason: str) -> HandoffResponse:
        """Say that it came to nothing; see `HandoffStore.fail`."""
        return self._move(handoff_id, HandoffStatus.FAILED, reason)

    def clear(self) -> None:
        """Forget everything; see `HandoffStore.clear`."""
        with self._lock:
            self._forget_all()

    def _move(
        self,
        handoff_id: str,
        status: HandoffStatus,
        reason: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> HandoffResponse:
        told = dict(metadata or {})
        check_json({"metadata": told})
        with self._lock:
            filed = self._found(handoff_id)
            filed.status.to(status, handoff_id)
            filed.metadata = json.dumps(json.loads(filed.metadata) | told)
            self._set(filed, status, reason)
            return filed.shown

    def _found(self, handoff_id: str) -> _Filed:
        filed = self._filed.get(_named("handoff_id", handoff_id))
        if filed is None:
            raise HandoffStateError(f"Handoff {handoff_id} not found")
        self._expire_if_late(filed)
        return filed

    def _expire_if_late(self, filed: _Filed) -> None:
        late = filed.expires is not None and self._clock() >= filed.expires
        if late and filed.status is HandoffStatus.PENDING:
            why = f"{filed.target!r} did not accept within {filed.timeout:g} s"
            self._set(filed, HandoffStatus.EXPIRED, why)

    def _set(self, filed: _Filed, status: HandoffStatus, reason: str | None) -> None:
        if filed.status is HandoffStatus.PENDING:
            waiting = self._waiting[filed.target]
            del waiting[filed.handoff_id]
            if not waiting:
                del self._waiting[filed.target]  # names that come and go leave nothing behind
        filed.status, filed.reason = status, reason
        if status is not HandoffStatus.ACCEPTED:
            self._over.append(filed.handoff_id)
        while self._keep is not None and len(self._over) > self._keep:
            forgotten = self._filed.pop(self._over.popleft())
            del self._ids[forgotten.key]


def _named(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"A handoff store needs a {what} that is text and not empty, not {value!r:.80}.")
    return value


def _check_same(data: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Check that a request is filed again and not another one: its answer would be that of the first."""
    if other := [name for name, value in known.items() if data[name] != value]:
        raise ConfigError(
            f"Another request was filed under request_id {data['request_id']!r:.80}, with another "
            f"{', '.join(other)}; give each request an id of its own."
        )


async def decided(store: HandoffStore, handoff_id: str, *, poll: float = 0.1) -> HandoffResponse:
    """Wait until a handoff is not pending any more, and return how it stands then.

    Args:
        store: where it was filed.
        handoff_id: what `HandoffStore.request` returned.
        poll: seconds between two looks.

    Raises:
        HandoffStateError: there is no such handoff, or the store has forgotten it.
    """
    return await _past((HandoffStatus.PENDING,), store, handoff_id, poll)


async def finished(store: HandoffStore, handoff_id: str, *, poll: float = 0.1) -> HandoffResponse:
    """Wait as `decided` does, and go on until the work of an accepted handoff is done or has failed."""
    return await _past((HandoffStatus.PENDING, HandoffStatus.ACCEPTED), store, handoff_id, poll)


async def _past(
    states: Collection[HandoffStatus], store: HandoffStore, handoff_id: str, poll: float
) -> HandoffResponse:
    response = await resolve(store.status(handoff_id))
    while response.status in states:
        await anyio.sleep(poll)
        response = await resolve(store.status(handoff_id))
    return response


async def incoming(store: HandoffStore, agent: str, *, poll: float = 0.1) -> tuple[str, HandoffRequest]:
    """Wait until something is pending for an agent, and return the first of it, with the handoff id.

    It stays pending until somebody decides: where several workers wait, one gets to `HandoffStore.accept` it,
    and the others are told so by a `HandoffStateError`.
    """
    found = await resolve(store.pending(agent))
    while not found:
        await anyio.sleep(poll)
        found = await resolve(store.pending(agent))
    return found[0]


def asks(
    store: HandoffStore, *, poll: float = 0.1, withdraw: bool = True
) -> Callable[[HandoffRequest], Awaitable[HandoffResponse]]:
    """Return an ``on_handoff_request`` that files each request and waits until somebody has decided.

    When the run stops waiting, because it was cancelled or ``handoff(timeout=...)`` is over, the request
    is expired; whoever has accepted it in that moment finds it failed.

    Args:
        store: where those look who decide.
        poll: seconds between two looks.
        withdraw: False leaves a request where it is when the run stops waiting; a timeout is then the store's
            to see to. A later run with the same ``run_id`` asks the same again, and finds what has been
            decided since.
    """

    async def ask(request: HandoffRequest) -> HandoffResponse:
        handoff_id = await resolve(store.request(request))
        try:
            response = await decided(store, handoff_id, poll=poll)
            if anyio.current_time() >= anyio.current_effective_deadline():
                await anyio.sleep_forever()  # too late to tell the run: the cancellation is on its way
            return response
        except anyio.get_cancelled_exc_class():
            if not withdraw:
                raise
            with anyio.move_on_after(_LONGEST_GOODBYE, shield=True):
                await _withdraw(store, handoff_id)
            raise

    return ask


async def _withdraw(store: HandoffStore, handoff_id: str) -> None:
    try:
        await resolve(store.expire(handoff_id))
    except HandoffStateError:  # decided, or expired, in this very moment
        with suppress(HandoffStateError):
            await resolve(store.fail(handoff_id, _NOBODY_WAITS))
