"""``routelock mcp module:agent``: agents as tools of an MCP host that starts this program."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Any

import anyio

from routelock._concurrency import open_group
from routelock.agents.agent import Agent
from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE
from routelock.cli.options import CONFIG, config_of, load_agents
from routelock.cli.serve import CONTEXT, request_context
from routelock.serving import ServeConfig
from routelock.serving.mcp.stdio import ProtocolStreams, protocol_streams, serve_stdio

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
        ended_by = anyio.run(_serve_until_signal, agents, config, streams)
    if ended_by is not None:  # the host sees that its signal ended the program, as with `routelock serve`
        signal.signal(ended_by, signal.SIG_DFL)
        signal.raise_signal(ended_by)
    return DONE


async def _serve_until_signal(
    agents: Sequence[Agent[Any]], config: ServeConfig, streams: ProtocolStreams
) -> signal.Signals | None:
    """Serve until the input ends, or a signal does; return the signal.

    Running calls are cancelled, so that their tools clean up. A second signal ends the program at once.
    """
    received: list[signal.Signals] = []

    async def cancel_at_signal(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for each in signals:
                received.append(each)
                break
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        scope.cancel()

    async with open_group() as group:
        group.start_soon(cancel_at_signal, group.cancel_scope)
        await serve_stdio(agents, config, streams)
        group.cancel_scope.cancel()
    return received[0] if received else None


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
