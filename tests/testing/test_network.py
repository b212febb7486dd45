"""The guard trips for every client that goes through Python's sockets; nothing leaves the machine.

The hosts are under `.invalid`, which no resolver knows, and in a network that is set aside for
documentation, so that even a broken guard would reach no server.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from routelock.testing import NetworkBlocked, no_network

HOST = "model.invalid"
ADDRESS = "192.0.2.1"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from, and the members of groups."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from causes(member)
        error = error.__cause__ or error.__context__


@pytest.fixture
def blocked() -> Iterator[list[str]]:
    with no_network() as hosts:
        yield hosts


def test_urllib_is_stopped(blocked: list[str]) -> None:
    with pytest.raises(NetworkBlocked, match=r"'model\.invalid' was blocked"):
        urllib.request.urlopen(f"http://{HOST}/", timeout=5)
    assert blocked == [HOST]


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("host", [HOST, ADDRESS])
def test_httpx_is_stopped(blocked: list[str], library: str, host: str) -> None:
    httpx = pytest.importorskip(library)
    with pytest.raises(Exception) as caught, httpx.Client(trust_env=False) as client:  # noqa: PT011 - any client's own
        client.get(f"https://{host}/", timeout=5)
    assert any(isinstance(cause, NetworkBlocked) for cause in causes(caught.value))
    assert set(blocked) == {host}


@pytest.mark.anyio
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_async_httpx_is_stopped(blocked: list[str], library: str) -> None:
    httpx = pytest.importorskip(library)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any client's own
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"https://{HOST}/", timeout=5)
    assert any(isinstance(cause, NetworkBlocked) for cause in causes(caught.value))
    assert HOST in blocked


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("host", [HOST, ADDRESS])
async def test_aiohttp_is_stopped(blocked: list[str], host: str) -> None:
    aiohttp: Any = importlib.import_module("aiohttp")
    connector = aiohttp.TCPConnector(resolver=aiohttp.ThreadedResolver())
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any client's own
        async with aiohttp.ClientSession(connector=connector) as session:
            await session.get(f"http://{host}/")
    assert any(isinstance(cause, NetworkBlocked) for cause in causes(caught.value))
    assert set(blocked) == {host}


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_sock_connect_of_asyncio_is_stopped(blocked: list[str]) -> None:
    with socket.socket() as client:
        client.setblocking(False)
        with pytest.raises(NetworkBlocked):
            await asyncio.get_running_loop().sock_connect(client, (ADDRESS, 80))
    assert blocked == [ADDRESS]


@pytest.mark.anyio
async def test_connect_tcp_of_anyio_is_stopped(blocked: list[str]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - trio wraps it in a group
        await anyio.connect_tcp(HOST, 80)
    assert any(isinstance(cause, NetworkBlocked) for cause in causes(caught.value))
    assert set(blocked) == {HOST}


@pytest.mark.parametrize("connect", ["connect", "connect_ex"])
def test_bare_sockets_are_stopped(blocked: list[str], connect: str) -> None:
    with socket.socket() as client, pytest.raises(NetworkBlocked, match=r"Connecting to '192\.0\.2\.1'"):
        getattr(client, connect)((ADDRESS, 80))
    assert blocked == [ADDRESS]


def test_datagrams_are_stopped(blocked: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, pytest.raises(NetworkBlocked):
        client.sendto(b"query", (ADDRESS, 53))
    assert blocked == [ADDRESS]


@pytest.mark.skipif(not hasattr(socket.socket, "sendmsg"), reason="there is no sendmsg here")
def test_datagrams_in_pieces_are_stopped(blocked: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        with pytest.raises(NetworkBlocked):
            client.sendmsg([b"query"], [], 0, (ADDRESS, 53))
        client.connect(("127.0.0.1", 9))
        client.sendmsg([b"query"], ())
    assert blocked == [ADDRESS]


def test_the_name_of_an_address_is_not_looked_up(blocked: list[str]) -> None:
    with pytest.raises(NetworkBlocked, match="Looking up"):
        socket.getnameinfo((ADDRESS, 80), 0)
    assert socket.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST)[0] == "127.0.0.1"
    assert blocked == [ADDRESS]


@pytest.mark.parametrize("look_up", ["gethostbyname", "gethostbyname_ex", "gethostbyaddr"])
def test_older_look_ups_are_stopped(blocked: list[str], look_up: str) -> None:
    with pytest.raises(NetworkBlocked, match="Looking up"):
        getattr(socket, look_up)(HOST)


def test_a_host_given_as_bytes_or_by_keyword_is_seen(blocked: list[str]) -> None:
    with pytest.raises(NetworkBlocked):
        socket.getaddrinfo(HOST.encode(), 80)
    with pytest.raises(NetworkBlocked):
        socket.getaddrinfo(port=80, host=HOST)
    assert blocked == [HOST, HOST]


def test_a_swallowed_refusal_is_still_listed() -> None:
    with no_network() as blocked:
        try:
            socket.create_connection((HOST, 80))
        except Exception:  # what a careless client does
            pass
    assert blocked == [HOST]


def test_loopback_works(server: str) -> None:
    with no_network() as blocked, urllib.request.urlopen(server, timeout=5) as response:
        assert response.read() == b"hello"
    assert blocked == []


@pytest.mark.parametrize(
    "host", ["localhost", "app.localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "", None]
)
def test_names_of_this_machine_may_be_looked_up(blocked: list[str], host: str | None) -> None:
    try:
        socket.getaddrinfo(host, 80)
    except socket.gaierror:
        pass  # not every resolver knows them all
    assert blocked == []


def test_unix_sockets_and_pairs_work(blocked: list[str]) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x")
        assert right.recv(1) == b"x"
    assert blocked == []


def test_an_allowed_host_passes() -> None:
    """The session's own guard refuses it after this one let it pass."""
    with no_network() as outer, no_network(allow=[ADDRESS]) as inner, socket.socket() as client:
        with pytest.raises(NetworkBlocked):
            client.connect((ADDRESS, 80))
    assert (outer, inner) == ([ADDRESS], [])


