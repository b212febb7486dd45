"""Shows a run that is stopped after its turn, when every call has its result, and goes on from its state."""

from routelock import Agent, RunHandle, Runner, RunState, function_tool
from routelock.testing import ScriptedHandler, call

handle = RunHandle()


@function_tool
def copy_file(name: str) -> str:
    """Copy a file; the user presses "stop" during the second."""
    if name == "b.txt":
        handle.stop(after="turn")
    return f"{name} is copied"


calls = [
    [call("copy_file", {"name": "a.txt"})],
    [call("copy_file", {"name": each}) for each in ("b.txt", "c.txt")],
]
clerk = Agent("Clerk", model=ScriptedHandler([*calls, "All files are copied."]), tools=[copy_file])

stopped = Runner.run_sync(clerk, "Copy my files.", handle=handle)
print(f"{stopped.stop_reason} after {len(stopped.calls)} model calls; no call is left open:")
for message in stopped.messages:
    if message["role"] == "tool":
        print(" ", message.get("content"))

text = stopped.state().to_json()  # any process can go on with it
done = Runner.run_sync(clerk, RunState.from_json(text, agents=[clerk]))
print(f"{done.stop_reason}: {done.final_output}")
