"""Shows a handler of your own: any async function can answer, for an agent or as a handoff's target."""

from collections.abc import AsyncGenerator

from routelock import Agent, Request, Runner, function_handler
from routelock.history import text_of
from routelock.testing import ScriptedHandler, call

ANSWERS = {"open": "We are open from 9 to 17.", "return": "You can return everything within 30 days."}


async def faq(request: Request) -> AsyncGenerator[str]:
    """Answer from a table, without any model; each piece of text is streamed as it is yielded."""
    question = next(text_of(each) for each in reversed(request.messages) if each["role"] == "user")
    found = [answer for word, answer in ANSWERS.items() if word in question.lower()]
    for sentence in found or ["I do not know that one."]:
        yield f"{sentence} "


async def shouting(request: Request) -> str:
    """Answer with the question. A plain async function will do, too."""
    return text_of(request.messages[-1]).upper()


print(Runner.run_sync(Agent("Echo", model=function_handler(shouting)), "is anybody there?").final_output)

triage = Agent(
    "Triage",
    model=ScriptedHandler([call("transfer_to_faq")]),
    handoffs=[function_handler(faq)],
)
result = Runner.run_sync(triage, "When are you open, and can I return a lamp?")
print(f"{result.handoffs[0].target}: {result.final_output}")
