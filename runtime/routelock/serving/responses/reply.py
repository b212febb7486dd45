"""The items and events of a response, made from the deltas of a run. This module does no input or output.

Each reply of a model is items of its own: its reasoning, then its message. The texts of the messages, one
after the other, are the content of a chat completion, with the blank lines between them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from routelock.history.messages import ToolCall
from routelock.serving.completions import Delta
from routelock.serving.errors import Refusal
from routelock.serving.responses.tools import CallForm
from routelock.serving.served_run import RunEnd
from routelock.usage import Usage

__all__ = ["ResponseReply"]


_Event = dict[str, Any]

_Keeper = Callable[[Mapping[str, Any], RunEnd], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of content: its item, its part, and its events."""

    item: str
    prefix: str
    part: str
    key: str
    """The key of the text in the part."""
    event: str
    extra: Mapping[str, Any] = field(default_factory=lambda: {})
    """More keys of the part."""
    event_extra: Mapping[str, Any] = field(default_factory=lambda: {})

    def part_of(self, text: str) -> dict[str, Any]:
        """Return the part with a text."""
        return {"type": self.part, self.key: text, **self.extra}


_KINDS = {
    "reasoning_content": _Kind("reasoning", "rs", "reasoning_text", "text", "response.reasoning_text"),
    "content": _Kind(
        "message",
        "msg",
        "output_text",
        "text",
        "response.output_text",
        {"annotations": [], "logprobs": []},
        {"logprobs": []},
    ),
    "refusal": _Kind("message", "msg", "refusal", "refusal", "response.refusal"),
}
"""The kinds of content, by the keys of deltas."""


@dataclass(frozen=True, slots=True)
class _CallKind:
    """A kind of calls: its item, the key of the text in it, and its events."""

    item: str
    prefix: str
    key: str
    event: str


_FUNCTION_CALL = _CallKind("function_call", "fc", "arguments", "response.function_call_arguments")
_CUSTOM_CALL = _CallKind("custom_tool_call", "ctc", "input", "response.custom_tool_call_input")


@dataclass(slots=True)
class _OpenItem:
    kind: _Kind
    id: str
    place: int
    start: int
    """Where its text begins in the texts of all messages, one after the other."""
    texts: list[str] = field(default_factory=lambda: [])
    annotations: list[Mapping[str, Any]] = field(default_factory=lambda: [])

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def part(self) -> dict[str, Any]:
        part = self.kind.part_of(self.text)
        return {**part, "annotations": [*self.annotations]} if self.annotations else part


