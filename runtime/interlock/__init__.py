"""A provider-agnostic LLM runtime with tool-call routing.

    from interlock import Agent, Runner, handoff

    result = await Runner.run(agent, "Where is my order?")

Importing interlock loads neither litellm nor openai; they are loaded when a model is first called.
"""

from typing import TYPE_CHECKING, Any

from interlock.agents import Agent, Handoff
from interlock.attempts import Retry
from interlock.config import RunConfig
from interlock.context import RunContext, ToolContext
from interlock.edges import handoff
from interlock.errors import (
    ConfigError,
    HandoffError,
    InterlockError,
    LimitExceeded,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ProviderError,
    ToolError,
)
from interlock.filters import HandoffInputData, HandoffInputFilter
from interlock.function_tools import function_tool, tool
from interlock.guardrails import GuardrailResult
from interlock.handlers import function_handler, handler
from interlock.handoff_request import HandoffRequest
from interlock.history import nest_handoff_history
from interlock.hooks import AgentHooks, RunHooks
from interlock.messages import Message, RunItem
from interlock.port import Handler, ModelSettings, Request
from interlock.results import HandoffRecord, RunEvent, RunResult
from interlock.run_stream import RunHandle, RunStream
from interlock.runner import Runner
from interlock.skills import Skill
from interlock.tools import Tool
from interlock.usage import Usage

if TYPE_CHECKING:
    from interlock.run_state import RunState

__all__ = [
    "Agent",
    "AgentHooks",
    "ConfigError",
    "GuardrailResult",
    "Handler",
    "Handoff",
    "HandoffError",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffRecord",
    "HandoffRequest",
    "InterlockError",
    "LimitExceeded",
    "MaxTurnsExceeded",
    "Message",
    "ModelBehaviorError",
    "ModelSettings",
    "ProviderError",
    "Request",
    "Retry",
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
    "Usage",
    "function_handler",
    "function_tool",
    "handler",
    "handoff",
    "nest_handoff_history",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Load what few programs need: what a `RunState` is made of takes a fifth of the time of all the rest."""
    if name == "RunState":
        from interlock.run_state import RunState  # noqa: PLC0415

        return RunState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
