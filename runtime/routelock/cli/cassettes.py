"""``routelock record`` and ``routelock replay``: run an agent or a script with a cassette of HTTP traffic."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, FAILED
from routelock.cli.run import run_command
from routelock.errors import ConfigError
from routelock.testing.cassette import Cassette, RecordMode, use_cassette
from routelock.testing.guards import no_network
from routelock.testing.matching import MATCH_ON

__all__ = ["record_command", "replay_command"]


_STREAMED = re.compile(rb'"stream"\s*:\s*true')

_MORE = """examples:
  routelock {0} hello.yaml app:agent "Hello!"
  routelock {0} hello.yaml app:agent "Hello!" --json     what `routelock run` takes
  routelock {0} hello.yaml examples/hello.py --fast      a script, with its own arguments"""


def _declare(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--any-body", action="store_true", help="compare method, host and path only, and not the body")
    add("cassette", metavar="FILE", help="the cassette, in vcrpy's YAML")
    add("target", metavar="module:agent|script.py", help="the agent or script to run")
    add(
        "arguments", nargs=argparse.REMAINDER, help="its arguments; options of this command stand before FILE"
    )


def _declare_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-unplayed", action="store_true", help="accept that some of the recorded requests are not made"
    )
    _declare(command)


def _play(mode: RecordMode, given: argparse.Namespace) -> int:
    path = Path(given.cassette)
    if mode == "none" and not path.exists():
        raise ConfigError(f"There is no cassette {path}. Record it first: routelock record {path} ...")
    parts = [part for part in MATCH_ON if part != "body" or not given.any_body]
    with use_cassette(
        path, record_mode=mode, match_on=parts, allow_unplayed=mode != "none" or given.allow_unplayed
    ) as cassette:
        before = len(cassette.requests)
        if mode == "rewrite":
            code = _run_target(given.target, given.arguments)
        else:
            with no_network():
                code = _run_target(given.target, given.arguments, stream=_streams(cassette))
        count, unplayed = len(cassette.requests), len(cassette.unplayed)
        if code:  # a failed run does not make all of its requests
            cassette.allow_unplayed = True
    if mode == "none":
        done = f"answered {count - unplayed} of {_requests(count)} from {path}"
    elif count == before:
        done = f"no request was made, so {path} is {'as it was' if path.exists() else 'not written'}"
    else:
        done = f"recorded {_requests(count - before)} in {path}"
    sys.stderr.write(f"routelock: {done}\n")
    return code


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"


def _streams(cassette: Cassette) -> bool:
    """Return whether the recorded requests are streamed, as those of `routelock record` are."""
    asked = cassette.requests
    return not asked or any(_STREAMED.search(one.body) or "stream" in urlsplit(one.url).path for one in asked)


def _run_target(target: str, arguments: Sequence[str], *, stream: bool = True) -> int:
    if target.endswith(".py"):
        return _run_script(target, arguments)
    parser = argparse.ArgumentParser(prog="routelock run", description=run_command.help)
    run_command.declare(parser)
    given = parser.parse_args([target, *arguments])
    given.stream = stream
    return run_command.run(given)


def _run_script(path: str, arguments: Sequence[str]) -> int:
    """Run a script as Python does, and return its exit code."""
    if not Path(path).is_file():
        raise ConfigError(f"There is no script {path}.")
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            return FAILED
        return ended.code or DONE
    return DONE


record_command: Command = Command(
    name="record",
    help="Run an agent or a script, and write its HTTP traffic into a cassette, without secrets.",
    declare=_declare,
    run=partial(_play, "rewrite"),
    more=_MORE.format("record"),
)

replay_command: Command = Command(
    name="replay",
    help="Run an agent or a script against a cassette: no network, no key.",
    declare=_declare_replay,
    run=partial(_play, "none"),
    more=_MORE.format("replay"),
)
