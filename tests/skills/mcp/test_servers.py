"""Forms of server addresses, and errors without secrets for everything else."""

from __future__ import annotations

import pytest

from routelock.errors import ConfigError
from routelock_skills.mcp.servers import OwnTransport, Program, ServerObject, WebServer, server_address


def test_a_mapping_is_as_other_programs_have_it() -> None:
    entry = {"type": "stdio", "command": "/usr/bin/uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "t"}}
    place = server_address(entry)
    assert place == Program(command="/usr/bin/uvx", args=("mcp-server-git",), env={"TOKEN": "t"})
    assert place.label == "uvx"


def test_text_is_a_url() -> None:
    assert server_address("https://example.com/mcp") == WebServer(url="https://example.com/mcp")


def test_a_function_opens_a_transport() -> None:
    assert server_address(len) == OwnTransport(len)


def test_a_server_goes_by_its_own_name() -> None:
    class Server:
        name = "mine"

        def create_initialization_options(self) -> None: ...

    place = server_address(Server())
    assert isinstance(place, ServerObject)
    assert place.label == "mine"


@pytest.mark.parametrize(
    ("given_server", "said"),
    [
        ("npx -y some-server", "url: String should match pattern"),
        ({"command": "x", "argv": []}, "argv: there is no such field"),
        ({"url": "https://a/mcp", "type": "sse"}, "type: Input should be 'http' or 'streamable-http'"),
        ({}, "url: Field required"),
        (7, "int is not an MCP server"),
    ],
)
def test_value_that_is_not_a_server_is_refused(given_server: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        server_address(given_server)


def test_secrets_are_not_in_messages() -> None:
    """Neither in the error about a wrong entry nor in how a right one looks."""
    entry = {"url": "https://a/mcp", "headers": {"Authorization": "Bearer hunter2"}}
    with pytest.raises(ConfigError) as failed:
        server_address({**entry, "env": {"TOKEN": "hunter2"}})
    assert "hunter2" not in f"{failed.value} {failed.value.__cause__} {server_address(entry)!r}"
