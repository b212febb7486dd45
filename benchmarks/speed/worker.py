"""One contender in an interpreter of its own: tasks come as lines of JSON, and so do the measurements.

{"scenario": "s1", "runs": 20, "at_once": false, "text": "..."}
{"cpu": seconds of CPU per run, "memory": bytes per run at the peak}
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def made(name: str, url: str) -> Any:
    """Return ``module.Class`` made for this server."""
    module, _, kind = name.partition(".")
    return getattr(importlib.import_module(f"speed.{module}"), kind)(url)


async def _measured(contender: Any, task: dict[str, Any]) -> dict[str, Any]:
    work, text, runs = getattr(contender, task["scenario"]), task["text"], task["runs"]
    gc.collect()
    _forget_peak()
    before, began = _memory("VmRSS"), time.process_time()
    if task["at_once"]:
        said = await asyncio.gather(*(work(text) for _ in range(runs)))
    else:
        said = [await work(text) for _ in range(runs)]
    cpu = (time.process_time() - began) / runs
    wrong = [each for each in said if each != task["expected"]]
    if wrong:
        raise RuntimeError(f"expected {task['expected']!r}, got {wrong[0]!r:.200}")
    return {"cpu": cpu, "memory": (_memory("VmHWM") - before) / runs}


def _forget_peak() -> None:
    """Let the peak be that of what comes now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "utf-8")


def _memory(what: str) -> int:
    """Return a figure of the process in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what)), 0)


async def main(name: str, url: str) -> None:
    """Do the tasks until there are no more."""
    contender = made(name, url)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            said = await asyncio.create_task(_measured(contender, json.loads(line)))
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(said), flush=True)
    await contender.aclose()


if __name__ == "__main__":
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    sys.path[:0] = [str(_ROOT / folder) for folder in ("benchmarks", "runtime", "providers")]
    asyncio.run(main(*sys.argv[1:]))
