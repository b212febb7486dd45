"""Shows handoffs that wait: for another worker, and for a person who decides while a run waits."""

import anyio

from routelock import Agent, HandoffRequest, Runner, handoff
from routelock.handoffs import (
    HandoffContext,
    InMemoryHandoffStore,
    asks,
    deserialize_context,
    finished,
    incoming,
    serialize_context,
)
from routelock.testing import ScriptedHandler, call

store = InMemoryHandoffStore()  # a database of yours has the same methods, and they may be async


async def intake() -> None:
    """The first worker: stores a request with the conversation so far, and waits for the answer."""
    said = HandoffContext([{"role": "user", "content": "Why was I charged twice?"}])
    request = HandoffRequest(
        "Billing",
        from_agent="Intake",
        reason="a question about an invoice",
        request_id="ticket-7",  # stored twice, it is still one handoff
        context_snapshot=serialize_context(said),
    )
    handoff_id = store.request(request)
    print(f"Intake: filed {handoff_id}, and again {store.request(request)}")
    response = await finished(store, handoff_id)
    print(f"Intake: {response.status}, Billing says: {response.metadata['answer']}")


async def billing() -> None:
    """The second worker: takes the request, goes on from its snapshot, and stores the answer."""
    agent = Agent("Billing", "You explain invoices.", model=ScriptedHandler(["One is a reservation."]))
    handoff_id, request = await incoming(store, "Billing")
    store.accept(handoff_id)  # of several workers one gets it; the others get an error
    context = deserialize_context(request.context_snapshot or b"")
    result = await Runner.run(agent, context.to_input_list())
    store.complete(handoff_id, {"answer": result.final_output})


async def eve() -> None:
    """A person: reads the requests, and decides."""
    for _ in range(2):
        handoff_id, request = await incoming(store, "Manager")
        print(f"Eve: {request.from_agent} asks for the manager: {request.reason}")
        if "piano" in (request.reason or ""):
            store.accept(handoff_id)
        else:
            store.reject(handoff_id, "Not below 100 EUR.")


async def customers() -> None:
    """A run that waits until Eve has decided; after a minute it would go on without her."""
    manager = Agent("Manager", model=ScriptedHandler(["All is paid back."]), on_handoff_request=asks(store))
    lamp, piano = (
        call("transfer_to_manager", {"reason": why}) for why in ("a lamp, 20 EUR", "a piano, 4200 EUR")
    )
    model = ScriptedHandler([lamp, "I paid it back myself.", piano])
    ways = [handoff(manager, ask_reason=True, timeout=60)]
    support = Agent("Support", model=model, handoffs=ways)
    for words in ("My lamp is broken!", "My piano is broken!"):
        result = await Runner.run(support, words)
        [record] = result.handoffs
        print(f"{result.last_agent.name}: {result.final_output} ({record.status}, {record.error})")


async def main() -> None:
    """Let the two workers talk, and then the two customers."""
    for first, second in ((intake, billing), (customers, eve)):
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            group.start_soon(second)


anyio.run(main)
