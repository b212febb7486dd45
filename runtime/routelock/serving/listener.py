"""The socket that a server of ours listens on."""

from __future__ import annotations

import socket

from routelock.errors import ConfigError

__all__ = ["listen"]


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens for clients.

    Raises:
        ConfigError: the port is taken, or the machine has no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        what = f"Port {port} of {host} cannot be used: {error.strerror}"
        raise ConfigError(f"{what}. Choose another one; 0 takes any free port.") from error
    # connections inherit it; else each small piece would wait 40 ms for the client's acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
