"""Questions of an MCP server in the middle of a call, and their answers by the app's function or a person.

Until version 2025-11-25 of the protocol, a server sends requests of its own while a call runs. From
2026-07-28 on it ends the call with its questions, and the client makes the call again with the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from routelock._callables import MaybeAwaitable, resolve
from routelock.errors import ToolError
from routelock.tools.failures import reason_of
from routelock.tools.questions import ToolAnswer, ToolQuestion, answer_to

__all__ = ["Elicitations", "InputRound", "NotAnswered", "OnElicitation", "is_unfinished"]


OnElicitation = Callable[[ToolQuestion], MaybeAwaitable[Mapping[str, Any] | bool | None]]
"""Answers the questions of a server, sync or async. It returns the fields of the answer, True for an answer
of defaults only, False to decline, or None to leave the question to a person."""


class NotAnswered(Exception):
    """A request of the server has no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Elicitations:
    """Answers elicitations (questions of an MCP server to the user) with a function of the app."""

    function: OnElicitation | None = None

    async def reply(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the reply to one elicitation, or None if the function leaves it to a person.

        Args:
            params: the parameters of ``elicitation/create``.

        Raises:
            NotAnswered: the function raised, or its answer does not fit.
        """
        if self.function is None:
            return None
        question = _question_of(params)
        try:
            said = await resolve(self.function(question))
            if said is None:
                return None
            content = None if isinstance(said, bool) else said
            return _reply_of(answer_to(question, 1, approved=said is not False, content=content))
        except Exception as error:
            raise NotAnswered(f"on_elicitation failed: {reason_of(error)}") from error

    async def reply_now(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to one elicitation while the call runs and waits for it.

        Raises:
            NotAnswered: the function has no answer, and no person can be asked while the call runs.
        """
        reply = await self.reply(params)
        if reply is None:
            raise NotAnswered(
                "No person can be asked while this call runs: the client has no on_elicitation function that "
                f"answers {str(params.get('message'))[:200]!r}."
            )
        return reply


def _question_of(params: Mapping[str, Any], data: Any = None) -> ToolQuestion:
    """Return the question of an elicitation, with data to keep beside it."""
    schema: object = params.get("requestedSchema")
    return ToolQuestion(
        message=str(params.get("message") or ""),
        schema=cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else None,
        url=params.get("url"),
        data=data,
    )


def _reply_of(answer: ToolAnswer) -> dict[str, Any]:
    """Return an answer in the form of the protocol."""
    if not answer.approved:
        return {"action": "decline"}
    content = {} if answer.content is None else {"content": dict(answer.content)}
    return {"action": "accept", **content}


def is_unfinished(result: Mapping[str, Any]) -> bool:
    """Whether the server needs answers before it can give the result."""
    return result.get("resultType") == "input_required"


@dataclass(slots=True)
class InputRound:
    """The requests of a server that needs answers to finish a call, and the answers so far."""

    requests: dict[str, Mapping[str, Any]]
    """The requests without an answer, by the server's names for them."""
    replies: dict[str, Mapping[str, Any]] = field(default_factory=lambda: {})
    state: str | None = None
    """Text of the server that goes back to it unchanged."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> InputRound:
        """Return the requests of an unfinished result."""
        return cls(dict(result.get("inputRequests") or {}), state=result.get("requestState"))

    @classmethod
    def answered(cls, answer: ToolAnswer) -> InputRound:
        """Return the round to which a person gave an answer."""
        kept: Mapping[str, Any] = answer.question.data
        requests = dict(kept["requests"])
        key = next(iter(requests))
        del requests[key]
        return cls(requests, {**kept["replies"], key: _reply_of(answer)}, kept["state"])

    async def ask(self, elicitations: Elicitations) -> ToolQuestion | None:
        """Answer the requests by the app's function; return the first question that needs a person.

        Raises:
            ToolError: the server asks for more than this client supports, or the function failed.
        """
        for key, request in list(self.requests.items()):
            if request.get("method") != "elicitation/create":
                raise ToolError(f"the server asks for {request.get('method')}, which this client does not do")
            params: Mapping[str, Any] = request.get("params") or {}
            try:
                reply = await elicitations.reply(params)
            except NotAnswered as error:
                raise ToolError(str(error)) from error
            if reply is None:
                kept = {"requests": self.requests, "replies": self.replies, "state": self.state}
                return _question_of(params, kept)
            self.replies[key] = reply
            del self.requests[key]
        return None
