"""Secrets in errors of the server are not sent to clients, even by a model that repeats everything."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from served_apps import ask, listening
from waiting import PATIENCE

from routelock import Agent, Request, RunConfig, function_tool, handoff, tool
from routelock.history.messages import text_of
from routelock.serving import A2A, ServeConfig, create_app
from routelock.testing import ScriptedHandler, call

SECRETS = ("hunter2", "sk-live-4f9a7c1e2b3d5a6f", "p4ssw0rd")
WHAT = f"no answer from postgres://admin:{SECRETS[0]}@db/shop with {SECRETS[1]} and password={SECRETS[2]}"


@function_tool
def reported() -> str:
    """Fail, which the model is told."""
    raise RuntimeError(WHAT)


@tool(on_error="raise")
def raised() -> str:
    """Fail, which ends the run."""
    raise RuntimeError(WHAT)


@tool
def grouped() -> str:
    """Fail in several ways at once."""
    raise ExceptionGroup("several", [RuntimeError("a" * 400 + WHAT), ValueError(WHAT)])


def on_handoff(context: Any) -> None:
    raise RuntimeError(WHAT)


def parrot(request: Request) -> str:
    return "\n".join(text_of(message) for message in request.messages)


def failing(*first: Any, **options: Any) -> Agent[Any]:
    """An agent whose model does this, and then repeats all that it was shown."""
    return Agent("A", model=ScriptedHandler([*first, *[parrot] * 9]), **options)


def broken(name: str = "broken") -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([RuntimeError(WHAT)] * 9))


def instructions(context: Any) -> str:
    raise RuntimeError(WHAT)


CASES = {
    "a tool": lambda: failing(call("reported"), tools=[reported]),
    "a tool that ends the run": lambda: failing(call("raised"), tools=[raised]),
    "a tool that fails in several ways": lambda: failing(call("grouped"), tools=[grouped]),
    "a model": broken,
    "an agent as a tool": lambda: failing(call("sub", {"input": "x"}), tools=[broken().as_tool("sub")]),
    "a target": lambda: failing(call("transfer_to_broken"), handoffs=[broken()]),
    "a target that returns": lambda: failing(
        call("transfer_to_broken"), handoffs=[handoff(broken(), return_to_caller=True)]
    ),
    "a callback": lambda: failing(
        call("transfer_to_broken"), handoffs=[handoff(broken(), on_handoff=on_handoff)]
    ),
    "instructions": lambda: failing(instructions=instructions),
}


@pytest.mark.parametrize("on_limit", ["raise", "return"])
@pytest.mark.parametrize("case", CASES)
def test_no_response_contains_a_secret(case: str, on_limit: Any) -> None:
    bodies: list[str] = []
    for way in WAYS:
        settings = RunConfig(on_limit=on_limit, max_mistakes=2)
        app = create_app(CASES[case](), ServeConfig(a2a=A2A(), run_config=settings))
        with listening(app) as url:
            bodies.append(WAYS[way](url).text)
    assert [secret for secret in SECRETS for body in bodies if secret in body] == []


def _chat(stream: bool) -> Any:
    return lambda url: httpx.post(
        f"{url}/v1/chat/completions", json=ask(stream=stream), timeout=PATIENCE, verify=False
    )


def _a2a(method: str) -> Any:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    headers = {"a2a-version": "1.0"}
    return lambda url: httpx.post(f"{url}/a2a/A", json=body, headers=headers, timeout=PATIENCE, verify=False)


WAYS = {
    "whole": _chat(False),
    "streamed": _chat(True),
    "a2a": _a2a("SendMessage"),
    "a2a streamed": _a2a("SendStreamingMessage"),
}


def test_the_model_sees_errors_without_secrets() -> None:
    mine = failing(call("reported"), tools=[reported])
    with listening(create_app(mine)) as url:
        told = WAYS["whole"](url).json()["choices"][0]["message"]["content"]
    assert "no answer from postgres://[redacted]@db/shop with [redacted] and password=[redacted]" in told
