"""An MCP server in plain Python, over its standard input and output, that misbehaves on demand.

It imports next to nothing, so it starts at once, and it says what no library would.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MINE = Path(sys.argv[1]) if len(sys.argv) > 1 else None
"""Where it keeps what has happened to it: starts, and calls that were called off."""

TOOLS = {
    "echo": "Say what was said.",
    "environment": "Tell which variables there are.",
    "hang": "Never answer.",
    "die": "End without an answer.",
    "answer_and_die": "End after the answer.",
    "babble": "Write lines that are no messages, and then answer.",
    "halved": "Answer with half an emoji.",
    "latin": "Answer in an encoding that is not UTF-8.",
    "nonsense": "Answer with what is no result.",
    "find": "Tell which arguments came.",
    "refuse": "Answer with an error of the protocol.",
    "huge": "Answer with a million letters.",
}


def note(what: str) -> None:
    """Keep what has happened."""
    if MINE is not None:
        with MINE.open("a") as file:
            file.write(f"{what}\n")


def send(**message: Any) -> None:
    """Send one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(content: str) -> dict[str, Any]:
    """Make a result of a text."""
    return {"content": [{"type": "text", "text": content}]}


def called(number: int, name: str, arguments: dict[str, Any]) -> None:
    """Answer a call, or do not."""
    note(f"called {name}")
    if name == "babble":
        sys.stdout.write('Listening...\n{"half a message\n\n[]\n')
    if name == "refuse":
        send(id=number, error={"code": -32602, "message": "no such thing"})
    elif name == "latin":
        whole = json.dumps({"jsonrpc": "2.0", "id": number, "result": text("caf\xe9")}, ensure_ascii=False)
        sys.stdout.buffer.write(f"{whole}\n".encode("latin-1"))
        sys.stdout.buffer.flush()
    elif name == "nonsense":
        send(id=number, result={"content": "no list"})
    elif name not in ("hang", "die"):
        send(id=number, result=text(said(name, arguments)))
    if "die" in name:
        os._exit(1)


def said(name: str, arguments: dict[str, Any]) -> str:
    """Return what a tool that works says."""
    known = {
        "environment": " ".join(sorted(os.environ)),
        "huge": "x" * 1_000_000,
        "halved": "cut here: \ud83d",
        "find": json.dumps(arguments),
    }
    return known.get(name) or str(arguments.get("text"))


def listed(cursor: str | None) -> dict[str, Any]:
    """Return a page of the list: one tool, and where to go on."""
    names = list(TOOLS)
    place = int(cursor or 0)
    schema = {"type": "object", "properties": {"filter[id]": {"type": "integer"}, "text": {}}}
    tool = {"name": names[place], "description": TOOLS[names[place]], "inputSchema": schema}
    return {"tools": [tool], **({"nextCursor": str(place + 1)} if place + 1 < len(names) else {})}


def begin() -> None:
    """Start, which may take its time when it is not the first one."""
    if "--slow-again" in sys.argv and MINE is not None and MINE.exists():
        time.sleep(2.5)
    note(f"started as {os.getpid()}")


def main() -> None:
    """Serve."""
    begin()
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                hello = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
                info = {"serverInfo": {"name": "raw", "version": "1"}, "instructions": "Be brief."}
                send(id=number, result={**hello, **info})
            case "tools/list":
                send(id=number, result=listed(params.get("cursor")))
            case "tools/call":
                called(number, params["name"], params.get("arguments") or {})
            case "notifications/cancelled":
                note("called off")
            case str(other) if number is not None:
                send(id=number, error={"code": -32601, "message": f"no {other}"})
    note("ended")
    if "--stay" in sys.argv:
        time.sleep(60)


if __name__ == "__main__":
    main()
