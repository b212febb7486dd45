"""``routelock graph module:agent``: the handoffs between agents as a picture, text or table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from routelock.agents.graph import as_markdown, graph_mermaid, handoff_matrix
from routelock.agents.svg import graph_svg
from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE
from routelock.cli.options import agent_of, declare_agent

__all__ = ["graph_command"]


def _declare(command: argparse.ArgumentParser) -> None:
    declare_agent(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--mermaid", action="store_true", help="as Mermaid text (this is the default)")
    form.add_argument("--svg", action="store_true", help="as a picture")
    form.add_argument("--table", action="store_true", help="as Markdown: source, target, type, context")
    command.add_argument("--output", "-o", metavar="FILE", type=Path, help="write a file instead of stdout")


def _run(given: argparse.Namespace) -> int:
    agent = agent_of(given)
    if given.svg:
        text = graph_svg(agent)
    elif given.table:
        text = as_markdown(handoff_matrix(agent))
    else:
        text = graph_mermaid(agent)
    if given.output is None:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    else:
        given.output.write_text(text, "utf-8")
    return DONE


graph_command: Command = Command(
    name="graph",
    help="Show the handoffs between agents; no model is called.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock graph app:agent                    Mermaid text, for a README
  routelock graph app:agent --svg -o team.svg
  routelock graph app:agent --table            with the context of each target""",
)
