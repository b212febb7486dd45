"""A server under load, in a process of its own: what is measured, or the floor.

    python load_servers.py routelock|bare URL_OF_THE_MODEL

It prints its port. The floor is the least that stands between a client and a model: a Starlette endpoint that
reads the request, sends it on by aiohttp and sends the answer back, without keys, limits, checks or errors.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (_ROOT / "benchmarks", *(_ROOT / name for name in ("runtime", "providers", "skills")))
sys.path[:0] = [str(folder) for folder in _FOLDERS]

from speed.scene import KEY, MODEL, SPECIALIST  # noqa: E402


def routelock(url: str) -> Any:
    """Return the app of one agent, with each protocol that is served."""
    from routelock import Agent
    from routelock.serving import A2A, AGUI, MCP, ServeConfig, create_app
    from routelock_providers import OpenAICompatible

    model = OpenAICompatible(MODEL, base_url=url, api_key=KEY)
    settings = ServeConfig(max_concurrent=10_000, a2a=A2A(), ag_ui=AGUI(), mcp=MCP())
    return create_app(Agent("plain", SPECIALIST, model=model), settings)


def bare(url: str) -> Any:
    """Return the app that sends requests on."""
    import aiohttp
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    sessions: list[aiohttp.ClientSession] = []

    def session() -> aiohttp.ClientSession:
        if not sessions:  # it belongs to the event loop of the server
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        return sessions[0]

    async def pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        async with answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def chat(request: Request) -> Response:
        asked = await request.json()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        sent = json.dumps({**asked, "model": MODEL}).encode()
        answer = await session().post(f"{url}/chat/completions", data=sent, headers=headers)
        if asked.get("stream"):
            return StreamingResponse(pieces(answer), media_type="text/event-stream")
        async with answer:
            return JSONResponse(await answer.json())

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


def main(name: str, url: str) -> None:
    """Serve on a free port until the process is ended."""
    import uvicorn

    app = {"routelock": routelock, "bare": bare}[name](url)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    # else a small piece waits 40 ms for the next one; a server that opens its port itself sets this, too
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(listener.getsockname()[1], flush=True)
    gc.collect()
    gc.freeze()  # as `routelock serve` does
    if name == "routelock":  # and so do these; a bare endpoint has Python's own
        gc.set_threshold(50_000, 20, 100)
    config = uvicorn.Config(app, log_level="warning", ws="none", backlog=4096)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
