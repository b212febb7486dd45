"""Shows errors: each carries what the run had done, and says what to do next."""

from routelock import Agent, ConfigError, LimitExceeded, MaxTurnsExceeded, RunConfig, Runner, function_tool
from routelock.testing import ScriptedHandler, call


@function_tool
def page(number: int) -> str:
    """Read a page of the manual."""
    if number == 2:
        raise FileNotFoundError("page 2 is missing")
    return f"Page {number}: nothing about amber lights."


def reader() -> Agent:
    """Return an agent that never stops reading."""
    model = ScriptedHandler([call("page", {"number": number}) for number in range(1, 9)])
    return Agent("Reader", model=model, tools=[page])


try:
    Runner.run_sync(reader(), "What does an amber light mean?", max_turns=3)
except MaxTurnsExceeded as error:
    print(error)
    print(f"Until then: {len(error.result.items)} messages, {error.result.usage.total_tokens} tokens")
    print("Went wrong, and the model was told:", *(problem.message for problem in error.result.errors))


def sorry(error: LimitExceeded) -> str:
    """Make the final output of a run that reached a limit."""
    return f"I read {error.result.usage.requests} pages and found nothing. Shall I call a colleague?"


print(Runner.run_sync(reader(), "Amber?", max_turns=3, run_config=RunConfig(on_limit=sorry)).final_output)

try:  # what cannot work is found before any model is called
    Agent("Twice", tools=[page, page])
except ConfigError as error:
    print(error)
