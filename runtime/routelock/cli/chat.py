"""``routelock chat module:agent``: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, FAILED, INTERRUPTED, WAITS
from routelock.cli.options import (
    RunOptions,
    close_litellm,
    declare_agent,
    declare_run,
    declare_trace,
    ready_litellm,
    run_options,
    written_names,
)
from routelock.cli.screen import (
    EventPrinter,
    Note,
    PlainScreen,
    RichScreen,
    Screen,
    bounded,
    call_arguments,
    can_draw,
    drop_typed_text,
    enable_line_editing,
    error_line,
    money,
    usage_line,
)
from routelock.history.messages import Message
from routelock.run.result import RunResult
from routelock.run.stream import RunStream
from routelock.runner import Runner
from routelock.tools.approvals import Interruption
from routelock.tools.questions import ToolQuestion
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.sessions import Session
    from routelock.state.run_state import RunState

__all__ = ["chat_command"]


_HELP = """/new forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C stops a reply."""

_ALLOW = "Allow it? y, n, always, or why not"

_ANSWER = "Answer it? y, n, or why not"

_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}

_NAME = "chat"
"""The name of the session in the file of ``--session``."""


class _Chat:
    """A conversation: its messages, the active agent, and its usage."""

    def __init__(
        self, options: RunOptions, screen: Screen, loop: asyncio.Runner, session: Session | None
    ) -> None:
        self._options = options
        self._screen = screen
        self._loop = loop
        self._session = session
        self._printer = EventPrinter(screen, names=written_names(options))
        self._agent = options.agent
        self._history: list[Message] = []
        self._total = Usage()
        self._before = Usage()
        self._interrupted = False
        self._stopped = False
        self._over = False
        self.failures = 0
        self.waits = False
        """Whether the last turn ended with an undecided call."""

    def begin(self) -> None:
        """Print a line about an earlier conversation in the session.

        Raises:
            SessionError: the session cannot be read.
        """
        if self._session is None:
            return
        kept = self._loop.run(self._session.load())
        if kept.messages:
            name = kept.next_agent or self._agent.name
            count = len(kept.messages)
            self._screen.print_line(
                f"The conversation continues after {count} messages; {bounded(name, 80)} answers."
            )

    def next(self) -> str | None:
        """Return the next message for the agent; None if the user ends the chat."""
        while not self._over:
            try:
                text = self._screen.ask("you")
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted or not sys.stdin.isatty():
                    return None
                self._interrupted = True
                self._screen.print_line("\nCtrl-C again, or Ctrl-D, ends the chat.")
                continue
            self._interrupted = False
            if text == "/quit":
                return None
            if text and not self._is_command(text):
                return text
        return None

    def turn(self, text: str) -> None:
        """Answer one message. After an error the conversation can be continued.

        Raises:
            KeyboardInterrupt: the reply did not stop at the first Ctrl-C.
        """
        self._before, self.waits = self._total, False
        given: str | RunState | None = text
        while given is not None:
            result = self._answer(given)
            given = None if result is None else self._state_with_decisions(result)

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
            self._screen.print_line("Stopped. Ctrl-C again, or Ctrl-D, ends the chat.")
        except Exception as error:
            self.failures += 1
            self._screen.show_note(Note("problem", error_line(error)))
        if stream is None:
            return None
        self._finish_turn(stream.result, time.monotonic() - begun)
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
                    self._printer.print(event)
        finally:
            self._stopped = True

    def _finish_turn(self, result: RunResult[Any], seconds: float) -> None:
        if self._session is None:
            self._history = result.to_input_list()
            self._agent = result.next_agent
        self._total = self._before + result.usage
        for call in result.pending:
            self._screen.show_note(
                Note("problem", f"{call['function']['name']} waits for a result of the app")
            )
        total = f"{self._total.total_tokens:,} tokens, {money(self._total.cost)}"
        self._screen.print_line(f"{seconds:.1f} s | {usage_line(result.usage)} | in all {total}")

    def _state_with_decisions(self, result: RunResult[Any]) -> RunState | None:
        """Return the state with the user's decisions on all calls that wait.

        It is None if there is nothing to resume.
        """
        if not result.interruptions:
            return None
        state = result.state()
        while state.interruptions:
            try:
                state = self._state_with_decision(state, state.interruptions[0])
            except (EOFError, KeyboardInterrupt) as stopped:
                self._interrupted = isinstance(stopped, KeyboardInterrupt)
                self.waits = True
                self._screen.print_line(_not_made(result.interruptions))
                return None
        return state

    def _state_with_decision(self, state: RunState, one: Interruption) -> RunState:
        # the whole text, because the user approves it
        arguments = call_arguments(one.arguments, 12 * len(one.arguments) + 100)
        wants = f"{bounded(one.agent, 80)} wants to call {bounded(one.name, 80)}"
        self._screen.show_note(Note("question", f"{wants}({arguments})"))
        if (asked := one.question) is not None:
            self._screen.show_note(Note("question", " ".join(filter(None, (asked.message, asked.url)))))
        drop_typed_text()
        while not (said := self._said(_ALLOW if asked is None else _ANSWER)):
            pass
        match said.casefold():
            case "y" | "yes":
                return state.approve(one, answer=None if asked is None else self._answer_to(asked))
            case "a" | "always" if asked is None:
                return state.approve(one, always=True)
            case "n" | "no":
                return state.reject(one)
            case _:
                return state.reject(one, message=said)

    def _said(self, prompt: str) -> str:
        said = self._screen.ask(prompt)
        if said == "/quit":
            self._over = True
            raise EOFError
        return said

    def _answer_to(self, question: ToolQuestion) -> dict[str, Any]:
        """Return the user's value for each field of a question; an empty line leaves the default."""
        answer: dict[str, Any] = {}
        for name, field in question.fields.items():
            while True:
                said = self._said(_field_prompt(name, field))
                if not said and name not in question.required:
                    break
                with suppress(ValueError):  # the user is asked again
                    answer[name] = _field_value(str(field.get("type", "string")), said)
                    break
        return answer

    def _is_command(self, text: str) -> bool:
        """Run a command of the chat; return whether the text was one."""
        if text == "/new":
            self._history, self._agent = [], self._options.agent
            if self._session is not None:
                self._loop.run(self._session.clear())
            self._screen.print_line("The conversation is forgotten.")
        elif text == "/help":
            self._screen.print_line(_HELP)
        return text in ("/new", "/help")


