"""Wrong settings of a served app are errors, all in one."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import RunConfig
from routelock.errors import ConfigError
from routelock.run.executor import InProcess
from routelock.serving import A2A, ServeConfig


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"api_keys": "secret"}, r"write \[token\]"),
        ({"api_keys": []}, "one or more"),
        ({"api_keys": ["secret\n"]}, "white space around it"),
        ({"allowed_hosts": "a.example"}, "a list of names"),
        ({"max_hops": -1}, "max_hops must be 0 or more"),
        ({"max_turns": 0}, "at least 1, or None"),
        ({"client_tools": "no"}, "True or False"),
        ({"client_settings": "ignore"}, "must be 'use', 'refuse' or None"),
        ({"response_sessions": "kept.db"}, "such as SQLiteSessions, not 'kept.db'"),
        ({"a2a": True}, "must be an A2A"),
        ({"ag_ui": True}, "must be an AGUI"),
        ({"mcp": True}, "must be an MCP"),
        ({"run_config": RunConfig(executor=InProcess())}, "has no executor without a2a"),
        ({"ping": 0}, "ping must be more than 0"),
        ({"max_body": "1 MB"}, "max_body must be more than 0"),
    ],
)
def test_wrong_settings_are_errors(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        ServeConfig(**settings)
    assert "secret" not in str(caught.value)


def test_all_wrong_settings_are_in_one_error() -> None:
    with pytest.raises(ConfigError, match=r"max_hops.*ping.*timeout|max_hops.*timeout.*ping"):
        ServeConfig(max_hops=-1, ping=0, timeout=-1)


def test_valid_settings_are_accepted() -> None:
    assert ServeConfig() == ServeConfig(api_keys=None)
    assert ServeConfig(api_keys={"k": ["admin"]}, allowed_hosts=("*",), max_turns=None, max_hops=0)


@pytest.mark.parametrize("url", ["agents.example.com", "ftp://a", "https://a?b", "https://"])
def test_an_app_is_reached_under_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match="must be the URL of the app"):
        A2A(url=url)
    assert A2A(url="https://agents.example.com/base").url
