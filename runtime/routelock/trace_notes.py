"""What there is in a run, as it is written in a trace."""

from __future__ import annotations

from typing import Any

from routelock._callables import words_of
from routelock.agents.agent import Agent
from routelock.handoffs.handoff import Handoff
from routelock.run.config import RunConfig
from routelock.run.handler_selection import lineup
from routelock.run.result import HandoffRecord, Problem
from routelock.tools.agent_tool import AgentCall
from routelock.trace_records import AgentTraced, EdgeTraced, ErrorTraced, HandoffTraced, ProblemTraced

__all__ = ["agent_traced", "error_traced", "handoff_traced", "problem_traced"]


def error_traced(error: BaseException | None) -> ErrorTraced | None:
    """Return an exception as it is written."""
    return None if error is None else ErrorTraced(type=type(error).__name__, message=words_of(error))


def agent_traced(agent: Agent[Any], config: RunConfig) -> AgentTraced:
    """Return an agent as it is written, with the handlers that the run may reach."""
    asked = [(tool.name, tool.on_invoke_tool) for tool in agent.all_tools]
    return AgentTraced(
        name=agent.name,
        description=agent.handoff_description or "",
        handlers=[each.name for each in lineup(agent, config)],
        tools=[name for name, _ in asked],
        agent_tools={name: how.agent.name for name, how in asked if isinstance(how, AgentCall)},
        handoffs=[_edge(edge) for edge in agent.edges],
    )


def _edge(edge: Handoff) -> EdgeTraced:
    return EdgeTraced(
        tool_name=edge.tool_name,
        target=edge.agent_name,
        others=[other if isinstance(other, str) else other.name for other in edge.others],
        to_handler=edge.to_handler is not None,
        returns=edge.return_to_caller,
    )


def handoff_traced(run_id: str, now: float, record: HandoffRecord) -> HandoffTraced:
    """Return a transfer as it stands."""
    return HandoffTraced(
        run=run_id,
        time=now,
        id=record.id,
        source=record.source,
        target=record.target,
        tool_name=record.tool_name,
        call_id=record.call_id,
        turn=record.turn,
        status=record.status.value,
        tried=record.tried,
        requested_by=record.requested_by,
        reason=record.reason,
        input=record.input,
        error=record.error,
        passed_over=[*record.passed_over],
        parent_id=record.parent_id,
        depth=record.depth,
        started=record.started,
        ended=record.ended,
        usage=record.usage,
    )


def problem_traced(run_id: str, now: float, problem: Problem) -> ProblemTraced:
    """Return a problem as it is written."""
    return ProblemTraced(
        run=run_id,
        time=now,
        kind=problem.kind,
        agent=problem.agent,
        turn=problem.turn,
        message=problem.message,
        call_id=problem.call_id,
        error=error_traced(problem.error),
    )