def _field_prompt(name: str, field: Mapping[str, Any]) -> str:
    choices = f" ({', '.join(map(str, field['enum']))})" if "enum" in field else ""
    default = f" [{field['default']}]" if "default" in field else ""
    return bounded(f"{field.get('title') or name}{choices}{default}", 200)


def _field_value(kind: str, said: str) -> Any:
    """Return the user's text as a value of the kind that a field takes.

    Raises:
        ValueError: the text is no value of this kind.
    """
    if kind == "string" and said:
        return said
    if kind == "boolean" and said.casefold() in _YES_OR_NO:
        return _YES_OR_NO[said.casefold()]
    return json.loads(said)


def _not_made(calls: Sequence[Interruption]) -> str:
    """Return the message for calls that were not made because the user left one of them undecided."""
    if len(calls) == 1:
        return "The call was not made."
    named = [f"{bounded(each.name, 80)}({call_arguments(each.arguments, 80)})" for each in calls]
    return f"None of these calls was made: {', '.join(named)}."


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    declare_run(command)
    declare_trace(command)
    add = command.add_argument
    add("--session", metavar="FILE", help="keep the conversation in this SQLite file, and continue it")
    add("--plain", action="store_true", help="no colours, no Markdown, no animation")


def _run(given: argparse.Namespace) -> int:
    options, session = run_options(given), None
    if given.session is not None:
        from routelock.sessions import Session, SQLiteSessions  # noqa: PLC0415 - only this option needs them

        session = Session(_NAME, SQLiteSessions(given.session))
        if given.config is None:  # the active agent answers the next message
            options = replace(options, config=replace(options.config, next_agent="sticky"))
    screen = _screen(given.plain)
    with asyncio.Runner() as loop:
        chat = _Chat(options, screen, loop, session)
        if sys.stdin.isatty():
            enable_line_editing()
            screen.print_line(f"Chat with {options.agent.name}. {_HELP}")
        chat.begin()
        while (text := chat.next()) is not None:
            try:
                chat.turn(text)
            except KeyboardInterrupt:  # running threads would delay the end
                sys.stdout.flush()
                os._exit(INTERRUPTED)
        loop.run(close_litellm())
    if sys.stdin.isatty():
        screen.print_line()
        return DONE
    return FAILED if chat.failures else WAITS if chat.waits else DONE


def _screen(plain: bool) -> Screen:
    """Return the screen with rich if rich is installed and stdout is a terminal."""
    return RichScreen() if can_draw(sys.stdout) and not plain else PlainScreen(sys.stdout)


chat_command: Command = Command(
    name="chat",
    help="Chat with an agent in a terminal, or with a message in each line of stdin.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock chat app:agent
  routelock chat app:agent --model anthropic/claude-haiku-4-5
  routelock chat app:agent --session chat.db
  printf 'Hello!\\nWhere is my lamp?\\n' | routelock chat app:agent

In the chat: Ctrl-C stops a reply; once more, or Ctrl-D, ends. /new forgets the conversation. Lines begin with
> for tool calls, < for their results, => for handoffs, ! for errors, and ? for calls that need your approval:
y approves the call, always approves all calls of that tool for this message, n rejects it; any other text
rejects it and is sent to the model as the reason.""",
)
