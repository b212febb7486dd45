"""Record the cassettes of the examples anew, all of them.

    python scripts/record_cassettes.py                           against a local server with scripted replies
    python scripts/record_cassettes.py --live --model VENDOR/MODEL     against a provider; costs a few cents

Secrets are taken out on the way. Read the diff before you commit it. Files are replaced only when every
chat went well.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "examples"), str(REPO / "scripts")]

from scripted_server import MODEL, Reply, ScriptedServer  # noqa: E402

from desk.agents import TRIAGE  # noqa: E402
from desk.screen import Screen  # noqa: E402
from desk.shop import Desk  # noqa: E402
from recorded import CASSETTES, answering, ask  # noqa: E402
from routelock import Handler, Message, RoutelockError, RunConfig, Runner, RunResult  # noqa: E402
from routelock.testing import use_cassette  # noqa: E402
from routelock_providers import LiteLLM  # noqa: E402
from support_desk import QUESTIONS, chat  # noqa: E402

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

SIMPLE_TRIAGE = [
    Reply(calls=[("transfer_to_billing", {})]),
    Reply("The second charge is a reservation. Your bank lifts it within two days."),
    Reply(calls=[("transfer_to_technical", {})]),
    Reply("Red means that there is no line. Please pull the plug, wait for ten seconds, and put it back."),
    Reply("Very well, thank you! What can I do for you?"),
]
MATH_SPECIALIST = [
    Reply(calls=[("transfer_to_math_specialist", {"reason": "a definite integral"})]),
    Reply(calls=[("integrate", {"coefficients": [5, 2], "lower": 0, "upper": 10})]),
    Reply("The integral is 150: x^2 + 5x is 150 at 10 and 0 at 0."),
]
CONTEXT_PRESERVATION = [
    Reply(calls=[("transfer_to_shipping", {})]),
    Reply("Your order A-17 is in Rome, Ada."),
    Reply(calls=[("transfer_to_shipping", {})]),
    Reply("Which order do you mean?"),
]
GUARDRAILS = [
    Reply(calls=[("transfer_to_pharmacist", {})]),
    Reply("Take 400 mg, three times a day."),
    Reply(calls=[("transfer_to_pharmacist", {})]),
    Reply("It eases pain and brings a fever down. Whether it is for you is for your doctor to say."),
]

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

    async def hold() -> list[RunResult[Any]]:
        history: list[Message] = []
        results: list[RunResult[Any]] = []
        for question in QUESTIONS:
            asked: list[Message] = [*history, {"role": "user", "content": question}]
            results.append(await Runner.run(TRIAGE, asked, context=desk, run_config=config))
            history = results[-1].to_input_list()
        return results

    return anyio.run(hold)


def shown(name: str) -> Callable[[Handler, Desk], None]:
    """Return what runs one of the short examples, which need no desk."""
    show = importlib.import_module(name).show

    def run(model: Handler, desk: Desk) -> None:
        with redirect_stdout(io.StringIO()):
            anyio.run(ask, show, model)

    return run


@dataclass(frozen=True)
class Example:
    """What is recorded: how it is held, what the local server replies, and who asks it."""

    hold: Callable[[Handler, Desk], object]
    replies: list[Reply]
    asked_by: str = "LiteLLM"


SHORT = "OpenAICompatible"  # starts in a tenth of the time that litellm takes
EXAMPLES = {
    "support_desk": Example(streamed, FROM_TRIAGE),
    "support_desk_plain": Example(plain, FROM_TRIAGE),
    "support_desk_sticky": Example(sticky, STICKY),
    "simple_triage": Example(shown("simple_triage"), SIMPLE_TRIAGE, SHORT),
    "math_specialist": Example(shown("math_specialist"), MATH_SPECIALIST, SHORT),
    "context_preservation": Example(shown("context_preservation"), CONTEXT_PRESERVATION, SHORT),
    "guardrails": Example(shown("guardrails"), GUARDRAILS, SHORT),
}


def record(folder: Path, live: str | None, today: str) -> None:
    """Record every example into ``folder``.

    Args:
        folder: where the cassettes and recorded.json go.
        live: the model to ask; None asks the local server.
        today: the date to write down.

    Raises:
        RoutelockError: an example failed.
    """
    facts: dict[str, dict[str, str]] = {}
    for name, example in EXAMPLES.items():
        path = folder / f"{name}.yaml"
        if live is None:
            facts[name] = scripted(name, path, example)
        else:
            record_one(path, example.hold, LiteLLM(live))
            facts[name] = {"model": live, "asked_by": "LiteLLM", "answered_by": live}
        facts[name]["on"] = today
    (folder / "recorded.json").write_text(f"{json.dumps(facts, indent=2)}\n", "utf-8")


def scripted(name: str, path: Path, example: Example) -> dict[str, str]:
    """Record one example against the local server, and return how that was done."""
    model = MODEL if example.asked_by == SHORT else f"openai/{MODEL}"
    with ScriptedServer(example.replies) as server:
        how = {"model": model, "api_base": server.url, "asked_by": example.asked_by}
        record_one(path, example.hold, answering(how))
    if server.left:
        raise SystemExit(f"{name}: {server.left} scripted replies were not asked for")
    rename_host(path, server.address)
    base = server.url.replace(server.address, STABLE_HOST)
    return {**how, "api_base": base, "answered_by": "scripts/scripted_server.py"}


def record_one(path: Path, hold: Callable[[Handler, Desk], object], model: Handler) -> None:
    """Record one example."""
    with closing(Desk()) as desk, use_cassette(path, record_mode="rewrite"):
        hold(model, desk)


def rename_host(path: Path, address: str) -> None:
    """Give the local server a name that is the same each time, in place of its port of today."""
    path.write_text(path.read_text("utf-8").replace(address, STABLE_HOST), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record everything, and only then replace what was there."""
    parser = argparse.ArgumentParser(description="Record the cassettes of the examples anew.")
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
        except RoutelockError as error:
            print(f"record_cassettes: nothing was replaced: {error}", file=sys.stderr)
            return 1
        for made in sorted(Path(scratch).iterdir()):
            (options.into / made.name).write_bytes(made.read_bytes())
            print(f"recorded {options.into / made.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
