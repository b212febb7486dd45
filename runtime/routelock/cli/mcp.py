"""``routelock mcp module:agent``: agents as tools of an MCP host that starts this program."""

from __future__ import annotations

import argparse
import logging
import signal
import sys

import anyio

from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE
from routelock.cli.options import CONFIG, config_of, load_agents
from routelock.cli.serve import CONTEXT, request_context
from routelock.serving import ServeConfig
from routelock.serving.mcp.stdio import protocol_streams, serve_stdio

__all__ = ["mcp_command"]


def _declare(command: argparse.ArgumentParser) -> None:
    defaults = ServeConfig()
    add = command.add_argument
    add("spec", metavar="module:agent", help="an agent, a list of agents, or a function that returns them")
    add("--context", metavar="module:object", help=CONTEXT)
    add("--config", metavar="module:object", help=CONFIG)
    add("--max-turns", type=int, default=defaults.max_turns, help="model calls per call of a tool")
    add("--max-concurrent", type=int, default=defaults.max_concurrent, help="calls at the same time")
    add("--timeout", type=float, default=defaults.timeout, metavar="SECONDS", help="longest run")
    add("--log-level", default="warning", choices=("debug", "info", "warning", "error"))


def _serve(given: argparse.Namespace) -> int:
    with protocol_streams() as streams:  # before the app is loaded, because it may print
        agents = load_agents(given.spec)
        config = ServeConfig(
            max_turns=given.max_turns,
            max_concurrent=given.max_concurrent,
            timeout=given.timeout,
            run_config=config_of(given),
            context=None if given.context is None else request_context(given.context),
        )
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(name)s: %(message)s")
        logging.getLogger("routelock").setLevel(given.log_level.upper())
        # a thread reads standard input, and Python would wait for its next line
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        anyio.run(serve_stdio, agents, config, streams)
    return DONE


mcp_command: Command = Command(
    name="mcp",
    help="Serve agents as tools to an MCP host, over standard input and output.",
    declare=_declare,
    run=_serve,
    more="""examples:
  routelock mcp app:agent                        talks MCP on stdin and stdout, until stdin ends
  routelock mcp app:team --context app:shop      each agent of a list is a tool

A host starts it by itself, from settings such as:
  {"mcpServers": {"shop": {"command": "routelock", "args": ["mcp", "app:agent"], "cwd": "/path/of/app"}}}
For hosts on other machines: routelock serve app:agent --mcp""",
)
