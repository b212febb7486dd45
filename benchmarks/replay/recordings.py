"""What a directory of recordings holds: which calls were made, and what has to come out of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.replies import Expected
from replay.tape import interactions_of
from replay.wires import derive_calls

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One recorded model call, in chat-completions terms."""

    model: str
    """litellm's model string."""
    messages: Sequence[Json]
    tools: Sequence[Json] = ()
    tool_choice: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    connect: Mapping[str, Any] = field(default_factory=dict)
    """Where the model is: an address, a region, a project."""
    stream: bool = False
    attempts: int = 1
    """How many recorded requests the call takes, when all but the last failed."""
    expected: Expected


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One cassette."""

    path: Path
    calls: Sequence[Call]
    chain: bool = False
    """Whether the calls are one agent loop."""
    tool_outputs: Sequence[Json] = ()


def load(directory: Path) -> list[Recording]:
    """Read the manifest of a set, and the calls that are described or else derived from the traffic."""
    entries: list[Json] = json.loads((directory / "manifest.json").read_text("utf-8"))
    return [_recording(directory, entry) for entry in entries]


def _recording(directory: Path, entry: Json) -> Recording:
    path = directory / entry["file"]
    described = directory / "calls" / f"{path.stem}.json"
    if not described.exists():
        derived = derive_calls(interactions_of(path), entry.get("model"), entry.get("provider"))
        return Recording(path=path, calls=[Call(**call) for call in derived])
    spec: Json = json.loads(described.read_text("utf-8"))
    return Recording(
        path=path,
        calls=[_described(call) for call in spec["calls"]],
        chain=bool(spec.get("chain")),
        tool_outputs=spec.get("tool_outputs") or (),
    )


def _described(call: Json) -> Call:
    settings: Json = dict(call["kwargs"])
    messages = settings.pop("messages")
    tools = settings.pop("tools", None) or ()
    choice = settings.pop("tool_choice", None)
    for ours in ("stream", "stream_options"):
        settings.pop(ours, None)
    return Call(
        model=call["model"],
        messages=messages,
        tools=tools,
        tool_choice=choice,
        settings=settings,
        connect=call.get("connect") or {},
        stream=bool(call.get("stream")),
        expected=_expected(call["expect"]),
    )


def _expected(expect: Json) -> Expected:
    failed = expect.get("error_status")
    if failed is not None or "error_in_body" in expect:
        return Expected(failed=True, status=failed, text=expect.get("text_before_error"))
    usage = expect.get("usage")
    return Expected(
        text=expect.get("text") or "",
        calls=expect.get("tool_calls") or (),
        usage=(usage[0], usage[1]) if usage else None,
    )
