"""Guards that keep tests from the network and from models, whatever client they use."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from routelock.handlers.port import MODEL_CALL_CHECK, Request

__all__ = ["ModelCallBlocked", "NetworkBlocked", "models_allowed", "no_models", "no_network"]


class ModelCallBlocked(AssertionError):
    """A model was about to be called although the test forbids it. ``model`` is its name."""

    def __init__(self, model: str, request: Request) -> None:
        super().__init__(
            f"Agent {request.agent!r} was about to ask the model {model!r} in turn {request.turn}: this "
            f"test must not. Use a ScriptedHandler or a cassette, or allow it: no_models(allow=[{model!r}])."
        )
        self.model = model


class _ModelGuard:
    """Refuses model calls: the value of `MODEL_CALL_CHECK` inside `no_models`.

    The object, and not a context variable, holds whether it is lifted: tests may share an event loop, whose
    tasks run with the context variables of the test that started the loop.
    """

    __slots__ = ("allowed", "blocked", "lifted")

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = frozenset(allowed)
        self.blocked: list[str] = []
        self.lifted = 0
        """How many blocks of `models_allowed` are open."""

    def __call__(self, model: str, request: Request) -> None:
        if not self.lifted and model not in self.allowed:
            self.blocked.append(model)
            raise ModelCallBlocked(model, request)


@contextmanager
def no_models(*, allow: Iterable[str] = ()) -> Generator[list[str]]:
    """Refuse every model call: to a vendor, to this machine, and to agents behind a URL.

    Unlike `no_network` it stops a call before anything is loaded or opened, its error names the agent, and it
    also refuses models on this machine. It covers the handlers of `routelock_providers`, wherever they are
    called from. Scripts, functions and cassettes (see `use_cassette`) still answer.

    Yields the list of models that were refused; each refusal adds to it at once. The guard holds for this
    task and for the tasks that it starts from now on.

    Args:
        allow: models that may be called, by the name that the error shows.

    Raises:
        ModelCallBlocked: in the run that calls a model.
    """
    guard = _ModelGuard(allow)
    before = MODEL_CALL_CHECK.get()
    MODEL_CALL_CHECK.set(guard)
    try:
        yield guard.blocked
    finally:
        MODEL_CALL_CHECK.set(before)


@contextmanager
def models_allowed() -> Generator[None]:
    """Lift the surrounding `no_models` inside the block, where something else answers."""
    guard = MODEL_CALL_CHECK.get()
    if not isinstance(guard, _ModelGuard):
        yield
        return
    guard.lifted += 1
    try:
        yield
    finally:
        guard.lifted -= 1


_INTERNET = (socket.AF_INET, socket.AF_INET6)


class NetworkBlocked(RuntimeError):
    """A test tried to reach another machine. ``host`` is its name or address.

    It is not an `OSError`, so that retries and fallbacks for bad connections do not handle it.
    """

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{what} {host!r} was blocked: tests must not reach the network. Use a ScriptedHandler or a "
            f"cassette, or allow this host: no_network(allow=[{host!r}]) (with pytest: "
            f"--allowed-hosts={host})."
        )
        self.host = host


@contextmanager
def no_network(*, allow: Iterable[str | re.Pattern[str]] = ()) -> Generator[list[str]]:
    """Refuse connections and host look-ups beyond this machine; loopback and Unix sockets work.

    Yields the list of hosts that were refused; each refusal adds to it at once: some clients swallow the
    error, and ``assert blocked == []`` at the end finds them. The guard holds for the whole process,
    all threads included. It covers everything that goes through Python's ``socket`` module: httpx,
    aiohttp, requests, urllib, and the socket functions of asyncio, anyio and trio.

    It does not cover other processes, open connections, or code that makes its own system calls:
    uvloop, c-ares (aiodns), gRPC, curl, extensions in C or Rust.

    Args:
        allow: hosts that may be reached, by name or address, or by a pattern that matches its beginning. The
            addresses that an allowed name is looked up to are allowed too.

    Raises:
        NetworkBlocked: where the connection or look-up is made.
    """
    blocked: list[str] = []
    rules = tuple(allow)
    names = {rule for rule in rules if isinstance(rule, str)}
    patterns = [rule for rule in rules if isinstance(rule, re.Pattern)]

    def check(host: object, what: str) -> bool:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
        if name in names or any(pattern.match(name) for pattern in patterns):
            return True
        if not _is_this_machine(name):
            blocked.append(name)
            raise NetworkBlocked(name, what)
        return False

    originals = [(owner, name, getattr(owner, name)) for owner, name in (*_CONNECTING, *_RESOLVING)]
    for owner, name in _CONNECTING:
        setattr(owner, name, _guarded_method(getattr(owner, name), check))
    for owner, name in _RESOLVING:
        setattr(owner, name, _guarded_look_up(getattr(owner, name), check, names))
    try:
        yield blocked
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


_CONNECTING: Collection[tuple[Any, str]] = [
    (socket.socket, name)
    for name in ("connect", "connect_ex", "sendto", "sendmsg")
    if hasattr(socket.socket, name)  # some platforms lack some of them
]

_RESOLVING: Collection[tuple[Any, str]] = [
    (socket, name)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")
]


def _is_this_machine(host: str) -> bool:
    name = host.partition("%")[0].rstrip(".").lower()
    if name in ("", "localhost", "0.0.0.0", "::") or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _guarded_method(
    original: Callable[..., Any], check: Callable[[object, str], object]
) -> Callable[..., Any]:
    """Guard a method of a socket. Its last argument is the address, a tuple that begins with a host."""

    def guarded(self: socket.socket, *args: Any) -> Any:
        host = _host_of(args[-1]) if args else None
        if self.family in _INTERNET and isinstance(host, str | bytes):
            check(host, "Connecting to")
        return original(self, *args)

    return guarded


def _guarded_look_up(
    original: Callable[..., Any], check: Callable[[object, str], bool], allowed: set[str]
) -> Callable[..., Any]:
    """Guard a function whose first argument is a host, or an address that begins with one.

    The addresses of a host that is allowed by a rule are added to ``allowed``: clients connect to those.
    """

    def guarded(*args: Any, **kwargs: Any) -> Any:
        asked: object = args[0] if args else kwargs.get("host")
        is_allowed = check(_host_of(asked) or asked, "Looking up")
        found = original(*args, **kwargs)
        if is_allowed:
            allowed.update(_addresses_in(found))
        return found

    return guarded


def _addresses_in(found: object) -> set[str]:
    """Return the addresses that one of the functions in `_RESOLVING` found."""
    if isinstance(found, str):
        return {found}
    if isinstance(found, tuple):  # the last part is a list of addresses, or the service of getnameinfo
        last = cast("tuple[object, ...]", found)[-1]
        return set(cast("list[str]", last)) if isinstance(last, list) else set()
    return {str(_host_of(entry[-1])) for entry in cast("list[tuple[object, ...]]", found)}


def _host_of(address: object) -> object:
    """Return the host, the first part of an address; None if the value is no address."""
    return cast("tuple[object, ...]", address)[0] if isinstance(address, tuple) and address else None
