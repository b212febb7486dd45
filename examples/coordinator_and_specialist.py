"""Shows skills: a coordinator and a specialist. The model hands over to it, and so may a tool."""

from routelock import Agent, HandoffRequest, Runner
from routelock.history import calls_of
from routelock.testing import ScriptedHandler, call
from routelock_skills import Skill, SpecialistSkill, prompt, tool

BOOKS = {"Dune": "a desert, a prophecy and very large worms", "Emma": "a matchmaker who errs"}


class Library(Skill):
    """What the library knows: a part of the system prompt, a tool, and when an expert is needed."""

    @prompt
    def style(self) -> str:
        """Join the system prompt."""
        return "Speak of a book only if you have looked it up."

    @tool
    def look_up(self, title: str) -> str | HandoffRequest:
        """Say what a book is about."""
        if title in BOOKS:
            return BOOKS[title]
        return HandoffRequest("critic", reason=f"{title} is not on the shelf")  # code hands over


critic = SpecialistSkill(
    "critic",
    "You are a critic. Compare books in one sentence.",
    model=ScriptedHandler(["Dune has the worms, Emma has the wit.", "Nobody has read that one."]),
    prompt="Compares books, and knows the rare ones.",
)
coordinator = Agent(
    "Coordinator",
    "You help readers.",
    model=ScriptedHandler(
        [
            [call("look_up", {"title": "Dune"}), call("look_up", {"title": "Emma"})],
            call("transfer_to_critic"),  # the model hands over
            call("look_up", {"title": "Zettel"}),  # the next run starts with the coordinator again
        ],
        name="coordinator",
    ),
    skills=[Library(), critic],
)

for question in ("Dune or Emma?", "And Zettel?"):
    result = Runner.run_sync(coordinator, question)
    print(f"Reader: {question}")
    for reply in result.raw_replies:
        for made in calls_of(reply.message):
            print(f"  {reply.model} calls {made['function']['name']}({made['function']['arguments']})")
    print(f"{result.last_handler}: {result.final_output}")
    print(f"  (handed over by the {result.handoffs[0].requested_by}; reason: {result.handoffs[0].reason})")
