"""What stands in for missing credentials while a cassette answers: clients want some before they ask.

They stand in the environment, because that is where every client looks: ours, litellm, openai, boto and
those that an app makes for itself.
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
"""Either of them will do, and litellm takes the first as JSON."""

_PROJECT: Final = re.compile(r"/projects/([^/]+)/locations/")

TOKEN: Final[Mapping[str, Any]] = {
    "status": {"code": 200, "message": "OK"},
    "headers": {"content-type": ["application/json"]},
    "body": {"string": json.dumps({"access_token": PLACEHOLDER, "expires_in": 3600}).encode()},
}
"""What a cassette answers to a `is_token_exchange`, in vcrpy's form."""


def is_token_exchange(url: str) -> bool:
    """Whether Google is asked to give an access token for credentials.

    It is asked at the first call of a process, whichever test makes it, with a body that is signed for that
    moment: no recording can answer it, and it has no place in one.
    """
    parts = urlsplit(url)
    return (parts.hostname, parts.path) == ("oauth2.googleapis.com", "/token")


@contextmanager
def placeholders(urls: Iterable[str]) -> Generator[None]:
    """Set credentials that open nothing where the environment has none, for the time of the block.

    What is set stays; a variable that is empty counts as missing, and is empty again afterwards.

    Args:
        urls: the addresses of a recording. The Google Cloud project, which is part of them, comes with the
            credentials.
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
                continue  # the block has set one of its own
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _google_user(urls: Iterable[str]) -> str:
    projects = (found[1] for url in urls if (found := _PROJECT.search(url)))
    fields = dict.fromkeys(("refresh_token", "client_id", "client_secret"), PLACEHOLDER)
    return json.dumps({"type": "authorized_user", **fields, "quota_project_id": next(projects, PLACEHOLDER)})
