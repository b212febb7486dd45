"""Where each call of a model leads: to a tool, a handoff, the caller, or nothing.

Routing is a lookup of the call's name among exactly what was offered in that very turn. Text is never
searched for markers, and a name that was not offered is answered, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anyio import CancelScope

from routelock.agents.offer import OfferedTools, Route
from routelock.context import RunContext, ToolContext
from routelock.errors import RoutelockError
from routelock.guardrails import GuardrailRecord
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.history.messages import ToolCall
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.tools.approvals import Interruption
from routelock.tools.outcome import ToolOutcome
from routelock.tools.questions import ToolAnswer
from routelock.tools.tool import Tool

__all__ = ["MOST_CALLS", "NOT_TAKEN", "Result", "RoutedCall", "RoutedCalls"]

MOST_CALLS = 1000
"""The number of calls of one reply that are looked at; a model that makes more is broken or hostile."""

NOT_TAKEN = "Multiple handoffs detected, ignoring this one."

_REFUSED = "Several transfers were asked for at once, so none was made. Ask for exactly one."


@dataclass(slots=True)
class Result:
    """The result of a call: the text that answers it, and what follows from it for the run."""

    text: str
    error: str | None = None
    is_mistake: bool = False
    """Whether it is the model's mistake, not the tool's."""
    problem: Literal["unknown_tool", "bad_arguments", "tool", "handoff"] | None = None
    """The kind of problem to note on the run's result."""
    exception: BaseException | None = None
    media: Sequence[Mapping[str, Any]] = ()
    stop: RoutelockError | None = None
    """The error that ends the run once everything is recorded."""


class RoutedCall:
    """One call of a reply, from its route to its result.

    A call that waits for approval is held; any other call is free. A free call of a tool runs and gets an
    outcome. Every call that is not held gets a result.
    """

    __slots__ = (
        "answer",
        "arguments",
        "asks_handoff",
        "attempt",
        "guardrails",
        "id",
        "is_held",
        "is_skipped",
        "kind",
        "name",
        "outcome",
        "result",
        "scope",
        "tool",
        "tool_call",
    )

    def __init__(self, call: ToolCall, route: Route | None) -> None:
        function = call["function"]
        self.tool_call: ToolCall = call
        self.id: str = call["id"]
        self.name: str = function.get("name") or ""
        self.arguments: str = function.get("arguments") or ""
        self.is_held: bool = False
        """Whether the call waits for approval: it has no result then."""
        self.is_skipped: bool = False
        """Whether another call ended the run before this one could start."""
        self.scope: CancelScope | None = None
        """Set while the call is running beside others."""
        self.outcome: ToolOutcome | None = None
        self.result: Result | None = None
        self.answer: ToolAnswer | None = None
        """The answer to the question that the tool asked when the call was made before."""
        self.guardrails: list[GuardrailRecord] | None = None
        """What the guardrails of the tool have found so far; None without guardrails."""
        self.asks_handoff: bool = False
        """Whether there is a handoff for the turn to decide."""
        self.attempt: HandoffAttempt
        """The handoff that the model or the tool asks for; not set unless ``asks_handoff``."""
        self.tool: Tool
        """What a call of kind ``"tool"`` runs; not set for others."""
        self.kind: Literal["tool", "handoff", "external", "unknown"] = "unknown"
        if isinstance(route, Tool):
            self.kind, self.tool = "tool", route
            if route.input_guardrails or route.output_guardrails:
                self.guardrails = []
        elif isinstance(route, Handoff):
            self.kind = "handoff"
            self.ask_handoff(route)
        elif route is not None:
            self.kind = "external"

    @property
    def is_open(self) -> bool:
        """Whether the call neither has a result nor waits for approval."""
        return self.result is None and not self.is_held

    def ask_handoff(self, handoff: Handoff, request: HandoffRequest | None = None) -> None:
        """Ask for a handoff: by the model, or by the tool that has run and returned a request."""
        self.attempt, self.asks_handoff = HandoffAttempt(self.tool_call, handoff, request), True

    def context(self, moment: RunContext[Any]) -> ToolContext[Any]:
        """Return the context of the call for functions of the app, as of a moment of the run."""
        return ToolContext.of(
            moment,
            tool_name=self.name,
            tool_call_id=self.id,
            tool_arguments=self.arguments,
            answer=self.answer,
        )

    def refuse(self, text: str, error: str = "declined") -> None:
        """Answer the call instead of making it."""
        self.result = Result(text, error, is_mistake=error != "declined")


class RoutedCalls:
    """The calls of one reply in their order, and the handoff that is chosen among them.

    Args:
        calls: the calls of the reply; those beyond `MOST_CALLS` lead nowhere.
        offered: what each name leads to.
    """

    __slots__ = (
        "calls",
        "external",
        "handoff_call",
        "handoffs",
        "offered",
        "refused",
        "skipped",
        "tools",
        "unknown",
        "unknown_targets",
        "waiting",
    )

    def __init__(self, calls: Sequence[ToolCall], offered: OfferedTools) -> None:
        self.offered: OfferedTools = offered
        self.calls: list[RoutedCall] = []
        self.tools: list[RoutedCall] = []
        self.handoffs: list[RoutedCall] = []
        """Calls of transfer tools."""
        self.external: list[RoutedCall] = []
        """Calls of the caller's own tools; the run ends with them, and the caller answers them."""
        self.unknown: list[RoutedCall] = []
        """Calls of names that were not offered."""
        self.waiting: list[Interruption] = []
        """The calls that wait for approval."""
        self.handoff_call: RoutedCall | None = None
        """The call with the handoff that the turn tries."""
        self.skipped: Sequence[RoutedCall] = ()
        """The handoffs that are answered and not tried."""
        self.refused: Sequence[RoutedCall] = ()
        """The chosen handoff, if it was not approved or is disabled by now."""
        self.unknown_targets: list[RoutedCall] = []
        """Handoffs by tools to a target that the run does not have; another handoff may still be tried."""
        for place, each in enumerate(calls):
            name = each["function"].get("name") or ""
            route = offered.routes.get(name)
            if route is None and offered.deferral is not None:
                # it need not have been found: the model may know it from its history
                route = offered.deferral.route(name, offered.scopes)
            call = RoutedCall(each, route if place < MOST_CALLS else None)
            self.calls.append(call)
            if call.kind == "tool":
                self.tools.append(call)
            elif call.kind == "handoff":
                self.handoffs.append(call)
            else:
                (self.external if call.kind == "external" else self.unknown).append(call)

    def choose(self, multiple: Literal["first", "reject"]) -> None:
        """Choose the handoff that the turn tries, see ``RunConfig.multiple_handoffs``."""
        handoffs = [call for call in self.calls if call.asks_handoff and call not in self.unknown_targets]
        several = len(handoffs) > 1 and multiple == "reject"
        if handoffs:
            self.handoff_call, self.skipped = (None, handoffs) if several else (handoffs[0], handoffs[1:])
        for call in self.skipped:
            call.attempt.skip(_REFUSED if several else NOT_TAKEN)

    def skip_handoff(self, call: RoutedCall, why: str) -> None:
        """Do not try the chosen handoff after all."""
        call.attempt.skip(why)
        self.skipped, self.handoff_call = (call, *self.skipped), None

    def refuse_handoff(self, call: RoutedCall, why: str, error: str) -> None:
        """Answer the chosen handoff, which was not approved or is disabled by now."""
        call.attempt.skip(why)
        call.result = Result(why, error, problem=None if error == "declined" else "handoff")
        self.refused, self.handoff_call = (call,), None
