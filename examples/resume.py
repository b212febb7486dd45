"""Shows a run that goes on in another process: after a question to a person, and after a limit."""

import subprocess
import sys

from routelock import Agent, MaxTurnsExceeded, Request, RunConfig, Runner, RunState, function_handler, tool
from routelock.handlers import MessageDone
from routelock.history import ToolCall
from routelock.testing import call

ASK = {"type": "function", "function": {"name": "ask_manager", "description": "Ask a person for consent."}}
SCRIPT: list[ToolCall | str] = [
    call("transfer_to_refunds", id="c1"),
    call("ask_manager", id="c2"),
    call("refund", {"order": 7}, id="c3"),
    "Paid back.",
]


@tool
def refund(order: int) -> str:
    """Pay an order back."""
    print(f"  (order {order} is paid back: this line must be there once)", flush=True)
    return "done"


async def say(request: Request) -> MessageDone | str:
    """Choose the reply by the turn, so that each process gives the right one without remembering anything."""
    said = SCRIPT[request.turn - 1]
    if isinstance(said, str):
        return said
    return MessageDone(message={"role": "assistant", "content": None, "tool_calls": [said]})


def team() -> Agent:
    """Return the agents; every process makes its own."""
    model = function_handler(say, name="model")
    return Agent("Triage", model=model, handoffs=[Agent("Refunds", model=model, tools=[refund])])


def step(text: str) -> str:
    """Go as far as one process gets, and return the state as text."""
    settings = RunConfig(external_tools=[ASK])
    state = RunState.from_json(text, agents=[team()]) if text else None
    if state is not None and state.pending:
        print(f"  a person is asked: {state.pending[0]['function']['name']}")
        answer = {"role": "tool", "tool_call_id": state.pending[0]["id"], "content": "Yes, pay."}
        state = state.with_answers([answer])
    try:
        most = 3 if state is None or state.turn < 3 else 10
        result = Runner.run_sync(team(), state or "My lamp broke.", max_turns=most, run_config=settings)
    except MaxTurnsExceeded as error:
        result = error.result
    now = result.state()
    print(f"  {now.status}: {now.agent}, turn {now.turn}, {result.final_output or now.error}")
    return now.to_json()


if __name__ == "__main__" and "--step" in sys.argv:
    text = step(sys.stdin.read())
    print(text, file=sys.stderr)
elif __name__ == "__main__":
    text = ""  # only one process may take a state, as with these pipes: two runs of it would pay back twice
    for number in (1, 2, 3):
        print(f"Process {number}, given {len(text)} characters:", flush=True)
        done = subprocess.run(
            [sys.executable, __file__, "--step"], input=text, stderr=subprocess.PIPE, text=True, check=True
        )
        text = done.stderr.strip()
