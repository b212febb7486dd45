"""``routelock dev module:agent``: a page to chat with agents and to see what each model call was shown."""

from __future__ import annotations

import argparse

from routelock.cli.command import Command
from routelock.cli.options import (
    Wanted,
    declare_agent,
    declare_run,
    find_object,
    port,
    ready_litellm,
    run_options,
)
from routelock.errors import ConfigError
from routelock.serving.dev import serve_dev
from routelock.serving.dev.conversations import MakeSession
from routelock.sessions.session import Session

__all__ = ["dev_command", "session_at"]


_SESSION = "a Session that keeps what is said, or a function that makes one for each conversation"


_SESSIONS = Wanted("app:session", "sessions", lambda found: isinstance(found, Session))


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    declare_run(command)
    add = command.add_argument
    add("--session", metavar="module:object", help=_SESSION)
    add("--port", type=port, default=8001, help="0 takes any free one (default: %(default)s)")
    add(
        "--trace",
        metavar="FILE",
        action="append",
        default=[],
        help="a trace that the page may load, as /?trace=FILE",
    )
    add("--log-level", default="warning", choices=("debug", "info", "warning", "error"))


def _dev(given: argparse.Namespace) -> int:
    options = run_options(given)
    ready_litellm(options, piped=True)
    serve_dev(
        options.agent,
        port=given.port,
        spec=given.spec,
        context_spec=given.context,
        config_spec=given.config,
        traces=given.trace,
        run_config=options.config,
        context=None if given.context is None else lambda: options.context,
        session=None if given.session is None else session_at(given.session),
        max_turns=options.max_turns,
        log_level=given.log_level,
    )
    return 0


def session_at(spec: str) -> Session | MakeSession:
    """Return the session, or the function that makes sessions, at the place of ``--session``.

    Raises:
        ConfigError: the place does not exist, or holds neither a session nor a function.
    """
    found: Session | MakeSession = find_object(spec, _SESSIONS)
    if not (isinstance(found, Session) or callable(found)):
        raise ConfigError(f"--session {spec} must be a Session or a function, not {found!r:.80}.")
    return found


dev_command: Command = Command(
    name="dev",
    help="Chat with an agent in the browser, and see what each model call was shown.",
    declare=_declare,
    run=_dev,
    more="""examples:
  routelock dev app:agent                        http://127.0.0.1:8001, for this machine only
  routelock dev app:agent --trace runs.jsonl     and then http://127.0.0.1:8001/?trace=runs.jsonl""",
)
