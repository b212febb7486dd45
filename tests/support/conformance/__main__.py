"""The suites that others wrote, run against routelock: `make conformance`. It prints a table.

A suite that cannot run here says why. What a suite installs goes into an environment of its own.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from conformance.a2a_kit import a2a_kit, a2a_old_kit
from conformance.mcp_client import mcp_client
from conformance.mcp_server import mcp_server
from conformance.suite import A2A_OLD_REF, A2A_REF, NotRun, Result, Settings, Suite
from conformance.table import reasons, table
from conformance.unmodified_clients import CLIENTS, suite_of

HOME = Path(sys.prefix) / "conformance"

SUITES: Mapping[str, Suite] = {
    "a2a-kit": a2a_kit,
    "a2a-kit-0.3": a2a_old_kit,
    "mcp-server": mcp_server,
    "mcp-client": mcp_client,
    **{name: suite_of(name) for name in CLIENTS},
}


def main() -> int:
    """Run all suites, or those that are named, and print how each judged."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"some of: {', '.join(SUITES)}; default: all")
    parser.add_argument("--home", type=Path, default=HOME, help="the folder of what the suites install")
    parser.add_argument("--a2a-kit", type=Path, help="a checkout or git directory of A2A's conformance kit")
    parser.add_argument("--a2a-ref", default=A2A_REF, help="its branch, tag or commit for version 1.0")
    parser.add_argument("--a2a-old-ref", default=A2A_OLD_REF, help="the same for version 0.3")
    given = parser.parse_args()
    if unknown := set(given.suites) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are: {', '.join(SUITES)}")
    given.home.mkdir(parents=True, exist_ok=True)
    # what the servers of the suites log is no result
    logging.basicConfig(filename=given.home / "log", filemode="w", force=True)
    settings = Settings(
        home=given.home, a2a_kit=given.a2a_kit, a2a_ref=given.a2a_ref, a2a_old_ref=given.a2a_old_ref
    )
    return _judge(settings, given.suites or list(SUITES))


def _judge(settings: Settings, names: list[str]) -> int:
    results: list[Result] = []
    left_out: dict[str, str] = {}
    for name in names:
        print(f"== {name}", flush=True)
        try:
            results.append(SUITES[name](settings))
        except NotRun as reason:
            left_out[name] = str(reason)
            print(f"not run: {reason}", flush=True)
            continue
        for line in reasons(results[-1]):
            print(line, flush=True)
    print(f"\n{table(results)}\n")
    for name, why in left_out.items():
        print(f"not run: {name}: {why}")
    return 1 if any(set(result.failed) - set(result.known) for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
