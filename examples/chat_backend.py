"""Shows a chat backend with server-sent events, and a client that leaves, comes back and meets an error."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from routelock import Agent, Request, RunConfig, Runner, handler
from routelock.errors import ProviderError, RoutelockError, SessionConflict
from routelock.handlers import TextDelta
from routelock.sessions import Session, SQLiteSessions

CHATS = SQLiteSessions("backend.db")
LINES: list[str | ProviderError] = ["One two three four five six.", "Seven.", ProviderError("No key sk-123.")]


@handler
async def counter(request: Request) -> AsyncGenerator[str]:
    """Answer in small pieces, as a model would."""
    line = LINES.pop(0)
    if isinstance(line, ProviderError):
        raise line
    for word in line.split():
        yield f"{word} "
        await asyncio.sleep(0.05)


DESK = Agent("desk", model=counter)


def sse(kind: str, value: object) -> str:
    """Return a server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


async def answer(user: str, text: str) -> AsyncIterator[str]:
    """Answer a message. If the client leaves, the run ends, and what was said is in the session."""
    try:
        config = RunConfig(timeout=60)
        async with Runner.run_streamed(DESK, text, session=Session(user, CHATS), run_config=config) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    yield sse("text", event.text)
        yield sse("done", stream.result.final_output)
    except SessionConflict:
        yield sse("error", "Another message of yours came in between.")
    except RoutelockError:  # its text is for the log: it may quote what a server said
        yield sse("error", "Nobody can answer just now. Please try again.")


async def chat(request: HttpRequest) -> StreamingResponse:
    """POST /ann with a text: events."""
    text = (await request.body()).decode()
    return StreamingResponse(answer(request.path_params["user"], text), media_type="text/event-stream")


async def shown(request: HttpRequest) -> JSONResponse:
    """GET /ann: the conversation, for a page that is opened again."""
    kept = (await Session(request.path_params["user"], CHATS).load()).messages
    return JSONResponse([f"{each['role']}: {each.get('content')}" for each in kept])


async def ask(http: aiohttp.ClientSession, text: str, pieces: int = 99) -> None:
    """Play the client: read some events, and leave."""
    print(f"ann: {text}\n ", end="")
    async with http.post("/ann", data=text) as reply:
        async for line in reply.content:
            if line.startswith(b"data:"):
                print(line[6:-1].decode(), end=" ")
                pieces -= 1
            if pieces == 0:
                break  # the connection is closed with the block
    print()


async def main() -> None:
    """Serve, and be the client."""
    ways = [Route("/{user}", chat, methods=["POST"]), Route("/{user}", shown)]
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=ways), log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as http:
        await ask(http, "Count!", pieces=3)
        await asyncio.sleep(0.3)
        async with http.get("/ann") as page:
            print("the page again:", await page.json())
        await ask(http, "Go on.")
        await ask(http, "And now?")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
