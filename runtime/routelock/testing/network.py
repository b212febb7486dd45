"""A guard that keeps tests from the network, whatever client they use."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

__all__ = ["NetworkBlocked", "no_network"]

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
