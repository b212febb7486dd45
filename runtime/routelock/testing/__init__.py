"""Tools for tests of agents: a scripted model, cassettes, two guards, and a check of messages.

It imports `handlers` and `history`; in routelock only the command line imports it. Cassettes need the extra
``routelock[testing]``. Start at `scripted.py`.
"""

from __future__ import annotations

from routelock.errors import CassetteMiss
from routelock.history.validity import problems
from routelock.testing.cassette import Cassette, RecordMode, UnplayedInteractions, use_cassette
from routelock.testing.executor_contract import (
    DurableExecutorContract,
    ExecutorContract,
    StreamingExecutorContract,
)
from routelock.testing.guards import ModelCallBlocked, NetworkBlocked, no_models, no_network
from routelock.testing.profiles import PROFILES, Profile
from routelock.testing.respx_mock import use_respx
from routelock.testing.scripted import (
    ScriptedHandler,
    ScriptedReply,
    UnexpectedModelCall,
    UnusedReplies,
    call,
    reply,
    watch_requests,
)
from routelock.testing.validity import assert_valid, refusals

__all__ = [
    "PROFILES",
    "Cassette",
    "CassetteMiss",
    "DurableExecutorContract",
    "ExecutorContract",
    "ModelCallBlocked",
    "NetworkBlocked",
    "Profile",
    "RecordMode",
    "ScriptedHandler",
    "ScriptedReply",
    "StreamingExecutorContract",
    "UnexpectedModelCall",
    "UnplayedInteractions",
    "UnusedReplies",
    "assert_valid",
    "call",
    "no_models",
    "no_network",
    "problems",
    "refusals",
    "reply",
    "use_cassette",
    "use_respx",
    "watch_requests",
]
