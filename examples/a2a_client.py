"""Shows an agent that a client of A2A, the Agent2Agent protocol, calls: `routelock[a2a]`."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from a2a.client import create_client
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types import Role, SendMessageRequest

from routelock import Agent
from routelock.serving import A2A, ServeConfig, create_app
from routelock.testing import ScriptedHandler

script = ScriptedHandler(["Which order is it?", "Order 7 left on Monday."])
desk = Agent("desk", "You help with orders.", model=script, handoff_description="Knows where orders are.")


@asynccontextmanager
async def served(agent: Agent) -> AsyncGenerator[str]:
    """Serve an agent as long as the block lasts, and yield the URL; `routelock serve --a2a` does the same."""
    app = create_app(agent, ServeConfig(a2a=A2A()))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


async def main() -> None:
    """Ask twice in one context; the agent knows the first question when it answers the second."""
    async with served(desk) as url, await create_client(url) as client:
        context = None
        for words in ("Where is my order?", "Number 7."):
            print("client:", words)
            message = new_text_message(words, context_id=context, role=Role.ROLE_USER)
            async for event in client.send_message(SendMessageRequest(message=message)):
                if event.HasField("task"):
                    context = event.task.context_id
                elif event.HasField("artifact_update") and event.artifact_update.last_chunk:
                    print("desk:", get_stream_response_text(event))
    print(f"the second time the model saw {len(script.requests[1].messages)} messages")


if __name__ == "__main__":
    asyncio.run(main())