@pytest.mark.network  # or the session's guard refuses what the inner one lets pass
def test_addresses_of_an_allowed_name_are_allowed() -> None:
    """Clients look a name up and connect to what they find. A number is a name, and is found offline."""
    with no_network(allow=["3221225985"]) as blocked, socket.socket() as client:
        [found] = socket.getaddrinfo("3221225985", 9, socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        client.connect_ex(found[4])
        assert found[4][0] == socket.gethostbyname("3221225985") == "192.0.2.1"
    assert blocked == []


@pytest.mark.network
def test_hosts_are_allowed_by_a_pattern() -> None:
    with no_network(allow=[re.compile(r"192\.0\.2\.[12]$")]) as blocked:
        for number in (2, 3):
            with socket.socket() as client, suppress(NetworkBlocked):
                client.setblocking(False)
                client.connect_ex((f"192.0.2.{number}", 9))
    assert blocked == ["192.0.2.3"]


def test_sockets_are_restored() -> None:
    before = (socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto, socket.getaddrinfo)
    with no_network():
        assert socket.getaddrinfo is not before[3]
    after = (socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto, socket.getaddrinfo)
    assert before == after


def test_sockets_are_restored_after_an_error() -> None:
    before = socket.getaddrinfo
    with pytest.raises(ValueError, match="mine"), no_network():
        raise ValueError("mine")
    assert socket.getaddrinfo is before


def test_the_guard_holds_in_threads(blocked: list[str]) -> None:
    found: list[BaseException] = []

    def connect() -> None:
        try:
            socket.create_connection((HOST, 80))
        except NetworkBlocked as error:
            found.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    assert len(found) == 1
