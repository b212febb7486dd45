"""Any team of agents that hand over to one another."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from scripted_agents import agent

from routelock import Agent, ToolContext, function_tool, handoff
from routelock.handoff_request import HandoffResponse
from routelock.testing import call

NAMES = ("m0", "m1", "m2", "m3")
WAYS = (
    "plain",
    "returns",
    "newest",
    "nested",
    "picky",
    "broken filter",
    "broken callback",
    "payload",
    "shares",
)

transfers = st.tuples(
    st.sampled_from(NAMES[1:] + NAMES), st.sampled_from((*WAYS, "plain", "returns", "payload"))
)
steps = st.one_of(transfers, transfers, transfers, transfers, st.sampled_from(["answer", "error", "tool"]))
scripts = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=len(NAMES), max_size=len(NAMES))


@function_tool
def look(n: int, context: ToolContext[Any]) -> str:
    """Look."""
    context.shared_memory["looks"] += 1
    return f"seen {n}"


def _no(request: Any) -> HandoffResponse | None:
    return HandoffResponse.reject("no") if len(request.request_id) % 2 else None


def _broken(*_: Any) -> Any:
    raise ValueError("no")


def team(scripts: list[list[Any]]) -> list[Agent[Any]]:
    options: dict[str, dict[str, Any]] = {
        "returns": {"return_to_caller": True},
        "newest": {"preserve_context": False},
        "nested": {"nest_handoff_history": True},
        "picky": {"capabilities_required": ["sql"]},
        "broken filter": {"input_filter": lambda data: _broken()},
        "broken callback": {"on_handoff": lambda context: _broken()},
        "payload": {"payload": {"handoff_type": "x", "what": "moss"}},
        "shares": {"share": ["looks"], "payload": {"handoff_type": "x", "what": "moss"}},
    }
    team: list[Agent[Any]] = []
    for place, (name, script) in enumerate(zip(NAMES, scripts, strict=True)):
        replies: list[Any] = []
        handoffs: dict[str, Any] = {}
        for number, step in enumerate(script):
            if step == "answer":
                replies.append("Done.")
            elif step == "error":
                replies.append(ValueError("broken"))
            elif step == "tool" or step[0] == name:
                replies.append(call("look", {"n": number}, id=f"{name}.{number}"))
            else:
                target, way = step
                tool = f"transfer_to_{target}_{WAYS.index(way)}"
                handoffs[tool] = handoff(target, tool_name_override=tool, **options.get(way, {}))
                replies.append(call(tool, id=f"{name}.{number}"))
        replies += ["Done."] * 30
        hook = _no if place == 3 else None
        able = ["sql"] if place % 2 else []
        team.append(
            agent(
                name,
                *replies,
                tools=[look],
                handoffs=[*handoffs.values()],
                capabilities=able,
                on_handoff_request=hook,
            )
        )
    return team
