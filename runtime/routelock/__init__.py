"""A provider-agnostic LLM runtime with tool-call routing.

    from routelock import Agent, Runner, handoff

    result = await Runner.run(agent, "Where is my order?")

The names that most programs need are here; the others are in the rooms, such as `routelock.handoffs`.
Importing routelock loads neither litellm nor openai; they are loaded when a model is first called.
"""

from typing import TYPE_CHECKING

from routelock._lazy import load_late
from routelock.agents.agent import Agent
from routelock.agents.hooks import AgentHooks, RunHooks
from routelock.agents.skill import Skill
from routelock.context import RunContext, ToolContext
from routelock.errors import (
    ConfigError,
    HandoffError,
    LimitExceeded,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ProviderError,
    RoutelockError,
    ToolError,
)
from routelock.guardrails import GuardrailResult
from routelock.handlers.function_handler import function_handler, handler
from routelock.handlers.port import Handler, ModelSettings, Priority, Request
from routelock.handlers.retry import Retry
from routelock.handoff_request import HandoffRequest, HandoffResponse
from routelock.handoffs.declaration import handoff
from routelock.handoffs.handoff import Handoff
from routelock.history.compaction import Compact
from routelock.history.filters import HandoffInputData, HandoffInputFilter
from routelock.history.messages import Message, RunItem
from routelock.history.nesting import nest_handoff_history
from routelock.run.config import RunConfig
from routelock.run.events import RunEvent
from routelock.run.limits import Limits
from routelock.run.records import HandoffRecord
from routelock.run.result import RunResult
from routelock.run.stream import RunHandle, RunStream
from routelock.runner import Runner
from routelock.tools.decorators import function_tool, tool
from routelock.tools.outcome import ToolResult
from routelock.tools.tool import Tool
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.state.run_state import RunState
else:  # importing `RunState` takes a fifth of the time of all other imports
    __getattr__ = load_late(__name__, {"state.run_state": "RunState"}, knows_peers=True)

__all__ = [
    "Agent",
    "AgentHooks",
    "Compact",
    "ConfigError",
    "GuardrailResult",
    "Handler",
    "Handoff",
    "HandoffError",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffRecord",
    "HandoffRequest",
    "HandoffResponse",
    "LimitExceeded",
    "Limits",
    "MaxTurnsExceeded",
    "Message",
    "ModelBehaviorError",
    "ModelSettings",
    "Priority",
    "ProviderError",
    "Request",
    "Retry",
    "RoutelockError",
    "RunConfig",
    "RunContext",
    "RunEvent",
    "RunHandle",
    "RunHooks",
    "RunItem",
    "RunResult",
    "RunState",
    "RunStream",
    "Runner",
    "Skill",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Usage",
    "function_handler",
    "function_tool",
    "handler",
    "handoff",
    "nest_handoff_history",
    "tool",
]
