"""Shows an agent that OpenAI's client calls by the Responses API: a stream, a tool of the client, and ids."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from openai import AsyncOpenAI
from openai.types.responses import FunctionToolParam, ResponseInputParam

from routelock import Agent
from routelock.serving import create_app
from routelock.testing import ScriptedHandler, call

script = ScriptedHandler([call("locate", {}), "You are in Oslo, so it comes on Monday.", "You are welcome."])
desk = Agent("desk", "You help with orders.", model=script)
LOCATE: FunctionToolParam = {
    "type": "function",
    "name": "locate",
    "description": "Where the user is.",
    "strict": True,
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}


@asynccontextmanager
async def served(agent: Agent) -> AsyncGenerator[str]:
    """Serve an agent as long as the block lasts, and yield the URL; `routelock serve` does the same."""
    server = uvicorn.Server(uvicorn.Config(create_app(agent), log_level="error", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server.should_exit = True
        await serving


async def main() -> None:
    """Ask, run the tool that the agent calls, and go on from each response."""
    async with served(desk) as url, AsyncOpenAI(base_url=url, api_key="none") as client:
        first = await client.responses.create(model="desk", input="When does it come?", tools=[LOCATE])
        print("the agent calls:", *[item.name for item in first.output if item.type == "function_call"])
        results: ResponseInputParam = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "Oslo"}
            for item in first.output
            if item.type == "function_call"
        ]
        async with client.responses.stream(
            model="desk", input=results, tools=[LOCATE], previous_response_id=first.id
        ) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    print(event.delta, end="", flush=True)
            second = await stream.get_final_response()
        third = await client.responses.create(model="desk", input="Thanks!", previous_response_id=second.id)
        print("\n" + third.output_text)
    print(f"the last time the model saw {len(script.requests[-1].messages)} messages")


if __name__ == "__main__":
    asyncio.run(main())
