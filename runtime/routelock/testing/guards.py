"""Guards that keep tests from the network and from models, whatever client they use."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from routelock.handlers.port import MODEL_CALL_CHECK, Request

__all__ = ["ModelCallBlocked", "NetworkBlocked", "models_allowed", "no_models", "no_network"]


class ModelCallBlocked(AssertionError):
    """The code under test was about to ask a model. ``model`` is which."""

    def __init__(self, model: str, request: Request) -> None:
        super().__init__(
            f"Agent {request.agent!r} was about to ask the model {model!r} in turn {request.turn}: this "
            f"test must not. Use a ScriptedHandler or a cassette, or allow it: no_models(allow=[{model!r}])."
        )
        self.model = model


@contextmanager
def no_models(*, allow: Iterable[str] = ()) -> Generator[list[str]]:
    """Refuse every call of a model: of those at a vendor, on this machine, and of agents behind a URL.

    Unlike `no_network` it stops a call before anything is loaded or opened, says which agent asked, and lets
    no model pass that runs on this machine. It sees the handlers of `routelock_providers`, wherever they are
    called from. Scripts and functions answer as ever, and so do cassettes, see `use_cassette`.

    Yields the list of models that were refused, which grows as it happens. It holds for this task and those
    that it starts from now on.

    Args:
        allow: models that may be asked nevertheless, by the name that the error shows.

    Raises:
        ModelCallBlocked: in the run that wants to ask.
    """
    blocked: list[str] = []
    allowed = frozenset(allow)

    def check(model: str, request: Request) -> None:
        if model not in allowed:
            blocked.append(model)
            raise ModelCallBlocked(model, request)

    before = MODEL_CALL_CHECK.get()
    MODEL_CALL_CHECK.set(check)
    try:
        yield blocked
    finally:
        MODEL_CALL_CHECK.set(before)


@contextmanager
def models_allowed() -> Generator[None]:
    """Take the fence down for the block, because something else answers."""
    before = MODEL_CALL_CHECK.get()
    MODEL_CALL_CHECK.set(None)
    try:
        yield
    finally:
        MODEL_CALL_CHECK.set(before)


_INTERNET = (socket.AF_INET, socket.AF_INET6)


class NetworkBlocked(RuntimeError):
    """Something wanted to reach another machine. ``host`` is whom.

    It is not an `OSError`, so that no retry and no fall-back for a bad connection takes it for one.
    """

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{what} {host!r} was blocked: tests must not reach the network. Use a ScriptedHandler or a "
            f"cassette, or allow this host: no_network(allow=[{host!r}])."
        )
        self.host = host


@contextmanager
def no_network(*, allow: Iterable[str] = ()) -> Generator[list[str]]:
    """Refuse connections and look-ups beyond this machine; loopback and Unix sockets work.

    Yields the list of hosts that were refused, which grows as it happens: some clients swallow the
    error, and ``assert blocked == []`` at the end finds them. The guard holds for the whole process,
    all threads included. It sees everything that goes through Python's ``socket`` module: httpx,
    aiohttp, requests, urllib, and the socket functions of asyncio, anyio and trio.

    It cannot see other processes, connections that are open already, or code that makes its system
    calls itself: uvloop, c-ares (aiodns), gRPC, curl, extensions in C or Rust.

    Args:
        allow: hosts that may be reached nevertheless, by name or address.

    Raises:
        NetworkBlocked: at the place that wants to connect.
    """
    blocked: list[str] = []
    allowed = frozenset(allow)

    def check(host: object, what: str) -> None:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
        if name not in allowed and not _is_this_machine(name):
            blocked.append(name)
            raise NetworkBlocked(name, what)

    originals = [(owner, name, getattr(owner, name)) for owner, name in (*_CONNECTING, *_RESOLVING)]
    for owner, name in _CONNECTING:
        setattr(owner, name, _guarded_method(getattr(owner, name), check))
    for owner, name in _RESOLVING:
        setattr(owner, name, _guarded_look_up(getattr(owner, name), check))
    try:
        yield blocked
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


_CONNECTING: Collection[tuple[Any, str]] = [
    (socket.socket, name)
    for name in ("connect", "connect_ex", "sendto", "sendmsg")
    if hasattr(socket.socket, name)  # not all of them everywhere
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


def _guarded_method(original: Callable[..., Any], check: Callable[[object, str], None]) -> Callable[..., Any]:
    """Guard a method of sockets: the address is the last argument, a tuple that begins with a host."""

    def guarded(self: socket.socket, *args: Any) -> Any:
        host = _first(args[-1]) if args else None
        if self.family in _INTERNET and isinstance(host, str | bytes):
            check(host, "Connecting to")
        return original(self, *args)

    return guarded


def _guarded_look_up(
    original: Callable[..., Any], check: Callable[[object, str], None]
) -> Callable[..., Any]:
    """Guard a function whose first argument is a host, or an address that begins with one."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        asked: object = args[0] if args else kwargs.get("host")
        check(_first(asked) or asked, "Looking up")
        return original(*args, **kwargs)

    return guarded


def _first(address: object) -> object:
    """Return what an address begins with: its host. What is no address has none."""
    return cast("tuple[object, ...]", address)[0] if isinstance(address, tuple) and address else None
