"""Calls of A2A's JSON-RPC to a served agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
from waiting import PATIENCE

from routelock.serving import A2A, ServeConfig

SERVED = ServeConfig(a2a=A2A())


def ask(
    url: str, said: Any = "Hi", *, method: str = "SendMessage", key: str = "none", **more: Any
) -> dict[str, Any]:
    """Send a message of that text, or of these parts; the rest goes into the message."""
    parts = [{"text": said}] if isinstance(said, str) else said
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts, **more}
    return rpc(url, {"method": method, "params": {"message": message}}, key=key)


def rpc(url: str, body: Mapping[str, Any], key: str = "none", version: str = "1.0") -> dict[str, Any]:
    """Make a call, and return the body of its answer."""
    response = post(url, json.dumps({"jsonrpc": "2.0", "id": 1, **body}).encode(), key=key, version=version)
    assert response.status_code == 200, response.text
    return response.json()


def post(url: str, body: bytes, *, key: str = "none", version: str = "1.0", **headers: str) -> httpx.Response:
    """Send these bytes. There is no TLS, and reading the certificates would take longer than all else."""
    sent = {"content-type": "application/json", "a2a-version": version, "authorization": f"Bearer {key}"}
    return httpx.post(url, content=body, headers={**sent, **headers}, timeout=PATIENCE, verify=False)


def task_of(answer: Mapping[str, Any]) -> Any:
    assert "result" in answer, answer
    return answer["result"]["task"]


def told(task: Mapping[str, Any]) -> tuple[str, str, str]:
    """How a task ended, with which code, and what was said."""
    text = "".join(part.get("text", "") for part in task["status"].get("message", {}).get("parts", ()))
    return task["status"]["state"].removeprefix("TASK_STATE_"), task["metadata"].get("code", ""), text


def text_of(task: Mapping[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])
