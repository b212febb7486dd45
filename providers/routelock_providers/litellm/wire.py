"""Changes to the JSON that litellm sends: parts that it cannot express, or would drop.

litellm gets a mark, which is a random text, in place of each part that it does not know. When it sends the
request, the mark is replaced by a part of a message, or by a whole turn that the vendor wrote with tools of
its own. Such a turn goes back as it came, because Anthropic, Google and OpenAI check it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from routelock._json import dicts_in
from routelock.history.messages import Message, calls_of
from routelock.history.portable import portable
from routelock.history.vendor_calls import VENDOR_KEYS
from routelock_providers.litellm.fixes import restore_parts
from routelock_providers.vendor_json import decode_json, encode_json
from routelock_providers.vendor_tools import API, AddedTools

__all__ = ["Turn", "WireChanges", "own_turns", "paused_turn", "turns_in"]


_Json = dict[str, Any]

_MarkIn = Callable[[_Json], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assistant turn in the vendor's own items, and the ids with which its calls of functions are sent."""

    items: Sequence[Mapping[str, Any]]
    call_ids: Sequence[str]


@dataclass(slots=True, kw_only=True)
class WireChanges:
    """The changes to one request."""

    api: API = "chat"
    parts: Mapping[str, Any] = field(default_factory=lambda: {})
    """The parts of messages, by their marks."""
    turns: Mapping[str, Turn] = field(default_factory=lambda: {})
    """The turns in the vendor's own items, by their marks."""
    added: AddedTools | None = None
    """The additions of the vendor's own tools; None if none is offered."""

    def __bool__(self) -> bool:
        return bool(self.parts or self.turns or self.added)

    def body(self, body: bytes) -> bytes:
        """Return the body of a request with the changes made in it."""
        body = restore_parts(body, self.parts)
        if not self.turns and self.added is None:
            return body
        value = cast("_Json", decode_json(body))
        if self.turns:
            _TURNS[self.api](value, self.turns)
        if self.added is not None:
            _add(value, self.added)
        return encode_json(value)

    def headers(self, headers: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers of a request with the betas of the vendor's tools."""
        if self.added is None or not self.added.betas:
            return headers
        name = b"anthropic-beta"
        known = [each.strip() for key, value in headers if key.lower() == name for each in value.split(b",")]
        betas = dict.fromkeys([*filter(None, known), *(beta.encode() for beta in self.added.betas)])
        return [*(each for each in headers if each[0].lower() != name), (name, b",".join(betas))]


def own_turns(messages: Sequence[Message], api: API) -> tuple[Sequence[Message], Mapping[str, Sequence[Any]]]:
    """Return the messages, and the items of the turns in which this API's own tools ran, by their marks.

    Such a turn becomes a mark with its calls of functions. In a turn of another API, the text says what the
    tools did.
    """
    items: dict[str, Sequence[Any]] = {}
    if all(VENDOR_KEYS.isdisjoint(message) for message in messages):
        return messages, items
    return [_own(message, api, items) for message in messages], items


def turns_in(messages: Sequence[Message], items: Mapping[str, Sequence[Any]]) -> Mapping[str, Turn]:
    """Return the turn behind each mark, with the call ids that messages fitted to their vendor have."""
    return {
        mark: Turn(items=items[mark], call_ids=[call["id"] for call in calls_of(message)])
        for message in messages
        if items and isinstance(mark := message.get("content"), str) and mark in items
    }


def paused_turn(items: Sequence[Mapping[str, Any]]) -> tuple[str, Turn]:
    """Return a mark for a turn that the vendor has not ended, and the turn."""
    return _new_mark(), Turn(items=items, call_ids=())


def _new_mark() -> str:
    return f"[routelock turn {secrets.token_hex(16)}]"  # random, so that no other text can be taken for it


def _own(message: Message, api: API, items: dict[str, Sequence[Any]]) -> Message:
    if VENDOR_KEYS.isdisjoint(message):
        return message
    if (message.get("vendor_items") or {}).get("api") != api:
        return _without_keys(message, content=portable(message).get("content"))
    calls, own = calls_of(message), dicts_in((message.get("vendor_items") or {}).get("items"))
    if not own:
        return _without_keys(message, content=message.get("content"))
    if len(_functions_in(own)) != len(calls):  # a filter has changed the calls
        return _without_keys(message, content=portable(message).get("content"))
    mark = _new_mark()
    items[mark] = own
    made: Message = {"role": "assistant", "content": mark}
    if calls:  # litellm drops the results of calls that it does not see
        made["tool_calls"] = calls
    return made


def _without_keys(message: Message, *, content: object) -> Message:
    rest = {key: value for key, value in message.items() if key not in (*VENDOR_KEYS, "annotations")}
    return cast(Message, {**rest, "content": content})


def _functions_in(items: Sequence[_Json]) -> Sequence[_Json]:
    return [item for item in items if item.get("type") in ("tool_use", "function_call") or _google_call(item)]


def _google_call(part: _Json) -> _Json:
    """Return the function call in a part of Gemini's, in Google's spelling or litellm's; empty if none."""
    return part.get("functionCall") or part.get("function_call") or {}


def _restored(items: Sequence[_Json], after: int, turn: Turn) -> tuple[list[Any], int]:
    """Return a turn's items with the ids that are sent, and the number of items after the mark to replace."""
    replaced = _functions_in(items[after : after + len(turn.call_ids)])
    own = [dict(item) for item in turn.items]
    for place, item in enumerate(_functions_in(own)):
        if not (call := _google_call(item)):
            item["id" if item["type"] == "tool_use" else "call_id"] = turn.call_ids[place]
        elif place < len(replaced):  # litellm leaves out the ids up to Gemini 2
            sent = _google_call(replaced[place]).get("id")
            rest = {key: value for key, value in call.items() if key != "id"}
            item["functionCall"] = {**rest, "id": sent} if sent else rest
    return own, len(replaced)


def _replace_in(items: Sequence[_Json], turns: Mapping[str, Turn], mark_in: _MarkIn) -> list[Any]:
    """Return items with those that hold a mark replaced by their turns, calls of functions included."""
    out: list[Any] = []
    place = 0
    while place < len(items):
        turn = turns.get(mark_in(items[place]) or "")
        place += 1
        if turn is None:
            out.append(items[place - 1])
            continue
        own, replaced = _restored(items, place, turn)
        out += own
        place += replaced
    return out


def _claude_turns(body: _Json, turns: Mapping[str, Turn]) -> None:
    for message in body.get("messages") or ():
        content: Any = message.get("content")
        if message.get("role") != "assistant":
            continue
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        restored = _replace_in(blocks, turns, _text_in)
        if restored != blocks:
            message["content"] = _without_blank(restored)


def _without_blank(blocks: Sequence[_Json]) -> list[_Json]:
    """Return blocks without blank texts, which Anthropic sends and does not accept."""
    out: list[_Json] = []
    for block in blocks:
        if block.get("type") != "text" or str(block.get("text") or "").strip():
            out.append(block)
        elif out and out[-1].get("type") == "text":
            out[-1] = {**out[-1], "text": f"{out[-1]['text']}{block.get('text') or ''}"}
    return out


def _gemini_turns(body: _Json, turns: Mapping[str, Turn]) -> None:
    for content in body.get("contents") or ():
        if content.get("role") == "model":
            content["parts"] = _replace_in(content.get("parts") or [], turns, _text_in)


def _responses_turns(body: _Json, turns: Mapping[str, Turn]) -> None:
    body["input"] = [_acceptable(item) for item in _replace_in(body.get("input") or [], turns, _text_of_item)]


def _acceptable(item: _Json) -> _Json:
    """Return an item without nulls and odd sources, which the Responses API sends and does not accept.

    In a request, a source of a search must be an address. Answers also have other sources, such as ``{"type":
    "api"}``.
    """
    kept = ("outputs", "code", "output", "result", "results")
    fit = {key: value for key, value in item.items() if value is not None or key in kept}
    action: Any = fit.get("action")
    if isinstance(action, dict) and (sources := cast("_Json", action).get("sources")):
        pages = [each for each in sources if each.get("type") == "url"]
        rest = {key: value for key, value in cast("_Json", action).items() if key != "sources"}
        fit["action"] = {**rest, "sources": pages} if pages else rest
    return fit


def _text_of_item(item: _Json) -> str | None:
    content: Any = item.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return _text_in(cast("_Json", parts[0])) if parts and isinstance(parts[0], dict) else None


def _text_in(part: _Json) -> str | None:
    text: object = part.get("text")
    return text if isinstance(text, str) else None


_TURNS: Final[Mapping[API, Any]] = {
    "anthropic": _claude_turns,
    "gemini": _gemini_turns,
    "responses": _responses_turns,
}


def _add(body: _Json, added: AddedTools) -> None:
    if added.tools:
        body["tools"] = [*(body.get("tools") or ()), *added.tools]
    for key, value in added.fields.items():
        there: Any = body.get(key)
        if isinstance(value, list):
            more = [each for each in cast("list[object]", value) if each not in (there or ())]
            body[key] = [*(there or ()), *more]
        elif isinstance(value, Mapping) and isinstance(there, dict) and key != "tool_choice":
            body[key] = {**cast("_Json", there), **cast("_Json", value)}
        else:
            body[key] = value
