"""Repair of a list of messages, so that every chat provider accepts it, without loss of content.

The rules are those that all chat APIs share: each tool call has exactly one result; the results follow their
message with nothing in between; each result has a call; each call has a unique id and a type; no assistant
message is empty; and there is a message to answer. The rules of single vendors are in the providers.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, cast

from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.validity import has_only_system_messages, says_nothing

__all__ = ["NOTHING_LEFT", "NO_ANSWER", "repair"]


NO_ANSWER = "No result was recorded for this call."
"""The content of a tool result that was missing."""

NOTHING_LEFT = "added a user message, because nothing was left to answer"
"""The report of the only repair that a later message makes unnecessary."""

_NOTHING_TO_ANSWER = "Please continue."


_UNKNOWN_TOOL = "unknown_tool"


def repair(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Return a valid list of messages, and one line for each repair.

    A valid list comes back with the same message objects and no repairs; a second repair changes nothing. No
    content is lost: a missing result is added, a result without a call gets a call, a second result is joined
    to the first, and a displaced result moves to its call.
    """
    return _Repairer(messages).repair()


class _Repairer:
    """The repair of one list. Each call takes the results of its id up to the next call with that id.

    The time is linear in the number of messages, calls and results, because a server repairs lists of unknown
    clients.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.out: list[Message] = []
        self.repairs: list[str] = []
        self.used_ids: set[str] = set()
        self.counts: dict[str, int] = {}
        """The last number used in a new id, by the old id."""
        self.answers: dict[str, list[int]] = {}
        """The indexes of results that have no call yet, by call id."""
        self.callers: dict[str, deque[list[int]]] = {}
        """The indexes of messages with a call, by call id, each with the number of such calls still to
        come."""
        for index, message in enumerate(messages):
            if message["role"] == "tool":
                self.answers.setdefault(message.get("tool_call_id") or "", []).append(index)
            for call in calls_of(message):
                places = self.callers.setdefault(call.get("id") or "", deque())
                if places and places[-1][0] == index:
                    places[-1][1] += 1
                else:
                    places.append([index, 1])
        self.turns_end = _ends_of_turns(messages)

    def repair(self) -> tuple[list[Message], list[str]]:
        taken: set[int] = set()
        for index, message in enumerate(self.messages):
            if message["role"] == "tool":
                if index not in taken and not self._belongs_to_a_later_call(message):
                    self._adopt(index, message)
            elif says_nothing(message):
                self.repairs.append(f"dropped an empty assistant message (message {index})")
            elif calls_of(message):
                taken |= self._with_answers(index, message)
            else:
                self.out.append(message)
        if has_only_system_messages(self.out):
            self.repairs.append(NOTHING_LEFT)
            self.out.append({"role": "user", "content": _NOTHING_TO_ANSWER})
        return self.out, self.repairs

    def _belongs_to_a_later_call(self, answer: Message) -> bool:
        return bool(self.callers.get(answer.get("tool_call_id") or ""))

    def _with_answers(self, index: int, message: Message) -> set[int]:
        taken: set[int] = set()
        calls: list[ToolCall] = []
        answers: list[tuple[int, Message]] = []
        for call in calls_of(message):
            call_id = call.get("id") or ""
            self._call_is_next(call_id)
            found = self._answers_for(call_id, index)
            taken.update(found)
            if found and not self._follows(index, found[0]):
                self.repairs.append(f"moved the answer to tool call {call_id!r} to its call")
            new_id = self._unused_id(call_id)
            calls.append(self._completed(call, new_id))
            answers.append((min(found, default=len(self.messages)), self._one_answer(found, new_id)))
        if any(new is not old for new, old in zip(calls, calls_of(message), strict=True)):
            message = cast(Message, {**message, "tool_calls": calls})
        if all(place < len(self.messages) for place, _ in answers):
            answers.sort(key=itemgetter(0))  # the results of a valid turn keep their order
        self.out += [message, *(answer for _, answer in answers)]
        return taken

    def _completed(self, call: ToolCall, new_id: str) -> ToolCall:
        """Return a call with its new id, and with the type ``function``, the only one."""
        typed = call.get("type") == "function"
        if typed and new_id == call.get("id"):
            return call
        if not typed:
            self.repairs.append(f"added the type of tool call {new_id!r}")
        return cast(ToolCall, {**call, "id": new_id, "type": "function"})

    def _follows(self, index: int, answer: int) -> bool:
        """Whether only tool messages are between a call and its result."""
        return index < answer < self.turns_end[index]

    def _call_is_next(self, call_id: str) -> None:
        places = self.callers[call_id]
        places[0][1] -= 1
        if not places[0][1]:
            places.popleft()

    def _answers_for(self, call_id: str, index: int) -> list[int]:
        """Take the results of a call: all that are left, unless a later call has the same id."""
        waiting = self.answers.get(call_id, [])
        later = self.callers[call_id]
        first, last = 0, len(waiting)
        if later:
            first = bisect_right(waiting, index)
            if later[0][0] == index:
                last = min(last, first + 1)
            ahead = next((place for place, _ in later if place > index), len(self.messages))
            last = min(last, max(first, bisect_left(waiting, ahead)))
        found = waiting[first:last]
        del waiting[first:last]
        return found

    def _unused_id(self, call_id: str) -> str:
        """Return an id that no earlier call has; the same messages always give the same ids."""
        new_id, count = call_id or "call_1", self.counts.get(call_id, 1)
        while new_id in self.used_ids or (new_id != call_id and new_id in self.callers):
            count += 1
            new_id = f"{call_id or 'call'}_{count}"
        self.counts[call_id] = count
        if new_id != call_id:
            self.repairs.append(f"renamed tool call {call_id!r} to {new_id!r}")
        self.used_ids.add(new_id)
        return new_id

    def _one_answer(self, found: list[int], call_id: str) -> Message:
        if not found:
            self.repairs.append(f"added a missing answer to tool call {call_id!r}")
            return {"role": "tool", "tool_call_id": call_id, "content": NO_ANSWER}
        answer = self.messages[found[0]]
        if len(found) > 1:
            self.repairs.append(f"joined {len(found)} answers to tool call {call_id!r}")
            answer = _joined([self.messages[index] for index in found])
        if answer.get("tool_call_id") != call_id:
            answer = cast(Message, {**answer, "tool_call_id": call_id})
        return answer

    def _adopt(self, index: int, answer: Message) -> None:
        """Add a call for a result that has none, so that its content stays a tool result."""
        old = answer.get("tool_call_id") or ""
        call_id = self._unused_id(old)
        self.repairs.append(f"added the missing call for orphan tool result {old!r} (message {index})")
        name = str(answer.get("name") or _UNKNOWN_TOOL)
        call: ToolCall = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": "{}"},
        }
        self.out.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.out.append(answer if old == call_id else cast(Message, {**answer, "tool_call_id": call_id}))


def _ends_of_turns(messages: Sequence[Message]) -> list[int]:
    """Return for each message the index of the next message that is not a tool result."""
    ends, end = [0] * len(messages), len(messages)
    for index in range(len(messages) - 1, -1, -1):
        ends[index] = end
        if messages[index]["role"] != "tool":
            end = index
    return ends


def _joined(answers: list[Message]) -> Message:
    """Return the first result with the content of all others added."""
    content: object
    if any(isinstance(answer.get("content"), list) for answer in answers):
        parts = [part for answer in answers for part in _parts(answer)]
        known: dict[str, dict[str, Any]] = {}
        for part in parts:
            known.setdefault(json.dumps(part, sort_keys=True, default=repr), part)
        content = list(known.values())
    else:
        content = "\n".join(dict.fromkeys(text_of(answer) for answer in answers))
    first = answers[0]
    return first if content == first.get("content") else cast(Message, {**first, "content": content})


def _parts(answer: Message) -> list[dict[str, Any]]:
    content = answer.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
