"""A support desk: triage hands over to refunds or to a technician, and they work on a real database.

    python examples/support_desk.py            replays a recorded chat: no network, no key
    python examples/support_desk.py --live     you type, and a model answers; see --help

It shows handoffs (one with structured input and an input filter, one with nested history), tools that
change rows in SQLite, a streamed chat over several messages, and what all of it cost. The agents are in
desk/agents.py, their tools in desk/shop.py; how events become lines is in desk/screen.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from anyio.from_thread import start_blocking_portal

from desk.agents import TRIAGE
from desk.screen import Screen, one_line
from desk.shop import Desk
from recorded import replayed
from routelock import (
    Agent,
    Handler,
    Message,
    Request,
    RoutelockError,
    RunConfig,
    RunContext,
    RunHooks,
    Runner,
    RunResult,
)
from routelock.history import text_of
from routelock.testing import CassetteMiss, UnplayedInteractions

DEFAULT_MODEL = "openai/gpt-4o-mini"
QUESTIONS = (
    "Hello! I have changed my mind about order A-1003. I would like my money back.",
    "All right, I will wait. My hub keeps losing the Wi-Fi, and its light is amber.",
    "It is green again, thank you! There is one more thing: the lamp from order A-1002 arrived with a "
    "cracked shade. Please refund it, I paid with card 4111 1111 1111 1111.",
    "Great. So which of my orders did you refund?",
)


class Views(RunHooks):
    """Prints what an agent sees of the conversation when it takes over: the effect of filters and nesting."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._new_here = False

    async def on_handoff(self, context: RunContext[Any], from_agent: object, to_agent: object) -> None:
        """Note that another agent took over."""
        self._new_here = True

    async def on_llm_start(self, context: RunContext[Any], agent: object, request: Request) -> None:
        """Say what the handler is given."""
        if self._new_here:
            shown = [message for message in request.messages if message["role"] != "system"]
            asked = [text_of(message) for message in shown if message["role"] == "user"]
            count = f"{len(shown)} message{'s' * (len(shown) != 1)}"
            self._screen.note(f"sees {count}; the customer's last: {asked[-1]}")
        self._new_here = False


def chat(
    questions: Iterable[str],
    model: str | Handler,
    desk: Desk,
    screen: Screen,
    *,
    sticky: bool = False,
    go_on: bool = False,
) -> list[RunResult[Any]]:
    """Answer one question after the other, and return what each run did.

    Args:
        questions: what the customer says; may be typed while we wait.
        model: answers for all agents.
        desk: what the tools work on.
        screen: shows everything.
        sticky: whether the next question goes to the agent that answered the last one.
        go_on: whether an error ends one answer only, which is best when a person is typing.
    """
    # Every run starts at triage again, unless the chat is sticky.
    config = RunConfig(model=model, agents=[TRIAGE], next_agent="sticky" if sticky else "reset")
    agent, history, results = TRIAGE, list[Message](), list[RunResult[Any]]()
    with start_blocking_portal() as portal:  # one event loop for all runs; this thread may wait for input
        for question in questions:
            asked: list[Message] = [*history, {"role": "user", "content": question}]
            try:
                result = portal.call(answer, agent, asked, config, desk, screen)
            except RoutelockError as error:
                if not go_on or error.result is None:
                    raise
                screen.end_line()
                complain(error)
                result = error.result  # all that happened until then: no message and no refund is lost
            history = result.to_input_list()
            agent = result.next_agent
            results.append(result)
    return results


async def answer(
    agent: Agent[Desk], asked: list[Message], config: RunConfig, desk: Desk, screen: Screen
) -> RunResult[Any]:
    """Answer one question, and show everything that happens meanwhile."""
    views = Views(screen)
    async with Runner.run_streamed(agent, asked, context=desk, run_config=config, hooks=views) as stream:
        async for event in stream:
            screen.show(event)
    screen.line()
    return stream.result


# -- who asks, and who answers --


def recited(questions: Iterable[str], screen: Screen) -> Iterator[str]:
    """Ask questions that were written before."""
    for question in questions:
        screen.speaker("you")
        screen.say(question)
        screen.end_line()
        yield question


def typed(screen: Screen) -> Iterator[str]:
    """Ask what a person types, until the end of the input."""
    while True:
        try:
            question = input(screen.prompt("you")).strip()
        except EOFError:
            screen.line()
            return
        if question:
            yield question


def read(screen: Screen) -> Iterator[str]:
    """Ask what comes from stdin: typed in a terminal, or else one question in each line."""
    if sys.stdin.isatty():
        return typed(screen)
    return recited(filter(None, map(str.strip, sys.stdin)), screen)


def complain(error: BaseException) -> int:
    """Print an error as one line, and return its exit code."""
    text = one_line(error)
    if isinstance(error, CassetteMiss):
        text = (
            "this was not recorded. Offline, the desk answers its own questions only; for others use --live. "
            "If you changed the agents, record them anew: make record."
        )
    print(f"support_desk: {text}", file=sys.stderr)
    return 1


# -- the command line --


def run(options: argparse.Namespace, screen: Screen) -> None:
    """Do what the command line asks for."""
    typing = options.chat or (options.live and sys.stdin.isatty())
    recording = "support_desk_sticky" if options.sticky else "support_desk"
    if options.live:
        source: AbstractContextManager[str | Handler] = nullcontext(options.model)
        screen.line(f"Support desk, answered by {options.model}.")
    else:
        source = replayed(recording, whole=not typing)
        screen.line(f"Support desk, replayed from cassettes/{recording}.yaml: no network, no key.")
    hint = " Ctrl-D ends the chat." if typing and sys.stdin.isatty() else ""
    screen.line(f"Loading litellm takes some seconds before the first answer.{hint}")
    screen.line()
    questions = read(screen) if typing else recited(QUESTIONS, screen)
    with closing(Desk()) as desk, source as model:
        results = chat(questions, model, desk, screen, sticky=options.sticky, go_on=typing and options.live)
        screen.totals(results)
        for refund in desk.rows("SELECT order_id, reason FROM refunds ORDER BY order_id"):
            screen.line(f"{'booked':<11}refund of {refund['order_id']}: {refund['reason']}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="support_desk", description="A support desk of three agents.")
    parser.add_argument("--live", action="store_true", help="ask a model; its key is in the environment")
    parser.add_argument("--model", metavar="VENDOR/MODEL", help=f"which model, default {DEFAULT_MODEL}")
    parser.add_argument("--chat", action="store_true", help="read what the customer says from stdin")
    parser.add_argument("--sticky", action="store_true", help="stay with the agent that answered last")
    options = parser.parse_args(arguments)
    if options.model and not options.live:
        parser.error("--model needs --live: a recording has a model of its own")
    options.model = options.model or DEFAULT_MODEL
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the desk and return the exit code."""
    options = parse(arguments)
    screen = Screen(sys.stdout, pace=0.0 if options.live else 0.003)
    try:
        run(options, screen)
    except KeyboardInterrupt:
        screen.end_line()
        return 130
    except BrokenPipeError:  # the reader of our output has closed it, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RoutelockError, CassetteMiss, UnplayedInteractions, OSError) as error:
        screen.end_line()
        return complain(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
