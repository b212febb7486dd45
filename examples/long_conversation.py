"""Shows compaction: of a long conversation the model sees the last turns, and a summary of the rest."""

from routelock import Agent, Compact, RunConfig, Runner, function_tool
from routelock.history import text_of
from routelock.testing import ScriptedHandler, call


@function_tool
def read(chapter: int) -> str:
    """Read a chapter."""
    return f"Chapter {chapter}: " + "It rained. " * 60


calls = [call("read", {"chapter": chapter}) for chapter in range(1, 13)]
reader = Agent("Reader", model=ScriptedHandler([*calls, "It rained in all of them."]), tools=[read])

notes = ScriptedHandler(["It rained in the first chapters.", "It still rained."])
scribe = Agent("Scribe", "Keep notes: what was read, and what matters of it.", model=notes)

config = RunConfig(compact=Compact(at_messages=12, keep_turns=2, rest=scribe))
result = Runner.run_sync(reader, "What is the book about?", max_turns=20, run_config=config)

print("What the last model call was shown:")
for message in result.calls[-1].messages:
    print(f"  {message['role']}: {text_of(message)[:70]}")
for made in result.compactions:
    print(f"Turn {made.turn}: {made.replaced} messages became 1, {made.before} became {made.after}")
spent = result.usage_by_agent["Scribe"].total_tokens
print(f"The transcript has {len(result.messages)} messages, and the notes took {spent} tokens.")
