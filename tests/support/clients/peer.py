"""One of two served processes whose agents hand over to those of the other.

usage: peer.py LISTENER PEER_URL    LISTENER is the number of an open socket that listens already
"""

from __future__ import annotations

import socket
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import anyio
import uvicorn
from clients.cast import Plays, asked
from clients.served import KEY, PATIENCE

from routelock import Agent
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.serving import ServeConfig, create_app
from routelock.testing import call, reply
from routelock.testing.scripted import Reply
from routelock_providers.remote.agent import RemoteAgent

MAX_HOPS = 3
OPENING, PASSING, REST = "The specialist ", "Passing you on.", "is here."


def agents(peer: str) -> list[Agent[Any]]:
    """What each of the two serves."""
    gates: dict[str, anyio.Event] = defaultdict(anyio.Event)
    begun: list[str] = []

    async def specialist(request: Request) -> AsyncIterator[HandlerEvent]:
        """Says its first words at once, and the rest when the gate for the user's words is open."""
        begun.append(asked(request))
        yield TextDelta(OPENING)
        await gates[asked(request)].wait()
        yield TextDelta(REST)
        yield MessageDone(message={"role": "assistant", "content": OPENING + REST}, finish_reason="stop")

    def gate(request: Request) -> Reply:
        gates[asked(request)].set()
        return "open"

    def circle(request: Request) -> Reply:
        begun.append(asked(request))
        return call("transfer_to_circle_there")

    def carousel(request: Request) -> Reply:
        begun.append(asked(request))
        return reply(PASSING, calls=[call("transfer_to_carousel_there")])

    return [
        Agent("specialist", model=Plays("specialist", specialist)),
        Agent("gate", model=Plays("gate", gate)),
        Agent("begun", model=Plays("begun", lambda request: str(begun.count(asked(request))))),
        _passes_on("desk", "specialist", peer),
        _passes_on("relay", "desk", peer),
        Agent("circle", model=Plays("circle", circle), handoffs=[_there("circle", peer)]),
        Agent("carousel", model=Plays("carousel", carousel), handoffs=[_there("carousel", peer)]),
    ]


def _there(agent: str, peer: str) -> RemoteAgent:
    return RemoteAgent(peer, model=agent, name=f"{agent}_there", api_key=KEY)


def _passes_on(name: str, target: str, peer: str) -> Agent[Any]:
    def part(request: Request) -> Reply:
        return reply(PASSING, calls=[call(f"transfer_to_{target}_there")])

    return Agent(name, model=Plays(name, part), handoffs=[_there(target, peer)])


def main() -> None:
    listener, peer = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    # nothing takes that long; a test that waits for what never comes is to fail, not to hang
    settings = ServeConfig(api_keys=[KEY], max_hops=MAX_HOPS, timeout=PATIENCE / 2)
    app = create_app(agents(peer), settings)
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
