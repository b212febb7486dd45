"""Pages of published front ends, built with esbuild and served beside the agents that they ask."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from clients.served import PATIENCE, PROGRAMS, client_folder, served

_HTML = "<!doctype html><meta charset=utf-8><title>chat</title><main></main><script src=page.js></script>"


def _built(program: str, client: str, folder: Path) -> Path:
    """Build the page of a client that scripts/clients has installed, without its styles."""
    installed = client_folder(client)
    modules = installed / "node_modules"
    subprocess.run(
        [
            str(installed / "node"),
            str(modules / "esbuild" / "bin" / "esbuild"),
            str(PROGRAMS / program),
            "--bundle",
            "--jsx=automatic",
            "--loader:.css=empty",
            "--define:process.env.NODE_ENV='production'",
            "--log-level=error",
            f"--outfile={folder / 'page.js'}",
        ],
        env={"NODE_PATH": str(modules), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=PATIENCE,
    )
    (folder / "index.html").write_text(_HTML, "utf-8")
    return folder


@contextmanager
def _assistant_ui(app: Any, names: Sequence[str], folder: Path) -> Iterator[str]:
    """The page asks the agents itself, so it has their address."""
    from starlette.staticfiles import StaticFiles

    app.mount("/page", StaticFiles(directory=_built("assistant_ui_page.jsx", "page", folder), html=True))
    with served(app) as url:
        yield url.removesuffix("/v1") + "/page/"


@contextmanager
def _copilotkit(app: Any, names: Sequence[str], folder: Path) -> Iterator[str]:
    """The page asks the runtime, a process of its own, which asks the agents."""
    page, installed = _built("copilotkit_page.jsx", "copilotkit", folder), client_folder("copilotkit")
    program = [
        str(installed / "node"),
        str(PROGRAMS / "copilotkit_runtime.mjs"),
        str(installed / "node_modules"),
    ]
    quiet = {"COPILOTKIT_TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "1"}
    with (
        served(app) as url,
        subprocess.Popen(
            [*map(str, program), url.removesuffix("/v1"), str(page), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **quiet},
            encoding="utf-8",
        ) as runtime,
    ):
        assert runtime.stdin is not None
        assert runtime.stdout is not None
        with runtime.stdin:
            yield runtime.stdout.readline().strip()


FRONT_ENDS: dict[str, Callable[[Any, Sequence[str], Path], AbstractContextManager[str]]] = {
    "assistant-ui": _assistant_ui,
    "CopilotKit": _copilotkit,
}
"""Each serves an app with agents of some names, and yields the address of the page."""
