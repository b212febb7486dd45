"""Mistakes of the model: calls that cannot be made, refused handoffs again, and how they end a run."""

from __future__ import annotations

from routelock._text import clip
from routelock.agents.agent_tool import AgentCall
from routelock.agents.offer import OfferedTools
from routelock.errors import HandoffError, LoopDetected, MaxHandoffsExceeded, ModelBehaviorError
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.routing import MOST_CALLS, Result, RoutedCalls
from routelock.run.run import Run

__all__ = [
    "answer_lost",
    "answer_too_many",
    "answer_unknown",
    "check_failed_handoff",
    "failed_handoff",
    "last_mistake",
    "mistake_error",
    "unknown_tool",
]

_MISTAKES = ("unknown_tool", "bad_arguments", "handoff")

_TOO_MANY = (
    "This call was not made: the reply made {count:,} calls at once, and only the first {most:,} were "
    "considered. Make fewer calls at a time."
)

_LOST = (
    "The agent behind {name!r} had started this call and is not available any more. Its finished work is "
    "kept, and the rest was not done. Check what was done before you go on."
)

_LONGEST_LIST = 400

_SHOWN_NAME = 64

_EXPLAINED = 5


def answer_too_many(run: Run, routed: RoutedCalls) -> None:
    """Answer the calls beyond `MOST_CALLS`."""
    count = len(routed.calls)
    for call in routed.calls[MOST_CALLS:]:
        call.refuse(_TOO_MANY.format(count=count, most=MOST_CALLS), "too_many_calls")
    run.warn(f"turn {run.turn}: the reply made {count:,} calls, and {MOST_CALLS:,} were considered")


def answer_lost(run: Run, routed: RoutedCalls) -> None:
    """Answer the calls of stored sub-runs whose agent is gone."""
    for call in routed.calls[:MOST_CALLS]:
        enabled = call.kind == "tool" and call.name not in routed.offered.disabled
        if enabled and isinstance(call.tool.on_invoke_tool, AgentCall):
            continue
        if run.sub_runs.to_resume.pop(call.id, None) is not None:
            text = _LOST.format(name=clip(call.name, 80))
            run.add_problem("tool", text, call_id=call.id)
            call.kind, call.asks_handoff = "unknown", False
            call.refuse(text)
    routed.tools = [call for call in routed.tools if call.kind == "tool"]
    routed.external = [call for call in routed.external if call.kind == "external"]


def answer_unknown(run: Run, routed: RoutedCalls) -> None:
    """Answer the calls of names that were not offered, with the names that were."""
    for place, call in enumerate([call for call in routed.unknown if call.is_open]):
        text = unknown_tool(call.name, routed.offered, place)
        stop = mistake_error(run, text) if "unknown_tool" in run.config.raise_on else None
        call.result = Result(text, "unknown_tool", is_mistake=True, problem="unknown_tool", stop=stop)


def unknown_tool(name: str, offered: OfferedTools, earlier: int = 0) -> str:
    """Return the answer to a call of a name that was not offered; at most 800 characters.

    Args:
        name: the name that the model called.
        offered: the tools that it was offered.
        earlier: the number of such calls before this one in the reply. The search for similar names is slow,
            so from the sixth call on the answer is short.
    """
    shown = clip(repr(name if len(name) <= _SHOWN_NAME else name[:_SHOWN_NAME] + "..."), 3 * _SHOWN_NAME)
    if earlier >= _EXPLAINED:
        return f"There is no tool named {shown}. An answer before this one says which there are."
    names = [each for each in offered.routes if each not in offered.disabled]
    known = ", ".join(names)
    if len(known) > _LONGEST_LIST:
        known = known[:_LONGEST_LIST].rsplit(",", 1)[0] + ", ..."
    import difflib  # noqa: PLC0415 - for the few runs in which a model invents a name

    near = difflib.get_close_matches(name[:_SHOWN_NAME], names, n=1)
    available = f"Available tools: {known}." if names else "No tools are available; answer in words."
    guess = f" Did you mean {near[0]!r}?" if near else ""
    search = None if offered.deferral is None else offered.deferral.tool
    more = "" if search is None else f" Search for others with {search.name}."
    return f"There is no tool named {shown}. {available}{guess}{more}"


def last_mistake(run: Run) -> str:
    """Return the last mistake of the model in this turn; problems of hooks and limits do not count."""
    of_turn = [each for each in run.report.errors if each.turn == run.turn]
    mistakes = [each.message for each in of_turn if each.kind in _MISTAKES]
    return mistakes[-1] if mistakes else "several transfers at once"


def check_failed_handoff(run: Run, attempt: HandoffAttempt) -> None:
    """End the run if ``raise_on`` says so, or if the model repeats a request that was refused."""
    if attempt.refused_by == "arguments" and "bad_arguments" in run.config.raise_on:
        raise mistake_error(run, attempt.result_text)
    if "failed_handoff" in run.config.raise_on:
        raise failed_handoff(run, attempt)
    again = (
        f"Agent {run.frame.agent.name!r} requested the handoff again in turn {run.turn}, after it was told: "
        f"{attempt.result_text}."
    )
    if attempt.refused_by == "limit":
        run.progress.over_limit += 1
        if run.progress.over_limit > 1:
            raise MaxHandoffsExceeded(again)
    elif attempt.refused_by == "loop":
        run.progress.refused += 1
        if run.progress.refused > 1:
            raise LoopDetected(again)


def mistake_error(run: Run, mistake: str) -> ModelBehaviorError:
    """Return the error that ends a run with a mistake of the model, see ``RunConfig.raise_on``."""
    error = ModelBehaviorError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {mistake}")
    error.ends_run = True
    return error


def failed_handoff(run: Run, attempt: HandoffAttempt) -> HandoffError:
    """Return the error that ends a run with a handoff that was not made, see ``RunConfig.raise_on``."""
    error = HandoffError(f"Agent {run.frame.agent.name!r}, turn {run.turn}: {attempt.result_text}")
    error.__cause__ = attempt.exception
    return error
