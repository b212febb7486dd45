"""The messages of a run, and the part of them that the next model call is shown.

The transcript has all messages; a `View` is the part that one agent sees. Filters, nested summaries and notes
make views, and `repair` makes any list of messages valid for a provider. This room imports only the modules
at the top of `routelock`. Start at `messages.py`, then `view.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late
from routelock.history.compaction import Compact, SummaryFunction
from routelock.history.filters import (
    HandoffInputData,
    HandoffInputFilter,
    compose,
    keep_last,
    last_user_message,
    remove_all_tools,
    tool_results_budget,
)
from routelock.history.input import to_messages
from routelock.history.messages import (
    FunctionCall,
    ItemKind,
    Message,
    Role,
    RunInput,
    RunItem,
    ToolCall,
    call_ids,
    calls_of,
    is_note,
    last_user_text,
    refusal_of,
    text_of,
)
from routelock.history.nesting import (
    HandoffHistoryMapper,
    default_handoff_history_mapper,
    get_conversation_history_wrappers,
    nest_handoff_history,
    reset_conversation_history_wrappers,
    set_conversation_history_wrappers,
)
from routelock.history.notes import is_of_user
from routelock.history.repair import repair
from routelock.history.validity import problems
from routelock.history.vendor_calls import Citation, VendorCall, citations_of, vendor_calls_of
from routelock.history.view import View

if TYPE_CHECKING:
    from routelock.history.binary import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "binary": "externalize_binary restore_binary",
        },
    )

__all__ = [
    "Citation",
    "Compact",
    "FunctionCall",
    "HandoffHistoryMapper",
    "HandoffInputData",
    "HandoffInputFilter",
    "ItemKind",
    "Message",
    "Role",
    "RunInput",
    "RunItem",
    "SummaryFunction",
    "ToolCall",
    "VendorCall",
    "View",
    "call_ids",
    "calls_of",
    "citations_of",
    "compose",
    "default_handoff_history_mapper",
    "externalize_binary",
    "get_conversation_history_wrappers",
    "is_note",
    "is_of_user",
    "keep_last",
    "last_user_message",
    "last_user_text",
    "nest_handoff_history",
    "problems",
    "refusal_of",
    "remove_all_tools",
    "repair",
    "reset_conversation_history_wrappers",
    "restore_binary",
    "set_conversation_history_wrappers",
    "text_of",
    "to_messages",
    "tool_results_budget",
    "vendor_calls_of",
]
