"""Responses that are kept, so that a later request can continue or show them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelock.history.messages import Message
from routelock.serving.bounded_store import BoundedStore
from routelock.serving.errors import Refusal
from routelock.serving.pending_runs import HeldRun, Resumed
from routelock.serving.requests import bad_request

__all__ = ["KeptResponse", "KeptResponses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """One response, and the run that made it."""

    body: Mapping[str, Any]
    run: HeldRun

    def continued(self, messages: Sequence[Message], instructions: str | None) -> Resumed:
        """Return the run with the messages of the next request.

        Args:
            messages: the input of the request.
            instructions: those of the request. Those of the response before are not in the run.

        Raises:
            Refusal: 400, a call of the response has no result, or a result has no call.
        """
        calls = set(self.run.own_ids)
        results = {message.get("tool_call_id") for message in messages if message["role"] == "tool"}
        if left := calls - results:
            why = f"input: no function_call_output for the call {min(left)!r} of the previous response."
            raise bad_request(why, "input")
        if results - calls:
            raise bad_request(
                "input: a function_call_output answers no call of the previous response.", "input"
            )
        found = self.run.resumed(messages)
        return replace(found, messages=[*system_messages(instructions), *found.messages])


class KeptResponses:
    """The responses of one app. A caller finds only its own.

    Args:
        most: the largest number of responses.
        size: most bytes of all responses, counted as JSON.
        ttl: seconds that a response is kept.
        clock: returns the time in seconds; replace it for tests.
    """

    def __init__(
        self, *, most: int, size: int, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept: BoundedStore[tuple[str, str], KeptResponse]
        self._kept = BoundedStore(most=most, size=size, ttl=ttl, clock=clock)

    def keep(self, principal: str, body: Mapping[str, Any], run: HeldRun) -> None:
        """Keep a response under its id, and its run without the instructions of the request."""
        own = system_messages(body["instructions"])
        if own and run.messages[:1] == own:
            run = replace(run, messages=run.messages[1:])
        kept = KeptResponse(body=body, run=run)
        self._kept.put((principal, body["id"]), kept, run.size + len(json.dumps(body)))

    def find(self, principal: str, response: str) -> KeptResponse:
        """Return a response by its id.

        Raises:
            Refusal: 404.
        """
        if (kept := self._kept.get((principal, response))) is None:
            why = (
                f"There is no response {response[:100]!r} here. The server keeps responses for a while only."
            )
            raise Refusal(404, why, "response_not_found", "response_id")
        return kept

    def previous(self, principal: str, response: str, model: str) -> KeptResponse:
        """Return the response that a request continues.

        Raises:
            Refusal: 400, it is not kept, or another model made it.
        """
        kept = self._kept.get((principal, response))
        if kept is None:
            why = (
                f"Previous response {response[:100]!r} not found. Responses are kept for a while only: "
                "send the whole conversation as input."
            )
            raise Refusal(400, why, "previous_response_not_found", "previous_response_id")
        if kept.body["model"] != model:
            why = f"previous_response_id: the model {kept.body['model']!r} made that response. Send its name."
            raise bad_request(why, "previous_response_id")
        return kept

    def remove(self, principal: str, response: str) -> None:
        """Remove a response.

        Raises:
            Refusal: 404.
        """
        self.find(principal, response)
        self._kept.remove((principal, response))


def system_messages(instructions: str | None) -> list[Message]:
    """Return the instructions of a request as messages, none or one."""
    return [{"role": "system", "content": instructions}] if instructions else []
