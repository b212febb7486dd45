"""A client of AG-UI as the protocol describes one: it sends all messages, and keeps what the events make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from asgi_client import Answer, asked

__all__ = ["Client", "assert_in_order", "kinds", "of_kind", "patched"]

Event = dict[str, Any]


def kinds(events: Sequence[Event]) -> list[str]:
    """The types of events; several in a row of the same content count once."""
    names = [event["type"] for event in events]
    return [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]


def of_kind(events: Sequence[Event], kind: str) -> list[Event]:
    """The events of a type."""
    return [event for event in events if event["type"] == kind]


_STREAMED = {
    "TEXT_MESSAGE": ("messageId", "CONTENT"),
    "REASONING_MESSAGE": ("messageId", "CONTENT"),
    "REASONING": ("messageId", ""),
    "TOOL_CALL": ("toolCallId", "ARGS"),
    "SUBAGENT": ("subagentRunId", ""),
    "STEP": ("stepName", ""),
}


def assert_in_order(events: Sequence[Event]) -> None:
    """Check that what an event goes on with or ends is open, and that nothing is open at the end of a run."""
    names = [event["type"] for event in events]
    assert names[0] == "RUN_STARTED", names
    assert names[-1] in ("RUN_FINISHED", "RUN_ERROR"), names
    assert len({"RUN_FINISHED", "RUN_ERROR"} & set(names[:-1])) == 0
    still_open: set[tuple[str, str]] = set()
    for event in events:
        kind = next((each for each in _STREAMED if event["type"].startswith(f"{each}_")), None)
        if kind is None or event["type"] == "TOOL_CALL_RESULT":
            continue
        key, content = _STREAMED[kind]
        verb, entity = event["type"].removeprefix(f"{kind}_"), (kind, event[key])
        if verb in ("START", "STARTED"):
            assert entity not in still_open, event
            still_open.add(entity)
        else:
            assert entity in still_open, event
            assert verb in ("END", "FINISHED", "ERROR", content), event
        if verb in ("END", "FINISHED", "ERROR"):
            still_open.remove(entity)
    assert names[-1] == "RUN_ERROR" or not still_open, still_open


def patched(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON document after the operations of a JSON Patch (RFC 6902) that add, remove and replace."""
    document = json.loads(json.dumps(document))
    for each in patch:
        *above, last = [step.replace("~1", "/").replace("~0", "~") for step in each["path"].split("/")[1:]]
        target = document
        for step in above:
            target = target[int(step)] if isinstance(target, list) else target[step]
        key: Any = last if isinstance(target, dict) else len(target) if last == "-" else int(last)
        match each["op"]:
            case "add" if isinstance(target, list):
                target.insert(key, each["value"])
            case "add":
                target[key] = each["value"]
            case "replace":
                del target[key]  # it has to be there
                target.insert(key, each["value"]) if isinstance(target, list) else target.update(
                    {key: each["value"]}
                )
            case "remove":
                del target[key]
            case other:
                raise AssertionError(other)
    return document


class Client:
    """One conversation with one agent.

    Args:
        app: the ASGI app.
        agent: its name; empty for the first one.
        key: the token to ask with.
        thread: the id of the conversation.
        is_current: whether the client says that it speaks version 1.0.
    """

    def __init__(
        self, app: Any, agent: str = "", *, key: str = "", thread: str = "t", is_current: bool = True
    ) -> None:
        self._app, self._path = app, f"/ag-ui/{agent}" if agent else "/ag-ui"
        self._thread, self._is_current = thread, is_current
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.messages: list[dict[str, Any]] = []
        self.state: Any = {}
        self.runs = 0

    def say(self, text: str) -> None:
        """Add a message of the user."""
        self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "content": text})

    def answer(self, call_id: str, content: str) -> None:
        """Add the result of a call of a tool of the client."""
        name = f"r{len(self.messages)}"
        self.messages.append({"id": name, "role": "tool", "toolCallId": call_id, "content": content})

    def post(self, *, virtual: bool = False, **more: Any) -> Answer:
        """Ask for a run, perhaps in virtual time."""
        self.runs += 1
        version = {"protocolVersion": "1.0"} if self._is_current else {}
        about = {"threadId": self._thread, "runId": f"r{self.runs}", "state": self.state, **version}
        body = {**about, "messages": self.messages, **more}
        return asked(self._app, self._path, body, headers=self._headers, virtual=virtual)

    def run(self, text: str | None = None, **more: Any) -> list[Event]:
        """Ask for a run, and return its events. They are checked, and make messages and state."""
        if text is not None:
            self.say(text)
        answer = self.post(**more)
        assert answer.status == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = [block for block in answer.text.split("\n\n") if block and not block.startswith(":")]
        events = [json.loads(block.removeprefix("data: ")) for block in blocks]
        assert_in_order(events)
        for event in events:
            self._apply(event)
        return events

    def _apply(self, event: Event) -> None:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self._assistant(event["messageId"])
            case "TEXT_MESSAGE_CONTENT":
                self._assistant(event["messageId"])["content"] += event["delta"]
            case "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                self._assistant(event["parentMessageId"]).setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                self._call(event["toolCallId"])["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                keys = {"id": "messageId", "toolCallId": "toolCallId", "content": "content"}
                self.messages.append({"role": "tool", **{key: event[name] for key, name in keys.items()}})
            case "STATE_SNAPSHOT":
                self.state = event["snapshot"]
            case "STATE_DELTA":
                self.state = patched(self.state, event["delta"])
            case _:
                pass

    def _assistant(self, name: str) -> dict[str, Any]:
        known = next((message for message in self.messages if message["id"] == name), None)
        if known is None:
            known = {"id": name, "role": "assistant", "content": ""}
            self.messages.append(known)
        return known

    def _call(self, name: str) -> Mapping[str, Any]:
        calls = [call for message in self.messages for call in message.get("toolCalls", ())]
        return next(call for call in calls if call["id"] == name)
