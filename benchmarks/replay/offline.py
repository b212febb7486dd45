"""A place without network and without keys, where a cassette answers."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.tape import asks_a_model
from routelock.testing import use_cassette
from routelock.testing.cassette import Cassette
from routelock.testing.matching import HTTPRequest
from routelock.testing.scrub import Scrubber
from routelock_providers.litellm.library import load_litellm

__all__ = ["DUMMY_KEY", "SIDE_HOSTS", "Played", "play", "prepare_process"]

DUMMY_KEY = "test-not-a-key"

_VENDORS = (
    "ANTHROPIC AZURE CEREBRAS COHERE DEEPSEEK FIREWORKS_AI GEMINI GROQ HUGGINGFACE MISTRAL OLLAMA OPENAI "
    "OPENROUTER PERPLEXITYAI TOGETHERAI XAI ZAI"
).split()
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION_NAME": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "HF_HUB_OFFLINE": "1",
}
_MOVES_HOSTS = ("_BASE_URL", "_API_BASE", "_PROXY", "_proxy")
_SIDE_CALLS = ("https://huggingface.co/", "/api/show")
"""litellm's own look-ups for huggingface/ and ollama/ models; it goes on when they fail."""


def prepare_process() -> None:
    """Make this process the same on every machine. Call it before litellm is imported."""
    for name in list(os.environ):
        if name.endswith(_MOVES_HOSTS) or name in ("LITELLM_RUST", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            del os.environ[name]
    os.environ.update(_SETTINGS)
    os.environ.update({f"{vendor}_API_KEY": DUMMY_KEY for vendor in _VENDORS})
    load_litellm()
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    _sign_vertex_without_google()


def _sign_vertex_without_google() -> None:
    """vertex_ai/ fetches a token from Google first; cassettes hold only the model calls."""
    vertex: Any = importlib.import_module("litellm.llms.vertex_ai.vertex_llm_base")

    def token(self: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        return DUMMY_KEY, kwargs.get("project_id") or "test-project"

    async def later(self: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        return token(self, *args, **kwargs)

    vertex.VertexBase._ensure_access_token = token
    vertex.VertexBase._ensure_access_token_async = later


SIDE_HOSTS = frozenset(("huggingface.co",))
"""Asked from background threads too, when the cassette is closed already."""


@dataclass
class Played:
    """What a block that played a cassette asked for."""

    cassette: Cassette
    sent: list[bytes] = field(default_factory=list)
    """The bodies of the requests as they were sent."""

    def unplayed(self) -> list[HTTPRequest]:
        """Return the recorded model calls that were not made."""
        return [asked for asked in self.cassette.unplayed if asks_a_model(asked.method, asked.url)]


@contextmanager
def play(path: Path) -> Generator[Played]:
    """Answer requests from a cassette, in order, by method, host and path; never from the network."""
    listening = _Listening()
    with use_cassette(
        path,
        record_mode="none",
        match_on=("method", "host", "port", "path"),
        allow_unplayed=True,
        side_calls=_SIDE_CALLS,
        scrubber=listening,
    ) as cassette:
        _bodies(listening).clear()  # until now it heard the recorded ones
        yield Played(cassette, _bodies(listening))


class _Listening(Scrubber):
    """Changes nothing in what was recorded by others, and hears what is sent."""

    _heard: list[bytes]

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_heard", [])

    def text(self, text: str) -> str:
        return text

    def body(self, body: bytes | str | None) -> bytes | None:
        raw = body.encode() if isinstance(body, str) else body
        if raw:
            self._heard.append(raw)
        return raw


def _bodies(listening: _Listening) -> list[bytes]:
    return listening._heard
