"""`routelock_skills`: what it exports, and what importing it does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

import routelock
import routelock.agents.skill
import routelock_skills

SOURCES = Path(routelock_skills.__file__).parents[2]
HEAVY = {"aiohttp", "httpx", "httpx2", "litellm", "openai"}


def test_importing_loads_no_library_of_a_vendor() -> None:
    roots = [str(SOURCES / root) for root in ("runtime", "providers", "skills")]
    code = (
        f"import sys; sys.path[:0] = {roots!r}; import routelock_skills; print(*{HEAVY!r} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_names_for_skills_are_routelocks() -> None:
    for name in ("Skill", "handler", "tool"):
        assert getattr(routelock_skills, name) is getattr(routelock, name)
    for name in ("hook", "prompt"):
        assert getattr(routelock_skills, name) is getattr(routelock.agents, name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("BaseAgent", "from routelock import Agent"), ("get_context", "from routelock import RunContext")],
)
def test_a_name_of_webagents_says_what_to_write(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': write {ours}"):
        getattr(routelock_skills, name)


def test_skills_handoff_makes_a_handler() -> None:
    """The one name that differs: webagents' decorator, and the edge of openai-agents."""

    async def answer(request: routelock.Request) -> str:
        return "Hello"

    made = routelock_skills.handoff(answer)
    assert made.expose
    assert isinstance(routelock.handoff(made), routelock.Handoff)
