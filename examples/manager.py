"""Shows the manager pattern: an editor calls a researcher and a writer as tools, and a stream shows them."""

import anyio

from routelock import Agent, Runner, function_tool
from routelock.handlers import MessageDone, TextDelta
from routelock.run import NestedEvent, ToolCalled
from routelock.testing import ScriptedHandler, call


@function_tool
def height(mountain: str) -> int:
    """Return the height of a mountain in metres."""
    return {"Denali": 6190, "Elbrus": 5642}[mountain]


look_up = [call("height", {"mountain": "Denali"}), call("height", {"mountain": "Elbrus"})]
researcher = Agent(
    "Researcher", model=ScriptedHandler([look_up, "Denali 6190 m, Elbrus 5642 m."]), tools=[height]
)
writer = Agent("Writer", model=ScriptedHandler(["Denali looks down on Elbrus, by 548 m."]))

asks = call("researcher", {"input": "How high are Denali and Elbrus?"})
then = call("writer", {"input": "One sentence about it: Denali 6190 m, Elbrus 5642 m."})
model = ScriptedHandler([asks, then, "Denali is higher, by 548 m."])
editor = Agent("Editor", model=model, tools=[researcher.as_tool(), writer.as_tool(max_turns=1)])


async def main() -> None:
    """Print who does what, while it happens."""
    async with Runner.run_streamed(editor, "Denali or Elbrus?") as stream:
        async for event in stream:
            path, inner = (
                (event.path, event.event) if isinstance(event, NestedEvent) else (("Editor",), event)
            )
            match inner:
                case ToolCalled(name=name, arguments=arguments):
                    print(f"{' > '.join(path)} calls {name}({arguments})")
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case MessageDone(message={"content": str()}):
                    print(f"   ({' > '.join(path)})")
                case _:
                    pass
    print({name: usage.requests for name, usage in stream.result.usage_by_agent.items()})


anyio.run(main)
