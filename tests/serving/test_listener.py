"""The socket of a server: a port that is taken is one sentence, and small pieces are sent at once."""

from __future__ import annotations

import socket

import pytest

from routelock.errors import ConfigError
from routelock.serving.listener import listen


def test_a_port_that_is_taken_is_said() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} of .* cannot be used: .*Choose another"):
            listen("127.0.0.1", port)


def test_an_address_that_the_machine_does_not_have_is_said() -> None:
    with pytest.raises(ConfigError, match=r"Port 0 of 192\.0\.2\.1 cannot be used: "):
        listen("192.0.2.1", 0)


def test_small_pieces_are_sent_at_once() -> None:
    """A server that collects small pieces waits 40 ms for the browser's acknowledgement of each."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
