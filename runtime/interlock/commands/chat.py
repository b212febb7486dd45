"""``interlock chat module:agent``: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
import time
from typing import Any

from interlock.commands.command import Command
from interlock.commands.exit_codes import DONE, FAILED, INTERRUPTED
from interlock.commands.keyboard import edit_lines
from interlock.commands.notes import Note, Screen, Teller
from interlock.commands.options import (
    RunOptions,
    declare_agent,
    declare_run,
    declare_trace,
    ready_litellm,
    run_options,
)
from interlock.commands.plain_screen import PlainScreen
from interlock.commands.rich_screen import RichScreen
from interlock.commands.words import money, told, usage_line
from interlock.messages import Message
from interlock.results import RunResult
from interlock.runner import Runner, RunStream
from interlock.usage import Usage
from interlock_providers.litellm_library import close_litellm

__all__ = ["chat_command"]

_HELP = """/new forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C stops a reply."""


class _Chat:
    """A conversation: what was said, who answers next, and what it cost."""

    def __init__(self, options: RunOptions, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._teller = Teller(screen)
        self._agent = options.agent
        self._history: list[Message] = []
        self._total = Usage()
        self._interrupted = False
        self._stopped = False
        self.failures = 0

    def next(self) -> str | None:
        """Return the next message for an agent; None when the person has had enough."""
        while True:
            try:
                text = self._screen.ask()
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

    def turn(self, loop: asyncio.Runner, text: str) -> None:
        """Answer one message. Whatever happens meanwhile, the conversation goes on from there.

        Raises:
            KeyboardInterrupt: the reply did not stop when it was told to.
        """
        begun, self._stopped = time.monotonic(), False
        stream: RunStream | None = None
        try:
            ready_litellm(self._options)
            stream = self._start(text)
            with self._screen.busy():
                loop.run(self._play(stream))
        except KeyboardInterrupt:
            if stream is not None and not self._stopped:
                raise
            self._interrupted = True
            self._screen.line("Stopped. Ctrl-C again, or Ctrl-D, ends the chat.")
        except Exception as error:
            self.failures += 1
            self._screen.note(Note("problem", told(error)))
        if stream is not None:
            self._keep(stream.result, time.monotonic() - begun)

    def _start(self, text: str) -> RunStream:
        return Runner.run_streamed(
            self._agent,
            [*self._history, {"role": "user", "content": text}],
            context=self._options.context,
            max_turns=self._options.max_turns,
            run_config=self._options.config,
        )

    async def _play(self, stream: RunStream) -> None:
        try:
            async with stream:
                async for event in stream:
                    self._teller.tell(event)
        finally:
            self._stopped = True

    def _keep(self, result: RunResult[Any], seconds: float) -> None:
        self._history = result.to_input_list()
        self._agent = result.next_agent
        self._total = self._total + result.usage
        for call in result.pending:
            self._screen.note(Note("problem", f"{call['function']['name']} waits for an answer of the app's"))
        total = f"{self._total.total_tokens:,} tokens, {money(self._total.cost)}"
        self._screen.line(f"{seconds:.1f} s | {usage_line(result.usage)} | in all {total}")

    def _carried_out(self, text: str) -> bool:
        """Do what a message to the program itself asks for; tell whether it was one."""
        if text == "/new":
            self._history, self._agent = [], self._options.agent
            self._screen.line("The conversation is forgotten.")
        elif text == "/help":
            self._screen.line(_HELP)
        return text in ("/new", "/help")


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    declare_run(command)
    declare_trace(command)
    command.add_argument("--plain", action="store_true", help="no colours, no Markdown, nothing that moves")


def _run(given: argparse.Namespace) -> int:
    options = run_options(given)
    screen = _screen(given.plain)
    chat = _Chat(options, screen)
    if sys.stdin.isatty():
        edit_lines()
        screen.line(f"Chat with {options.agent.name}. {_HELP}")
    with asyncio.Runner() as loop:
        while (text := chat.next()) is not None:
            try:
                chat.turn(loop, text)
            except KeyboardInterrupt:  # what still runs would hold up the end
                sys.stdout.flush()
                os._exit(INTERRUPTED)
        loop.run(close_litellm())
    if sys.stdin.isatty():
        screen.line()
    return FAILED if chat.failures and not sys.stdin.isatty() else DONE


def _screen(plain: bool) -> Screen:
    """Return rich's screen where there is rich, and a terminal for it."""
    fancy = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not plain
    return RichScreen() if fancy and importlib.util.find_spec("rich") else PlainScreen(sys.stdout)


chat_command = Command(
    name="chat",
    help="Talk to an agent: in a terminal, or with a message in each line of stdin.",
    declare=_declare,
    run=_run,
    more="""examples:
  interlock chat app:agent
  interlock chat app:agent --model anthropic/claude-haiku-4-5
  printf 'Hello!\\nWhere is my lamp?\\n' | interlock chat app:agent

In the chat: Ctrl-C stops a reply; once more, or Ctrl-D, ends. /new forgets the conversation. The lines that
begin with > are tool calls, < their answers, => handoffs, ! what went wrong.""",
)
