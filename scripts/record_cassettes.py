"""Record the cassettes of the support desk anew, all of them.

    python scripts/record_cassettes.py                           against a local server with scripted replies
    python scripts/record_cassettes.py --live --model VENDOR/MODEL     against a provider; costs a few cents

Secrets are taken out on the way. Read the diff before you commit it. Files are replaced only when every
chat went well.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "examples"), str(REPO / "scripts")]

from scripted_server import MODEL, Reply, ScriptedServer  # noqa: E402

from desk.agents import TRIAGE  # noqa: E402
from desk.screen import Screen  # noqa: E402
from desk.shop import Desk  # noqa: E402
from interlock import Handler, InterlockError, Message, RunConfig, Runner, RunResult  # noqa: E402
from interlock.testing import use_cassette  # noqa: E402
from interlock_providers.litellm import LiteLLM  # noqa: E402
from support_desk import CASSETTES, QUESTIONS, chat  # noqa: E402

STABLE_HOST = "scripted-model.invalid"  # stands for the local server, whose port changes; it never resolves

SENSOR = {"order_id": "A-1003", "reason": "changed their mind"}
LAMP = {"order_id": "A-1002", "reason": "arrived with a cracked shade"}

REFUSE_SENSOR = [
    Reply(calls=[("list_orders", {})]),
    Reply(calls=[("transfer_to_refunds", SENSOR)]),
    Reply(calls=[("issue_refund", SENSOR)]),
    Reply(
        "I cannot refund the door sensor yet: A-1003 is still on its way to you. Once it has been delivered, "
        "write to us again and I will book it."
    ),
]
REPAIR_HUB = [
    Reply(calls=[("transfer_to_technical", {})]),
    Reply(
        "Let me see what your hub says.",
        [("check_devices", {}), ("search_manual", {"words": "hub amber light"})],
    ),
    Reply(calls=[("restart_device", {"serial": "H-77"})]),
    Reply(
        "Amber means that the hub has lost the Wi-Fi. I have restarted it from here, and its light is green "
        "now. If it turns amber again, tell me how far it stands from your router."
    ),
]
REFUND_LAMP = [
    Reply(calls=[("transfer_to_refunds", LAMP)]),
    Reply(calls=[("look_up_order", {"order_id": "A-1002"})]),
    Reply("I am sorry about the shade. One moment, I am booking it.", [("issue_refund", LAMP)]),
    Reply(
        "Done: 49.90 EUR are on their way back to your card that ends in 1111, which takes three to five "
        "days. You may keep the lamp."
    ),
]
SUM_UP = [
    Reply(calls=[("list_orders", {})]),
    Reply("One of them: A-1002, the lamp, 49.90 EUR. A-1003 is still on its way to you and is not refunded."),
]
BACK = Reply(calls=[("transfer_to_triage", {})])

FROM_TRIAGE = [*REFUSE_SENSOR, *REPAIR_HUB, *REFUND_LAMP, *SUM_UP]
STICKY = [*REFUSE_SENSOR, BACK, *REPAIR_HUB, BACK, *REFUND_LAMP, BACK, *SUM_UP]


def streamed(model: Handler, desk: Desk) -> None:
    """Hold the chat as the example does."""
    chat(QUESTIONS, model, desk, Screen(io.StringIO()))


def sticky(model: Handler, desk: Desk) -> None:
    """Hold the chat as the example does with --sticky."""
    chat(QUESTIONS, model, desk, Screen(io.StringIO()), sticky=True)


def plain(model: Handler, desk: Desk) -> list[RunResult[Any]]:
    """Hold the chat without streaming."""
    config = RunConfig(model=model)

    async def ask() -> list[RunResult[Any]]:
        history: list[Message] = []
        results: list[RunResult[Any]] = []
        for question in QUESTIONS:
            asked: list[Message] = [*history, {"role": "user", "content": question}]
            results.append(await Runner.run(TRIAGE, asked, context=desk, run_config=config))
            history = results[-1].to_input_list()
        return results

    return anyio.run(ask)


CHATS: dict[str, tuple[Callable[[Handler, Desk], object], list[Reply]]] = {
    "support_desk": (streamed, FROM_TRIAGE),
    "support_desk_plain": (plain, FROM_TRIAGE),
    "support_desk_sticky": (sticky, STICKY),
}


def record(folder: Path, live: str | None, today: str) -> None:
    """Record every chat into ``folder``.

    Args:
        folder: where the cassettes and recorded.json go.
        live: the model to ask; None asks the local server.
        today: the date to write down.

    Raises:
        InterlockError: a chat failed.
    """
    facts: dict[str, dict[str, str]] = {}
    for name, (hold, replies) in CHATS.items():
        path = folder / f"{name}.yaml"
        if live is None:
            with ScriptedServer(replies) as server:
                record_one(path, hold, LiteLLM(f"openai/{MODEL}", api_base=server.url, api_key="none"))
            unused = server.left
            if unused:
                raise SystemExit(f"{name}: {unused} scripted replies were not asked for")
            rename_host(path, server.address)
            base = server.url.replace(server.address, STABLE_HOST)
            facts[name] = {
                "model": f"openai/{MODEL}",
                "api_base": base,
                "answered_by": "scripts/scripted_server.py",
            }
        else:
            record_one(path, hold, LiteLLM(live))
            facts[name] = {"model": live, "answered_by": live}
        facts[name]["on"] = today
    (folder / "recorded.json").write_text(f"{json.dumps(facts, indent=2)}\n", "utf-8")


def record_one(path: Path, hold: Callable[[Handler, Desk], object], model: Handler) -> None:
    """Record one chat."""
    with closing(Desk()) as desk, use_cassette(path, mode="record"):
        hold(model, desk)


def rename_host(path: Path, address: str) -> None:
    """Give the local server a name that is the same each time, in place of its port of today."""
    path.write_text(path.read_text("utf-8").replace(address, STABLE_HOST), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record everything, and only then replace what was there."""
    parser = argparse.ArgumentParser(description="Record the cassettes of the support desk anew.")
    parser.add_argument("--live", action="store_true", help="ask a provider; its key is in the environment")
    parser.add_argument("--model", metavar="VENDOR/MODEL", help="which model, with --live")
    parser.add_argument("--into", type=Path, default=CASSETTES, metavar="FOLDER", help="where to put them")
    options = parser.parse_args(arguments)
    if options.live != bool(options.model):
        parser.error("--live and --model VENDOR/MODEL go together")
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            record(Path(scratch), options.model, datetime.datetime.now(datetime.UTC).date().isoformat())
        except InterlockError as error:
            print(f"record_cassettes: nothing was replaced: {error}", file=sys.stderr)
            return 1
        for made in sorted(Path(scratch).iterdir()):
            (options.into / made.name).write_bytes(made.read_bytes())
            print(f"recorded {options.into / made.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
