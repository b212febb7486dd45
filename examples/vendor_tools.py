"""Shows a vendor's own web search: its citations, and what a model of another vendor sees of it."""

from routelock import Agent, Runner
from routelock.history import Citation, VendorCall, text_of
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import VendorTool

page = Citation(url="https://weather.example/rome", title="Rome today", start=0, end=17)
searched = VendorCall(tool="web_search", input={"query": "weather in Rome"}, sources=[page])

packing = Agent(
    "Packing",
    "Say what to pack.",
    model=ScriptedHandler(["Pack an umbrella."], name="other_vendor"),
    handoff_description="Knows what to pack.",
)
news = Agent(
    "News",
    "Answer from the web, then hand over.",
    model=ScriptedHandler(
        [
            reply(
                "It rains in Rome. Let me hand you over.",
                vendor_calls=[searched],
                citations=[page],
                calls=[call("transfer_to_packing")],
            )
        ]
    ),
    tools=[VendorTool.web_search(max_uses=2)],
    handoffs=[packing],
)

result = Runner.run_sync(news, "What do I pack for Rome?")
for item in result.new_items:
    for cited in item.citations:
        print(f"{text_of(item.message)[cited.start : cited.end]!r} is from {cited.url}")
for ran in result.vendor_calls:
    print(f"{ran.tool} was asked for {ran.input['query']!r}")
print(f"{result.last_agent.name}: {result.final_output}")
print("It was told:", text_of(result.calls[-1].messages[1]))
