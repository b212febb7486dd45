"""Shows an agent and a page that speaks AG-UI: a tool of the page, and a payment that its user approves."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from routelock import Agent, tool
from routelock.serving import AGUI, ServeConfig, create_app
from routelock.testing import ScriptedHandler, call

LOCATE = {"name": "locate", "description": "Where the user is."}


@tool(needs_approval=True)
def refund(amount: int) -> str:
    """Pay an amount back."""
    return f"{amount} EUR are on their way"


script = ScriptedHandler([call("locate"), call("refund", {"amount": 40}), "Your money comes to Oslo."])
desk = Agent("desk", "You help with orders.", model=script, tools=[refund])


@asynccontextmanager
async def served(agent: Agent) -> AsyncGenerator[str]:
    """Serve an agent as long as the block lasts, and yield its URL, as `routelock serve --ag-ui` does."""
    app = create_app(agent, ServeConfig(ag_ui=AGUI(approvals=True)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/ag-ui/{agent.name}"
        server.should_exit = True
        await serving


async def run(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask for a run, print what it shows, and return its outcome. A real page uses `@ag-ui/client`."""
    body = {"threadId": "chat", "runId": "run", "protocolVersion": "1.0", "tools": [LOCATE], **body}
    outcome: dict[str, Any] = {}
    async with client.stream("POST", url, json=body) as response:
        async for line in response.aiter_lines():
            event: dict[str, Any] = json.loads(line.removeprefix("data: ") or "{}")
            if "delta" in event and event["type"] == "TEXT_MESSAGE_CONTENT":
                print(event["delta"], end="", flush=True)
            elif "toolCallName" in event:
                print("the agent calls:", event["toolCallName"])
            elif "content" in event:
                print("the result:", event["content"])
            outcome = event.get("outcome", outcome)
    return outcome


async def main() -> None:
    """Say something, run the tool of the page, and approve the payment."""
    async with served(desk) as url, httpx.AsyncClient() as client:
        messages: list[dict[str, Any]] = [{"id": "1", "role": "user", "content": "My money back!"}]
        outcome = await run(client, url, {"messages": messages})
        for call_id in outcome["pendingToolCallIds"]:
            messages.append({"id": "2", "role": "tool", "toolCallId": call_id, "content": "Oslo"})
        outcome = await run(client, url, {"messages": messages})
        for interrupt in outcome["interrupts"]:
            print("the user says yes to:", interrupt["message"])
        resume = [
            {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
            for interrupt in outcome["interrupts"]
        ]
        await run(client, url, {"messages": messages, "resume": resume})
    print()


if __name__ == "__main__":
    asyncio.run(main())
