"""Responses that are kept, so that a later request can continue or show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routelock.history.messages import Message, calls_of
from routelock.serving.bounded_store import BoundedStore, Bounds
from routelock.serving.catalog import ServedAgent
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import HeldRun, Resumed
from routelock.serving.requests import bad_request
from routelock.sessions.stores import SessionStore

__all__ = ["KeptResponse", "KeptResponses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """One response, and the run that made it."""

    body: Mapping[str, Any]
    run: HeldRun

    def continued(self, messages: Sequence[Message]) -> Resumed:
        """Return the run with the messages of the next request.

        Raises:
            Refusal: 400, a call of the response has no result, or is there twice, or a result has no call.
        """
        calls = set(self.run.own_ids)
        if again := calls & {call["id"] for message in messages for call in calls_of(message)}:
            why = (
                f"input: the previous response has this call already: {min(again)!r}. Send its result alone."
            )
            raise bad_request(why, "input")
        results = {message.get("tool_call_id") for message in messages if message["role"] == "tool"}
        if left := calls - results:
            why = f"input: no function_call_output for the call {min(left)!r} of the previous response."
            raise bad_request(why, "input")
        if results - calls:
            raise bad_request(
                "input: a function_call_output answers no call of the previous response.", "input"
            )
        return self.run.resumed(messages)

    def text(self) -> str:
        """Return the response as JSON, for a store."""
        run = {
            "agent": self.run.agent.name,
            "handler": self.run.handler,
            "messages": self.run.messages,
            "own_ids": self.run.own_ids,
        }
        return json.dumps({"body": self.body, "run": run}, default=str)


class KeptResponses:
    """The responses of one app. A caller finds only its own.

    Args:
        sessions: the store of the responses; None keeps them in memory, within the bounds.
        bounds: the bounds of the responses, whose bytes are counted as JSON.
    """

    def __init__(self, sessions: SessionStore | None, bounds: Bounds) -> None:
        self._sessions = sessions
        self._kept = BoundedStore[tuple[str, str], KeptResponse](bounds)

    async def keep(self, principal: str, body: Mapping[str, Any], run: HeldRun) -> None:
        """Keep a response under its id."""
        kept = KeptResponse(body=body, run=run)
        if self._sessions is not None:
            await self._sessions.append(_session(principal, body["id"]), 0, kept.text())
        else:
            self._kept.put((principal, body["id"]), kept, run.size + len(json.dumps(body)))

    async def find(self, principal: str, response: str) -> Mapping[str, Any]:
        """Return the body of a response by its id.

        Raises:
            Refusal: 404.
        """
        body: Mapping[str, Any] | None
        if self._sessions is not None:
            _, stored = await _newest(self._sessions, principal, response)
            body = None if stored is None else stored["body"]
        else:
            kept = self._kept.get((principal, response))
            body = None if kept is None else kept.body
        if body is None:
            why = f"There is no response {response[:100]!r} here. Responses are kept for a while only."
            raise Refusal(404, why, "response_not_found", "response_id")
        return body

    async def previous(self, principal: str, response: str, served: ServedAgent) -> KeptResponse:
        """Return the response that a request continues.

        Args:
            principal: the name of the caller.
            response: the id of the response.
            served: the agent that the client asked for.

        Raises:
            Refusal: 400, it is not kept, or another model made it.
        """
        if self._sessions is not None:
            _, stored = await _newest(self._sessions, principal, response)
            kept = None if stored is None else _restored(stored, served)
        else:
            kept = self._kept.get((principal, response))
        if kept is None:
            why = (
                f"Previous response {response[:100]!r} not found. Responses are kept for a while only: send "
                "the whole conversation as input."
            )
            raise Refusal(400, why, "previous_response_not_found", "previous_response_id")
        if kept.body["model"] != served.agent.name:
            why = f"previous_response_id: the model {kept.body['model']!r} made that response. Send its name."
            raise bad_request(why, "previous_response_id")
        return kept

    async def remove(self, principal: str, response: str) -> None:
        """Remove a response.

        Raises:
            Refusal: 404.
        """
        await self.find(principal, response)
        if self._sessions is None:
            self._kept.remove((principal, response))
        else:
            number, _ = await _newest(self._sessions, principal, response)
            await self._sessions.append(_session(principal, response), number, "null", alone=True)


def _session(principal: str, response: str) -> str:
    # as JSON, so that two different keys never make the same name
    return json.dumps(["responses", principal, response])


async def _newest(
    sessions: SessionStore, principal: str, response: str
) -> tuple[int, Mapping[str, Any] | None]:
    """Return the number and the value of a response in the store; None if it is not there."""
    records = await sessions.load(_session(principal, response), newest=1)
    return (records[-1][0], json.loads(records[-1][1])) if records else (0, None)


def _restored(stored: Mapping[str, Any], served: ServedAgent) -> KeptResponse:
    """Return a stored response. If its agent is not there any more, the requested agent goes on."""
    run: Mapping[str, Any] = stored["run"]
    held = HeldRun(
        agent=served.graph.get(run["agent"], served.agent),
        handler=run["handler"],
        messages=run["messages"],
        own_ids=run["own_ids"],
    )
    return KeptResponse(body=stored["body"], run=held)
