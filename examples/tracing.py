"""Shows a trace: what each agent saw of the conversation, what was hidden from it, and what it cost."""

from tempfile import TemporaryDirectory

from routelock import Agent, RunConfig, Runner, Usage, function_tool, handoff
from routelock.history import remove_all_tools
from routelock.testing import ScriptedHandler, call, reply
from routelock.tracing import TracedRun, numbers, read_trace


@function_tool
def find_order(customer: str) -> str:
    """Find a customer's last order."""
    return f"{customer} ordered a lamp, number 7"


model = ScriptedHandler(
    [
        reply(
            calls=[call("find_order", {"customer": "Ada"})],
            usage=Usage(requests=1, input_tokens=90, cost=0.001),
        ),
        reply(calls=[call("transfer_to_refunds")], usage=Usage(requests=1, input_tokens=120, cost=0.002)),
        reply("The lamp is refunded.", usage=Usage(requests=1, input_tokens=60, cost=0.003)),
    ]
)
refunds = Agent("refunds", "You refund.", model=model)
triage = Agent(
    "triage",
    "You route.",
    model=model,
    tools=[find_order],
    handoffs=[handoff(refunds, input_filter=remove_all_tools)],
)


def show(run: TracedRun) -> None:
    """Print what a trace says about each model call."""
    for each in run.calls:
        print(f"{each.start.agent} was shown:")
        for item in each.items:
            print(f"  {item.id:>2} {item.kind:<7} {item.message.get('content') or '(calls)'}")
        for number in numbers(each.start.removed):
            print(f"  {number:>2} removed")


with TemporaryDirectory() as folder:
    path = f"{folder}/runs.jsonl"
    result = Runner.run_sync(triage, "I am Ada. Money back, please.", run_config=RunConfig(trace=path))
    show(read_trace(path).runs[0])

for (source, target), used in result.usage_by_edge.items():
    print(f"behind {source} -> {target}: {used.total_tokens} tokens, {used.cost} dollars")
