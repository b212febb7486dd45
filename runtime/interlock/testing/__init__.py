"""What tests of agents need: a scripted model, cassettes, two fences, and a check of histories.

Nothing here is imported by the rest of interlock. Cassettes need the extra ``interlock[testing]``.
"""

from __future__ import annotations

from interlock.errors import CassetteMiss
from interlock.repair import problems
from interlock.testing.cassette import Cassette, UnplayedInteractions, use_cassette
from interlock.testing.fence import ModelCallBlocked, no_models
from interlock.testing.network import NetworkBlocked, no_network
from interlock.testing.profiles import PROFILES, Profile
from interlock.testing.scripted import (
    ScriptedHandler,
    ScriptedReply,
    UnexpectedModelCall,
    UnusedReplies,
    call,
    reply,
    watch_requests,
)
from interlock.testing.validity import assert_valid, refusals

__all__ = [
    "PROFILES",
    "Cassette",
    "CassetteMiss",
    "ModelCallBlocked",
    "NetworkBlocked",
    "Profile",
    "ScriptedHandler",
    "ScriptedReply",
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
    "watch_requests",
]
