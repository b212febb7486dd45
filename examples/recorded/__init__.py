"""What the recorded examples share: answers from a cassette, or from a model if you ask for one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import anyio

from routelock import Handler
from routelock.testing import use_cassette
from routelock_providers import LiteLLM, OpenAICompatible

__all__ = ["CASSETTES", "Show", "answering", "ask", "play", "replayed"]

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes"


Show = Callable[[str | Handler], Awaitable[None]]
"""An example: it is given the model that answers, or the name of one."""


def play(name: str, show: Show) -> None:
    """Run an example.

    Args:
        name: of its cassette.
        show: the example.
    """
    parser = argparse.ArgumentParser(prog=name, description="Replays a recording, if you do not say else.")
    parser.add_argument("--live", metavar="VENDOR/MODEL", help="ask a model; its key is in the environment")
    live: str | None = parser.parse_args().live
    source: AbstractContextManager[str | Handler] = nullcontext(live) if live else replayed(name)
    with source as model:
        anyio.run(ask, show, model)


async def ask(show: Show, model: str | Handler) -> None:
    """Show one example, and close the connections."""
    try:
        await show(model)
    finally:
        if isinstance(model, OpenAICompatible):
            await model.aclose()


@contextmanager
def replayed(recording: str, *, whole: bool = True) -> Generator[Handler]:
    """Yield the model of a recording. It answers from the cassette and reaches no network.

    Args:
        recording: the cassette's name.
        whole: whether everything in it has to be asked for.
    """
    facts: dict[str, dict[str, str]] = json.loads((CASSETTES / "recorded.json").read_text("utf-8"))
    with use_cassette(CASSETTES / f"{recording}.yaml", record_mode="none", allow_unplayed=not whole):
        yield answering(facts[recording])


def answering(how: Mapping[str, str]) -> Handler:
    """Return what asked when a cassette was recorded, with a key that opens nothing; see recorded.json."""
    model, base = how["model"], how.get("api_base")
    if how["asked_by"] == "OpenAICompatible":
        return OpenAICompatible(model, base_url=base, api_key="replayed")
    return LiteLLM(model, api_base=base, api_key="replayed")  # it asks for a key before it asks the network
