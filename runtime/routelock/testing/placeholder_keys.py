"""Placeholder credentials for cassettes: clients need credentials before they send a request.

They are set as environment variables, which every client reads: those of routelock, litellm, openai, boto and
the app's own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["TOKEN", "is_token_exchange", "placeholders"]


PLACEHOLDER: Final = "no-key-needed-to-replay"

_VENDORS: Final = (
    "AI21 ANTHROPIC AZURE AZURE_AI BASETEN CEREBRAS CLOUDFLARE CODESTRAL COHERE DASHSCOPE DATABRICKS "
    "DEEPINFRA DEEPSEEK FEATHERLESS_AI FIREWORKS_AI FRIENDLIAI GEMINI GIGACHAT GROQ HELICONE "
    "HUGGINGFACE HYPERBOLIC LAMBDA LITELLM_PROXY META MINIMAX MISTRAL MOONSHOT NEBIUS NOVITA NSCALE "
    "NVIDIA_NIM OLLAMA OPENAI OPENROUTER PERPLEXITYAI REPLICATE SAMBANOVA TOGETHERAI V0 "
    "VERCEL_AI_GATEWAY VOLCENGINE WANDB XAI ZAI "
).split()

_VARIABLES: Final = (
    *(f"{vendor}_API_KEY" for vendor in _VENDORS),
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)

_GOOGLE: Final = ("VERTEXAI_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS")
"""Variables with the credentials for Google; one of them is enough. litellm takes the first as JSON."""

_PROJECT: Final = re.compile(r"/projects/([^/]+)/locations/")

TOKEN: Final[Mapping[str, Any]] = {
    "status": {"code": 200, "message": "OK"},
    "headers": {"content-type": ["application/json"]},
    "body": {"string": json.dumps({"access_token": PLACEHOLDER, "expires_in": 3600}).encode()},
}
"""The response of a cassette to a token exchange, in vcrpy's form."""


def is_token_exchange(url: str) -> bool:
    """Whether a request asks Google for an access token.

    A process sends this request with its first call, in any of the tests. The body is signed for that moment,
    so it cannot match a recording. That is why it is not recorded.
    """
    parts = urlsplit(url)
    return (parts.hostname, parts.path) == ("oauth2.googleapis.com", "/token")


@contextmanager
def placeholders(urls: Iterable[str]) -> Generator[None]:
    """Set placeholder credentials inside the block, for each variable that is missing.

    Variables with a value keep it. An empty variable counts as missing, and is empty again afterwards.

    Args:
        urls: the URLs of a recording. The Google Cloud project in them becomes part of the credentials.
    """
    wanted = dict.fromkeys(_VARIABLES, PLACEHOLDER)
    if not any(os.environ.get(name) for name in _GOOGLE):
        wanted[_GOOGLE[0]] = _google_user(urls)
    missing = {name: value for name, value in wanted.items() if not os.environ.get(name)}
    before = {name: os.environ.get(name) for name in missing}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name, value in before.items():
            if os.environ.get(name) != missing[name]:
                continue  # the block has set a value of its own
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _google_user(urls: Iterable[str]) -> str:
    projects = (found[1] for url in urls if (found := _PROJECT.search(url)))
    fields = dict.fromkeys(("refresh_token", "client_id", "client_secret"), PLACEHOLDER)
    return json.dumps({"type": "authorized_user", **fields, "quota_project_id": next(projects, PLACEHOLDER)})
