"""``routelock chat module:agent``: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import replace
from typing import Any

from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, FAILED, INTERRUPTED, WAITS
from routelock.cli.options import (
    RunOptions,
    declare_agent,
    declare_run,
    declare_trace,
    ready_litellm,
    run_options,
)
from routelock.cli.screen import (
    Note,
    PlainScreen,
    RichScreen,
    Screen,
    Teller,
    bounded,
    call_arguments,
    edit_lines,
    money,
    moves,
    told,
    usage_line,
)
from routelock.history.messages import Message
from routelock.run.result import RunResult
from routelock.run.stream import RunStream
from routelock.runner import Runner
from routelock.sessions import Session, SQLiteSessions
from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.usage import Usage
from routelock_providers.litellm.library import close_litellm

__all__ = ["chat_command"]


_HELP = """/new forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C stops a reply."""

_ALLOW = "Allow it? y, n, always, or why not"

_NAME = "chat"
"""What the conversation is called in the file of ``--session``."""


class _Chat:
    """A conversation: what was said, who answers next, and what it cost."""

    def __init__(
        self, options: RunOptions, screen: Screen, loop: asyncio.Runner, session: Session | None
    ) -> None:
        self._options = options
        self._screen = screen
        self._loop = loop
        self._session = session
        self._teller = Teller(screen)
        self._agent = options.agent
        self._history: list[Message] = []
        self._total = Usage()
        self._before = Usage()
        self._interrupted = False
        self._stopped = False
        self._over = False
        self.failures = 0
        self.waits = False
        """Whether the last message ended with a call that nobody decided on."""

    def begin(self) -> None:
        """Say what there is of an earlier conversation.

        Raises:
            SessionError: it cannot be read.
        """
        if self._session is None:
            return
        kept = self._loop.run(self._session.load())
        if kept.messages:
            name = kept.next_agent or self._agent.name
            self._screen.line(
                f"The conversation goes on after {len(kept.messages)} messages; {bounded(name, 80)} answers."
            )

    def next(self) -> str | None:
        """Return the next message for an agent; None when the person has had enough."""
        while not self._over:
            try:
                text = self._screen.ask("you")
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted or not sys.stdin.isatty():
                    return None
                self._interrupted = True
                self._screen.line("\nCtrl-C again, or Ctrl-D, ends the chat.")
                continue
            self._interrupted = False
            if text == "/quit":
                return None
            if text and not self._carried_out(text):
                return text
        return None

    def turn(self, text: str) -> None:
        """Answer one message. Whatever happens meanwhile, the conversation goes on from there.

        Raises:
            KeyboardInterrupt: the reply did not stop when it was told to.
        """
        self._before, self.waits = self._total, False
        given: str | RunState | None = text
        while given is not None:
            result = self._answer(given)
            given = None if result is None else self._decided(result)

    def _answer(self, given: str | RunState) -> RunResult[Any] | None:
        begun, self._stopped = time.monotonic(), False
        stream: RunStream | None = None
        try:
            ready_litellm(self._options)
            stream = self._start(given)
            with self._screen.busy():
                self._loop.run(self._play(stream))
        except KeyboardInterrupt:
            if stream is not None and not self._stopped:
                raise
            self._interrupted = True
            self._screen.line("Stopped. Ctrl-C again, or Ctrl-D, ends the chat.")
        except Exception as error:
            self.failures += 1
            self._screen.note(Note("problem", told(error)))
        if stream is None:
            return None
        self._keep(stream.result, time.monotonic() - begun)
        return stream.result

    def _start(self, given: str | RunState) -> RunStream:
        return Runner.run_streamed(
            self._agent,
            [*self._history, {"role": "user", "content": given}] if isinstance(given, str) else given,
            context=self._options.context,
            max_turns=self._options.max_turns,
            run_config=self._options.config,
            session=self._session,
        )

    async def _play(self, stream: RunStream) -> None:
        try:
            async with stream:
                async for event in stream:
                    self._teller.tell(event)
        finally:
            self._stopped = True

    def _keep(self, result: RunResult[Any], seconds: float) -> None:
        if self._session is None:
            self._history = result.to_input_list()
            self._agent = result.next_agent
        self._total = self._before + result.usage
        for call in result.pending:
            self._screen.note(Note("problem", f"{call['function']['name']} waits for an answer of the app's"))
        total = f"{self._total.total_tokens:,} tokens, {money(self._total.cost)}"
        self._screen.line(f"{seconds:.1f} s | {usage_line(result.usage)} | in all {total}")

    def _decided(self, result: RunResult[Any]) -> RunState | None:
        """Return where the run goes on, once the person has said a word on each call that waits for one."""
        if not result.interruptions:
            return None
        state = result.state()
        while state.interruptions:
            try:
                state = self._word_on(state, state.interruptions[0])
            except (EOFError, KeyboardInterrupt) as stopped:
                self._interrupted = isinstance(stopped, KeyboardInterrupt)
                self.waits = True
                self._screen.line("It is not done.")
                return None
        return state

    def _word_on(self, state: RunState, one: Interruption) -> RunState:
        # all of it, since nobody can allow what is not shown
        arguments = call_arguments(one.arguments, 12 * len(one.arguments) + 100)
        wants = f"{bounded(one.agent, 80)} wants to call {bounded(one.name, 80)}"
        self._screen.note(Note("question", f"{wants}({arguments})"))
        while not (said := self._screen.ask(_ALLOW)):
            pass
        if said == "/quit":
            self._over = True
            raise EOFError
        match said.casefold():
            case "y" | "yes":
                return state.approve(one)
            case "a" | "always":
                return state.approve(one, always=True)
            case "n" | "no":
                return state.reject(one)
            case _:
                return state.reject(one, message=said)

    def _carried_out(self, text: str) -> bool:
        """Do what a message to the program itself asks for; tell whether it was one."""
        if text == "/new":
            self._history, self._agent = [], self._options.agent
            if self._session is not None:
                self._loop.run(self._session.clear())
            self._screen.line("The conversation is forgotten.")
        elif text == "/help":
            self._screen.line(_HELP)
        return text in ("/new", "/help")


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    declare_run(command)
    declare_trace(command)
    add = command.add_argument
    add("--session", metavar="FILE", help="keep the conversation there, in SQLite, and go on with it")
    add("--plain", action="store_true", help="no colours, no Markdown, nothing that moves")


def _run(given: argparse.Namespace) -> int:
    options, session = run_options(given), None
    if given.session is not None:
        session = Session(_NAME, SQLiteSessions(given.session))
        if given.config is None:  # whoever was in charge answers the next message
            options = replace(options, config=replace(options.config, next_agent="sticky"))
    screen = _screen(given.plain)
    with asyncio.Runner() as loop:
        chat = _Chat(options, screen, loop, session)
        if sys.stdin.isatty():
            edit_lines()
            screen.line(f"Chat with {options.agent.name}. {_HELP}")
        chat.begin()
        while (text := chat.next()) is not None:
            try:
                chat.turn(text)
            except KeyboardInterrupt:  # what still runs would hold up the end
                sys.stdout.flush()
                os._exit(INTERRUPTED)
        loop.run(close_litellm())
    if sys.stdin.isatty():
        screen.line()
        return DONE
    return FAILED if chat.failures else WAITS if chat.waits else DONE


def _screen(plain: bool) -> Screen:
    """Return rich's screen where there is rich, and a terminal for it."""
    return RichScreen() if moves(sys.stdout) and not plain else PlainScreen(sys.stdout)


chat_command = Command(
    name="chat",
    help="Talk to an agent: in a terminal, or with a message in each line of stdin.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock chat app:agent
  routelock chat app:agent --model anthropic/claude-haiku-4-5
  routelock chat app:agent --session chat.db
  printf 'Hello!\\nWhere is my lamp?\\n' | routelock chat app:agent

In the chat: Ctrl-C stops a reply; once more, or Ctrl-D, ends. /new forgets the conversation. The lines that
begin with > are tool calls, < their answers, => handoffs, ! what went wrong, ? calls that wait for your word:
y allows one, always all of that tool for this message, n none; any other word declines, and tells the model
why.""",
)
