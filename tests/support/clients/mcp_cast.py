"""The agents that clients of MCP call as tools."""

from __future__ import annotations

import json
from typing import Any

from clients.a2a_cast import clerk, payer
from clients.cast import Log, Plays, broken, desk, endless, greeter, polyglot

from routelock import Agent


def mcp_agents() -> list[Agent[Any]]:
    """All of them; the first one is the greeter. The teller says what has happened on the server."""
    log, paid = Log(), list[int]()
    told = Plays("teller", lambda _: json.dumps({"cancelled": log.cancelled, "paid": paid}))
    return [
        greeter(),
        desk(log),
        polyglot(),
        broken(),
        endless(log),
        clerk(),
        payer(paid),
        Agent("teller", model=told),
    ]
