"""Interrupts: the questions of a run to its client, and the client's decisions. No input or output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from routelock._copies import detached
from routelock._sendable import sendable
from routelock.errors import ModelBehaviorError
from routelock.history.messages import Message, RunItem, calls_of
from routelock.history.portable import portable
from routelock.serving.ag_ui.requests import ResumeEntry
from routelock.serving.forms import Misfit, asked_fields, question_text, read_answer
from routelock.serving.requests import bad_request
from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.tools.tool import Tool

__all__ = ["Interrupt"]


_VERDICT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "message": {"type": "string"}},
    "required": ["approved"],
}
"""The schema of an answer without fields."""

_EDITED = "editedArgs"

_EDIT = {"type": "object", "description": "All arguments of the call, in place of those of the model."}
"""The schema of arguments that are edited. Clients may offer that where a schema has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """A call that waits for the client."""

    call: Interruption
    shown: str | None = None
    """The id of the call for the client; None if the client was not shown the call."""
    tool: Tool[Any] | None = None
    """The tool, if the client may edit the arguments of the call."""

    def body(self, name: str) -> dict[str, Any]:
        """Return the interrupt with this id. Without its call, the message alone has the question.

        The data that a tool keeps with its question is not shown.
        """
        one, schema = self.call, _VERDICT
        reason = "confirmation" if self.shown is None else "tool_call"
        message = f"May {one.agent} make this call? {one.name}({one.arguments})"
        if one.question is not None:
            message = question_text(one.question)
        if one.question is not None and asked_fields(one):
            reason, schema = "input_required", one.question.schema or _VERDICT
        elif self.tool is not None:
            schema = {**_VERDICT, "properties": {**_VERDICT["properties"], _EDITED: _EDIT}}
        about = {"agent": one.agent, "name": one.name, "arguments": one.arguments}
        return {
            "id": name,
            "reason": reason,
            "message": sendable(message),
            **({} if self.shown is None else {"toolCallId": self.shown}),
            "responseSchema": sendable(detached(dict(schema))),
            "metadata": {"routelock": sendable(about)},
        }

    def decide(self, state: RunState, entry: ResumeEntry) -> RunState:
        """Return the state with the client's answer.

        Raises:
            Refusal: 400, the payload does not answer this interrupt; the message names the field.
        """
        if entry.status == "cancelled":
            return state.reject(self.call)
        payload: object = entry.payload
        try:
            answer = read_answer(self.call, payload, key="approved", where=f"{entry.where}.payload")
            if answer.approved and not asked_fields(self.call) and isinstance(payload, dict):
                edited = cast("dict[str, object]", payload).get(_EDITED)
                if edited is not None:
                    return self._edited(state, edited, f"{entry.where}.payload.{_EDITED}")
        except Misfit as misfit:
            raise bad_request(str(misfit), misfit.where) from misfit
        return answer.decide(state, self.call)

    def _edited(self, state: RunState, arguments: object, where: str) -> RunState:
        """Return the state in which the call has other arguments, and is approved.

        Raises:
            Misfit: the client may not edit them, or they are not those of the tool.
        """
        if self.tool is None:
            raise Misfit(where, "the arguments of this call cannot be edited.")
        if not isinstance(arguments, dict):
            raise Misfit(where, "must be an object.")
        text = json.dumps(arguments, ensure_ascii=False)
        try:
            self.tool.invoker.read(text)
        except ModelBehaviorError as error:
            raise Misfit(where, str(error)) from error
        edited = replace(self.call, arguments=text)
        return _with_call(state, self.call, edited).approve(edited)


def _with_call(state: RunState, one: Interruption, edited: Interruption) -> RunState:
    """Return the state in which a call of the outermost run has other arguments."""
    document = state.document
    waiting = [
        edited if each.call_id == one.call_id and not each.path else each for each in state.interruptions
    ]
    document = replace(
        document,
        items=[_edited_item(item, one.call_id, edited.arguments) for item in document.items],
        interruptions=[replace(each, run_id="") for each in waiting],
    )
    return replace(state, document=document)


def _edited_item(item: RunItem, call_id: str, arguments: str) -> RunItem:
    if call_id not in (call["id"] for call in calls_of(item.message)):
        return item
    calls = [
        {**call, "function": {**call["function"], "arguments": arguments}} if call["id"] == call_id else call
        for call in calls_of(item.message)
    ]
    # the vendor's own form of the reply has the call with its first arguments
    kept = {key: value for key, value in item.message.items() if key != "vendor_items"}
    if len(kept) < len(item.message):
        kept["content"] = portable(item.message).get("content")
    return replace(item, message=cast(Message, {**kept, "tool_calls": calls}))
