"""What the tests with clients share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsers import browser
from clients.cast import Log, everyone
from clients.played import Played
from clients.served import KEY, PATIENCE, node_client, play, python_client, served

from routelock.serving import ServeConfig, create_app

__all__ = ["browser"]

SETTINGS = ServeConfig(api_keys=[KEY], ping=0.05, timeout=PATIENCE / 2)
"""A run that never ends is to be seen as an error, not as a test that hangs."""


def _commands() -> dict[str, Any]:
    return {
        "openai 2": lambda: python_client("openai2", "openai_client.py"),
        "openai 3": lambda: python_client("openai3", "openai_client.py"),
        "openai js": lambda: node_client("openai_client.mjs"),
        "responses, openai 2": lambda: python_client("openai2", "openai_responses.py"),
        "responses, openai 3": lambda: python_client("openai3", "openai_responses.py"),
        "responses, openai js": lambda: node_client("openai_responses.mjs"),
        "open responses": lambda: python_client("openresponses", "open_responses.py"),
        "ai sdk": lambda: node_client("ai_sdk.mjs"),
    }


def _played(client: str, home: Path) -> Played:
    command, log = _commands()[client](), Log()
    app = create_app(everyone(log), replace(SETTINGS, max_body=1_000_000))
    small = create_app(everyone(log), replace(SETTINGS, max_concurrent=1))
    with served(app) as url, served(small) as busy_url:
        return Played(client, play(command, url, busy_url, KEY, home=home), log)


@pytest.fixture(scope="module", params=["openai 2", "openai 3", "openai js"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All scenes, played once by each of the openai clients."""
    return _played(request.param, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module", params=["openai 2", "openai 3", "openai js"])
def responses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The scenes of the Responses API, played once by each of the openai clients."""
    return _played(f"responses, {request.param}", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def open_responses(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The scenarios of Open Responses, played once."""
    return _played("open responses", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def ai_sdk(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All scenes, played once by Vercel's AI SDK."""
    return _played("ai sdk", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def desk_server() -> Iterator[tuple[str, Log]]:
    """The agents behind a URL, for a caller in this process, and what happens there."""
    log = Log()
    with served(create_app(everyone(log), SETTINGS)) as url:
        yield url, log
