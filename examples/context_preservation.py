"""Context preservation: what the next agent knows, with the conversation and without it.

python examples/context_preservation.py                            replays a recording: no network, no key
python examples/context_preservation.py --live openai/gpt-4o-mini  a model answers
"""

from recorded import play
from routelock import Agent, Handler, Message, RunConfig, Runner, handoff

shipping = Agent(
    "Shipping",
    "You say where parcels are. Order A-17 is in Rome. Ask for the order if you do not know it.",
)
SAID: list[Message] = [
    {"role": "user", "content": "Hello, I am Ada, and this is about my order A-17."},
    {"role": "assistant", "content": "Hello Ada! How can I help you?"},
    {"role": "user", "content": "Where is it?"},
]


async def show(model: str | Handler) -> None:
    """Hand the same conversation over twice: whole, and with the newest message only."""
    for preserve in (True, False):
        way = handoff(shipping, preserve_context=preserve)
        triage = Agent("Triage", "You route. Questions about parcels are for Shipping.", handoffs=[way])
        result = await Runner.run(triage, SAID, run_config=RunConfig(model=model))
        print(f"preserve_context={preserve}")
        for message in result.calls[-1].messages[1:]:
            print(f"  Shipping is shown: {message['role']}: {message.get('content')}")
        print(f"  {result.last_agent.name}: {result.final_output}")
        print(f"  kept in the transcript: {len(result.messages)} messages")


if __name__ == "__main__":
    play("context_preservation", show)
