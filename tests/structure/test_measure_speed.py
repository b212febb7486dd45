"""The speed benchmark runs and prints what it says it prints. How fast anything is, no test says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPO
from thoroughness import THOROUGH
from waiting import PATIENCE

SCRIPT = REPO / "benchmarks" / "measure_speed.py"
NAMES = ["by hand, no HTTP", "routelock, no HTTP", "by hand, aiohttp", "OpenAICompatible"]


def test_it_prints_a_table_of_figures_and_ratios() -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--rounds", "1", "--only", *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == NAMES
    for row in rows[2:]:
        *cells, memory = row.split("|")[2:-1]
        assert len(cells) == 6
        ratio = "" if row.startswith("| by hand") else r" \(\d+(\.\d\d)?\)"
        assert all(re.fullmatch(rf" [\d.]+ (µs|ms){ratio} ", cell) for cell in cells), row
        assert re.fullmatch(r" \d+ KiB ", memory)
    said = done.stdout.splitlines()[0]
    assert re.match(r"\d{4}-\d\d-\d\d; Python 3\.\d+\.\d+, aiohttp \d", said), "when, and with what"


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the CPU time of a server is read from /proc"
)
def test_served_agents_are_measured_under_load() -> None:
    pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
    command = [sys.executable, str(SCRIPT), "--load", "--quick", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if "|" in line][2:]
    protocols = ["chat completions", "responses", "A2A", "AG-UI", "MCP"]
    assert [row[0].strip() for row in rows] == ["bare starlette", *protocols]
    for row in rows:
        name, cells = row[0].strip(), [cell for cell in row[1:] if cell.strip()]
        assert len(cells) == (3 if name in ("AG-UI", "MCP") else 6)
        assert all(re.fullmatch(r" [\d.]+( ms)?( \([\d.]+\))? ", cell) for cell in cells), row


def test_what_is_kept_and_told_is_measured_too() -> None:
    command = [sys.executable, str(SCRIPT.parent / "measure_extras.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if "|" in line][2:]
    assert {"plain", "streamed", "journal", "trace in a file"} <= {row[0].strip() for row in rows}
    assert all(re.fullmatch(r" \d+ µs ", row[1]) and re.fullmatch(r" [+-]\d+ µs ", row[2]) for row in rows)


def test_import_long_runs_and_garbage_collection_are_measured() -> None:
    command = [sys.executable, str(SCRIPT.parent / "measure_process.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert {"`import routelock`", "2", "4", "OpenAICompatible", "LiteLLM"} <= {row[0].strip() for row in rows}


@pytest.mark.parametrize(("scenario", "given", "times"), [("long", 3, 2), ("many", 0, 1), ("many", 1, 1)])
def test_long_runs_and_many_tools_are_measured_over_http(scenario: str, given: int, times: int) -> None:
    script = SCRIPT.parent / "speed" / "scale.py"
    command = [sys.executable, str(script), "OpenAICompatible", scenario, str(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["said"], found["refused"], len(found["cpu"])) == ("Done.", 0, times)
    assert found["called"] == (given if scenario == "long" else 1)
    assert (found["longest"] > 100_000) == ((scenario, given) == ("many", 0)), "what a search is for"


def test_the_profile_names_functions_and_tells_initialisers_apart() -> None:
    command = [
        sys.executable,
        str(SCRIPT.parent / "profile_run.py"),
        "routelock, no HTTP",
        "s1",
        "--runs",
        "1",
    ]
    done = subprocess.run([*command, "--top", "200"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "loop.py" in done.stdout
    assert done.stdout.count("__init__ of ") > 1
    assert "__init__ of first_agent, graph, config" in done.stdout


_COUNTER = """#!/bin/sh
# runs what valgrind would, and has counted 7000 for each of 20 runs if they were counted alone
while [ "$1" != "${1#--}" ]; do shift; done
"$@" || exit
[ "$(cat "$0.switched")" = onoff ] && echo "==1== Collected : 140000" >&2
"""

_SWITCH = """#!/bin/sh
printf %s "$2" >> "$(dirname "$0")/valgrind.switched"
"""


def _count(**more: str) -> str:
    """Count the instructions of what is quickest, and return what is printed."""
    command = [sys.executable, str(SCRIPT.parent / "count_instructions.py")]
    only = ["--only", "by hand, no HTTP", "--scenarios", "s1"]
    env = {**os.environ, **more}
    done = subprocess.run([*command, *only], capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_instructions_of_the_start_are_not_counted(tmp_path: Path) -> None:
    for name, text in (("valgrind", _COUNTER), ("callgrind_control", _SWITCH)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    told = _count(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert told.splitlines()[-1] == "| by hand, no HTTP | 0.007 M |"


@pytest.mark.skipif(not THOROUGH, reason="valgrind takes its time")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
def test_instructions_are_counted_per_run() -> None:
    assert re.search(r"^\| by hand, no HTTP \| \d+\.\d{3} M \|$", _count(), re.MULTILINE)


def test_a_long_run_is_measured_by_halves() -> None:
    command = [sys.executable, "-c", "from speed.long_run import long_runs; print(long_runs(200))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=SCRIPT.parent)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()][2:]
    assert [row[0] for row in rows] == ["dropped", "cut", "summarised"]
    assert all(row[-1] == "0" for row in rows), "nothing was refused"
    assert all(int(row[3].split()[0]) > 1 for row in rows), "and more than one compaction was made"
