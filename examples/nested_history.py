"""Shows nested history: the next agent gets one summary of what came before, and the last question."""

from routelock import Agent, Runner, function_tool, handoff
from routelock.testing import ScriptedHandler, call


@function_tool
def device_of(customer: str) -> str:
    """Say which device a customer has."""
    return "Hub One, firmware 2.3"


technician = Agent("Technician", model=ScriptedHandler(["Hold the button for ten seconds, please."]))
triage = Agent(
    "Triage",
    model=ScriptedHandler([call("device_of", {"customer": "Ada"}), call("transfer_to_technician")]),
    tools=[device_of],
    handoffs=[handoff(technician, nest_handoff_history=True)],
)

result = Runner.run_sync(
    triage,
    [
        {"role": "user", "content": "Hello, this is Ada."},
        {"role": "assistant", "content": "Hello Ada! What can I do for you?"},
        {"role": "user", "content": "My hub blinks amber."},
    ],
)
for message in result.calls[-1].messages:
    print(f"[{message['role']}]\n{message.get('content')}\n")
print(f"{result.last_agent.name} answers: {result.final_output}")
# The summary is only what is shown. The transcript keeps every message, so nothing is lost:
print(f"{len(result.items)} messages in the transcript.")
