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

MINE = Path(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
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
    "lend": "Ask two questions, and answer with the answers.",
    "sample": "Ask for what a client does not do.",
    "nag": "Ask for ever.",
    "later": "Need some time before the answer.",
    "moved": "Answer once the tools were listed again.",
}

SCHEMA = {
    "type": "object",
    "properties": {"branch": {"type": "string"}, "copies": {"type": "integer", "default": 1}},
    "required": ["branch"],
}

QUESTIONS: dict[str, dict[str, Any]] = {
    "branch": {"mode": "form", "message": "Which branch?", "requestedSchema": SCHEMA},
    "terms": {"mode": "url", "message": "Read this.", "url": "https://example.com/", "elicitationId": "1"},
}

IS_NEW = "--new" in sys.argv
"""Whether it speaks version 2026-07-28 of the protocol, in which a server ends a call to ask."""

COMPLETE = {"resultType": "complete"} if IS_NEW else {}
CACHING = {"ttlMs": 0, "cacheScope": "private"} if IS_NEW else {}

waiting: list[int] = []
"""Calls that wait for the answer to a question, in the older way."""

listings: list[str] = []


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
    return {**COMPLETE, "content": [{"type": "text", "text": content}]}


def unfinished(requests: dict[str, Any], state: str | None = None) -> dict[str, Any]:
    """Make the result of a call that needs to know more."""
    kept = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": requests, **kept}


def asked(number: int, name: str, params: dict[str, Any]) -> bool:
    """Ask something instead of answering a call; return whether that is done."""
    replies, state = params.get("inputResponses"), params.get("requestState")
    questions = {key: {"method": "elicitation/create", "params": each} for key, each in QUESTIONS.items()}
    if name == "lend" and not IS_NEW:
        waiting.append(number)
        send(id="question", **questions["branch"])
    elif name == "lend" and replies is None:
        send(id=number, result=unfinished(questions, "page 1"))
    elif name == "lend":
        send(id=number, result=text(json.dumps([replies, state])))
    elif name == "sample":
        send(id=number, result=unfinished({"s": {"method": "roots/list"}}))
    elif name == "nag":
        send(id=number, result=unfinished({"branch": questions["branch"]}))
    elif name == "later" and state is None:
        send(id=number, result=unfinished({}, "soon"))
    elif name == "moved" and len(listings) < 2 * len(TOOLS):
        send(id=number, error={"code": -32020, "message": "the tool has changed"})
    else:
        return False
    return True


def called(number: int, params: dict[str, Any]) -> None:
    """Answer a call, or do not."""
    name, arguments = params["name"], params.get("arguments") or {}
    note(f"called {name}")
    if asked(number, name, params):
        return
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
    listings.append(names[place])
    schema = {"type": "object", "properties": {"filter[id]": {"type": "integer"}, "text": {}}}
    tool = {"name": names[place], "description": TOOLS[names[place]], "inputSchema": schema}
    more = {"nextCursor": str(place + 1)} if place + 1 < len(names) else {}
    return {**COMPLETE, **CACHING, "tools": [tool], **more}


def discovered() -> dict[str, Any]:
    """Say what this server is, in the newer way."""
    return {
        **COMPLETE,
        **CACHING,
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "Be brief.",
    }


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
                called(number, params)
            case "server/discover" if IS_NEW:
                send(id=number, result=discovered())
            case None:  # the answer to a question
                send(id=waiting.pop(), result=text(json.dumps(message.get("result") or message["error"])))
            case "notifications/cancelled":
                note("called off")
            case str(other) if number is not None:
                send(id=number, error={"code": -32601, "message": f"no {other}"})
    note("ended")
    if "--stay" in sys.argv:
        time.sleep(60)


if __name__ == "__main__":
    main()
