"""Tools: functions that a model may call.

A `Tool` has a name, a schema and a function; `@tool` makes one from a function. The arguments of a call are
checked against the schema before the function runs. Approvals, the search of tools and the tools that a
vendor runs (`VendorTool`) are in this room too. It imports `handlers` and the rooms below it. Start at
`tool.py`.
"""

from __future__ import annotations

from routelock.tools.approvals import Approvals, Decision, Interruption, NeedsApproval
from routelock.tools.decorators import function_tool, tool
from routelock.tools.outcome import ToolOutcome, ToolResult
from routelock.tools.questions import ToolAnswer, ToolQuestion
from routelock.tools.search import RankTools, SearchedTool, ToolSearch
from routelock.tools.tool import FunctionTool, IsEnabled, OnError, Tool
from routelock.tools.vendor_tool import VendorTool

__all__ = [
    "Approvals",
    "Decision",
    "FunctionTool",
    "Interruption",
    "IsEnabled",
    "NeedsApproval",
    "OnError",
    "RankTools",
    "SearchedTool",
    "Tool",
    "ToolAnswer",
    "ToolOutcome",
    "ToolQuestion",
    "ToolResult",
    "ToolSearch",
    "VendorTool",
    "function_tool",
    "tool",
]