class ResponseReply:
    """Makes the events or the body of one response; see `routelock.serving.served_run.ReplyForm`.

    Args:
        head: the constant parameters of the response, and those that it repeats of its request.
        keep: is given the body of the response when its run has ended, and the end of the run; None keeps
            nothing.
        forms: the forms of calls of the client's tools, see `ClientTools`.
    """

    def __init__(
        self,
        head: Mapping[str, Any],
        keep: _Keeper | None = None,
        forms: Mapping[str, CallForm] = MappingProxyType({}),
    ) -> None:
        self._head, self._keeper, self._forms = head, keep, forms
        self._end: RunEnd | None = None
        self._output: list[dict[str, Any]] = []
        self._open: _OpenItem | None = None
        self._texts: list[_OpenItem] = []
        """The items with the texts of messages, closed ones as well."""
        self._speaker: Mapping[str, Any] | None = None
        self._count = 0
        self._body: Mapping[str, Any] = {}

    def begin(self) -> Sequence[Mapping[str, Any]]:
        """Return no event: ``response.created`` comes with the first content."""
        return ()

    def take(self, deltas: Sequence[Delta], *, ends: bool) -> list[_Event]:
        """Return the events of some deltas; the end of a reply closes its item."""
        events: list[_Event] = []
        for delta in deltas:
            if "x_agent" in delta:
                events += self._close()
                self._speaker = delta["x_agent"]
            for key, text in delta.items():
                if text and key in _KINDS:
                    events += self._add(_KINDS[key], text)
            events += self._annotate(delta.get("annotations", ()))
        return events + self._close() if ends else events

    def finish(self, end: RunEnd) -> Sequence[Mapping[str, Any] | str]:
        """Return the last events of the items."""
        events = self.take(end.deltas, ends=True)
        for call in end.waiting.calls if end.waiting is not None else ():
            events += self._call_events(call)
        if not self._output:
            events += [*self._opened(_KINDS["content"]), *self._close()]
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(end.finish)
        if reason is not None:
            self._output[-1]["status"] = "incomplete"
        self._body = {
            **self._snapshot("incomplete" if reason else "completed"),
            "completed_at": None if reason else int(time.time()),
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": _usage(end.result.usage),
        }
        self._end = end
        return events

    def close(self) -> Sequence[Mapping[str, Any] | str]:
        """Return the event that has the whole response, and ``[DONE]``."""
        return [self._event(f"response.{self._body['status']}", {"response": self._body}), "[DONE]"]

    def whole(self, replies: Iterable[Sequence[Delta]], end: RunEnd) -> Mapping[str, Any]:
        """Return the body of a response that is not streamed."""
        for reply in replies:
            self.take(reply, ends=True)
        self.finish(end)
        return self._body

    async def keep(self) -> None:
        """Keep the response, if its client asked for that."""
        if self._keeper is not None and self._end is not None:
            await self._keeper(self._body, self._end)

    def fail(self, refusal: Refusal, request_id: str) -> Sequence[Mapping[str, Any] | str]:
        """Return the events that end a stream that failed. OpenAI's clients raise on the first of them."""
        opening = self._opening()
        if (item := self._open) is not None:
            self._output.append(self._item(item, "incomplete"))
        error = refusal.body(request_id)["error"]
        flat = {key: error[key] for key in ("code", "message", "param")}
        # OpenAI's clients raise on the nested form, and others read the flat one
        event = self._event("error", {"error": error, **flat})
        body = {**self._snapshot("failed"), "error": {"code": error["code"], "message": error["message"]}}
        return [*opening, event, self._event("response.failed", {"response": body}), "[DONE]"]

    def _add(self, kind: _Kind, text: str) -> list[_Event]:
        events: list[_Event] = []
        if self._open is None or self._open.kind is not kind:
            events = self._close() + self._opened(kind)
        if (item := self._open) is not None:
            item.texts.append(text)
            events.append(self._part_event(item, f"{kind.event}.delta", {"delta": text, **kind.event_extra}))
        return events

    def _annotate(self, annotations: Iterable[Mapping[str, Any]]) -> list[_Event]:
        """Give the citations of a reply to the items that have their passages."""
        events: list[_Event] = []
        for each in annotations:
            cited = each["url_citation"]
            first, last = cited["start_index"], cited["end_index"]
            if (item := next((one for one in reversed(self._texts) if one.start <= first), None)) is None:
                continue
            span = {"start_index": first - item.start, "end_index": min(last - item.start, len(item.text))}
            item.annotations.append({**cited, **span, "type": "url_citation"})
            about = {"annotation_index": len(item.annotations) - 1, "annotation": item.annotations[-1]}
            events.append(self._part_event(item, "response.output_text.annotation.added", about))
            if item is not self._open:  # thoughts came after it in the same reply
                self._output[item.place] = self._item(item, "completed")
        return events

    def _opened(self, kind: _Kind) -> list[_Event]:
        events = self._opening()
        start = self._texts[-1].start + len(self._texts[-1].text) if self._texts else 0
        item = self._open = _OpenItem(kind, f"{kind.prefix}_{os.urandom(16).hex()}", len(self._output), start)
        if kind is _KINDS["content"]:
            self._texts.append(item)
        empty: dict[str, Any] = {**self._item(item, "in_progress"), "content": []}
        events.append(self._event("response.output_item.added", {"output_index": item.place, "item": empty}))
        events.append(self._part_event(item, "response.content_part.added", {"part": kind.part_of("")}))
        return events

    def _close(self) -> list[_Event]:
        if (item := self._open) is None:
            return []
        self._open = None
        kind, whole = item.kind, self._item(item, "completed")
        self._output.append(whole)
        return [
            self._part_event(item, f"{kind.event}.done", {kind.key: item.text, **kind.event_extra}),
            self._part_event(item, "response.content_part.done", {"part": item.part}),
            self._event("response.output_item.done", {"output_index": item.place, "item": {**whole}}),
        ]

    def _call_events(self, call: ToolCall) -> list[_Event]:
        function = call["function"]
        form = self._forms.get(function["name"]) or CallForm(name=function["name"])
        kind = _CUSTOM_CALL if form.custom else _FUNCTION_CALL
        text = form.text(function.get("arguments") or "{}")
        item = {
            "type": kind.item,
            "id": f"{kind.prefix}_{os.urandom(16).hex()}",
            "call_id": call["id"],
            "name": form.name,
            **({"namespace": form.namespace} if form.namespace else {}),
            kind.key: text,
            "status": "completed",
            **self._by(),
        }
        place = {"output_index": len(self._output)}
        part = {"item_id": item["id"], **place}
        begun = {**item, kind.key: "", "status": "in_progress"}
        events = [
            *self._opening(),
            self._event("response.output_item.added", {"item": begun, **place}),
            self._event(f"{kind.event}.delta", {"delta": text, **part}),
            self._event(f"{kind.event}.done", {kind.key: text, "name": form.name, **part}),
            self._event("response.output_item.done", {"item": {**item}, **place}),
        ]
        self._output.append(item)
        return events

    def _item(self, item: _OpenItem, status: str) -> dict[str, Any]:
        own: dict[str, Any] = {"role": "assistant"} if item.kind.item == "message" else {"summary": []}
        named = {"type": item.kind.item, "id": item.id, "status": status}
        return {**named, **own, "content": [item.part], **self._by()}

    def _by(self) -> dict[str, Any]:
        return {} if self._speaker is None else {"x_agent": self._speaker}

    def _opening(self) -> list[_Event]:
        """Return the first events, once."""
        if self._count:
            return []
        body = self._snapshot("in_progress")
        return [self._event(f"response.{name}", {"response": body}) for name in ("created", "in_progress")]

    def _snapshot(self, status: str) -> dict[str, Any]:
        open_ended = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
        return {**self._head, **open_ended, "status": status, "output": [*self._output]}

    def _part_event(self, item: _OpenItem, kind: str, more: Mapping[str, Any]) -> _Event:
        return self._event(kind, {"item_id": item.id, "output_index": item.place, "content_index": 0, **more})

    def _event(self, kind: str, more: Mapping[str, Any]) -> _Event:
        self._count += 1
        return {"type": kind, "sequence_number": self._count - 1, **more}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
