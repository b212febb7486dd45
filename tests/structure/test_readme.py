"""Every Python block in the README and in docs/ runs, offline, and so does what a ``diff`` leads to.

The blocks of one page run in order and share their names, as a reader would type them; `await` may
stand outside of a function. A page of docs/tutorial goes on where the page before it ended, so the blocks
of the earlier pages run first. A block after the comment ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import types
from pathlib import Path

import anyio
import pytest
from paths import REPO
from servers import free_port

from routelock.testing import no_network

PAGES = [page for page in (REPO / "README.md", *sorted((REPO / "docs").glob("**/*.md"))) if page.exists()]

_BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\s*)?^```(?P<kind>python|diff)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


PORT = "8765"
"""The port of the pages' servers; another program may have it."""


def _blocks(page: Path, port: int) -> list[types.CodeType]:
    """The page's blocks, compiled so that a traceback shows the line of the page."""
    text = page.read_text("utf-8").replace(PORT, str(port))
    return [
        compile(
            "\n" * text.count("\n", 0, match.start("code")) + _code(match),
            str(page),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        for match in _BLOCK.finditer(text)
        if not match["skip"]
    ]


def _code(block: re.Match[str]) -> str:
    """Return a block's program; of a diff, what is there afterwards, in the same lines."""
    if block["kind"] == "python":
        return block["code"]
    return "\n".join("" if line[:1] == "-" else line[1:] for line in block["code"].splitlines()) + "\n"


def _program(page: Path) -> list[types.CodeType]:
    """Return the blocks of a page; of a step of the tutorial, below those of the earlier steps."""
    is_step = page.parent.name == "tutorial" and page.name[0].isdigit()
    earlier = [each for each in page.parent.glob("[0-9]*.md") if each.name < page.name] if is_step else []
    port = free_port()
    return [block for each in (*sorted(earlier), page) for block in _blocks(each, port)]


async def _awaited(block: types.CodeType, names: dict[str, object]) -> None:
    await eval(block, names)  # evaluating code that awaits gives a coroutine


def _run(block: types.CodeType, names: dict[str, object]) -> None:
    if block.co_flags & inspect.CO_COROUTINE:
        anyio.run(_awaited, block, names)
    else:
        exec(block, names)


NEEDS = {"mcp-server.md": "mcp_types"}
"""Modules that only newer versions of an extra have, by the page that needs them."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS.get(page.name, "routelock"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    with no_network():
        for block in _program(page):
            _run(block, names)


def test_the_program_of_the_tutorial_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks that begin with "# desk.py" are a module of their own, and have no `await`."""
    steps = sorted((REPO / "docs" / "tutorial").glob("[0-9]*.md"))
    blocks = [block["code"] for page in steps for block in _BLOCK.finditer(page.read_text("utf-8"))]
    monkeypatch.chdir(tmp_path)
    Path("desk.py").write_text("".join(code for code in blocks if code.startswith("# desk.py\n")), "utf-8")
    assert {"triage", "chat", "make_shop"} <= runpy.run_path("desk.py", run_name="desk").keys()
