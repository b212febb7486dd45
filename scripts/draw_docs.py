"""Draw the pictures of docs/images that are made of text; a test holds them up to date.

usage: draw_docs.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from routelock import Agent, handler, handoff
from routelock.agents.svg import graph_svg

IMAGES = Path(__file__).parent.parent / "docs" / "images"

INK, LINE, LIT, PAPER, GLOW, SOFT = "#1c2430", "#7b8698", "#0b62d6", "#ffffff", "#dcebff", "#56606f"
MODEL = "openai/gpt-4o-mini"
WIDTH, HEIGHT, GAP, BETWEEN, MARGIN, TITLE = 214, 30, 8, 56, 12, 26

Column = tuple[str, Sequence[str]]
"""A heading and what stands below it: ``*`` before a text lights it, ``-`` takes it back."""


def columns(label: str, parts: Sequence[Column], *, arrows: bool = True) -> str:
    """Return lists beside each other, as SVG, with arrows from one to the next."""
    width = 2 * MARGIN + len(parts) * WIDTH + (len(parts) - 1) * BETWEEN
    height = 2 * MARGIN + TITLE + max(len(rows) for _, rows in parts) * (HEIGHT + GAP) - GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label={quoteattr(label)} font-size="12.5" '
        'font-family="system-ui, sans-serif">'
    ]
    for place, (title, rows) in enumerate(parts):
        x = MARGIN + place * (WIDTH + BETWEEN)
        lines.append(_text(x + WIDTH / 2, MARGIN + 13, title, LINE, ' font-weight="600"'))
        lines += [_row(x, MARGIN + TITLE + number * (HEIGHT + GAP), text) for number, text in enumerate(rows)]
        if arrows and place:
            lines.append(_arrow(x - BETWEEN + 8, MARGIN + TITLE + HEIGHT / 2, BETWEEN - 16))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(x: float, y: float, text: str) -> str:
    lit, gone = text.startswith("*"), text.startswith("-")
    dashed = ' stroke-dasharray="4 3"' if gone else ""
    box = (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{GLOW if lit else PAPER}" '
        f'stroke="{LIT if lit else LINE}"{dashed}/>'
    )
    return box + _text(x + WIDTH / 2, y + 19.5, text.lstrip("*-"), SOFT if gone else INK)


def _text(x: float, y: float, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}"{more}>{escape(text)}</text>'


def _arrow(x: float, y: float, length: float) -> str:
    return (
        f'<path d="M{x:g} {y:g}h{length - 8:g}" stroke="{LINE}" stroke-width="1.5"/>'
        f'<path d="M{x + length:g} {y:g}l-9 -5v10z" fill="{LINE}"/>'
    )


def _agent(name: str, *handoffs: Agent | str) -> Agent:
    return Agent(name, model=MODEL, handoffs=handoffs)


def draw_agent() -> str:
    """The agents of docs/agents.md."""
    return graph_svg(_agent("front", _agent("billing", "front"), _agent("tech", "front")))


def draw_handoff() -> str:
    """Those of docs/handoffs.md, when refunds speaks."""
    triage = _agent("triage", _agent("refunds"), _agent("sales"))
    return graph_svg(triage, active="refunds", used=[("triage", "refunds")])


def draw_graph() -> str:
    """All that a graph may have in it, for dev-page.md."""

    @handler
    async def sms(messages: list[object]) -> str:
        return "Sent."

    lawyer = Agent("lawyer", model="anthropic/claude-sonnet-4-5")
    billing = Agent("billing", model=MODEL, handoffs=["front"], tools=[lawyer.as_tool()])
    tech = Agent("tech", model=MODEL, handoffs=["front", handoff(sms)])
    return graph_svg(_agent("front", billing, tech, _agent("sales")), active="tech", used=[("front", "tech")])


def draw_run() -> str:
    """The run of docs/runs.md."""
    return columns(
        "A run of three turns",
        [
            ("turn 1: triage", ["model call", "*calls transfer_to_refunds", "the transfer is made"]),
            ("turn 2: refunds", ["model call", "*calls refund(order=7)", '"refunded"']),
            ("turn 3: refunds", ["model call", "*Done.", "the final output"]),
        ],
    )


def draw_priority() -> str:
    """Who answers in three runs of one agent."""
    return columns(
        "Three runs of one agent with the handlers fast and steady",
        [
            ("run 1", ["*fast (default): fails", "steady answers"]),
            ("run 2", ["*fast (default): answers"]),
            ("run 3", ["*fast (default)", "a tool switches", "steady answers"]),
        ],
        arrows=False,
    )


def draw_view() -> str:
    """What a target is shown of what happened."""
    return columns(
        "Transcript and view",
        [
            (
                "transcript",
                [
                    "user: my card is 4111 1111",
                    "assistant: thanks",
                    "user: where is order 7?",
                    "triage calls look_up(7)",
                    'result: "in Rome"',
                    "triage calls transfer_to_refunds",
                ],
            ),
            (
                "view of refunds",
                [
                    "-filtered: the card",
                    "assistant: thanks",
                    "*note: look_up(7) gave Rome",
                    "user: where is order 7?",
                ],
            ),
        ],
    )


PICTURES: dict[str, Callable[[], str]] = {
    "agent.svg": draw_agent,
    "graph.svg": draw_graph,
    "handoff.svg": draw_handoff,
    "priority.svg": draw_priority,
    "run.svg": draw_run,
    "view.svg": draw_view,
}


def main() -> None:
    """Write them."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
