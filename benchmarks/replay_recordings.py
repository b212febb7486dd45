"""Replay a set of recorded provider responses through routelock, without network and without keys.

    python benchmarks/replay_recordings.py DIRECTORY [DIRECTORY ...]

A directory holds vcrpy cassettes, a ``manifest.json`` with one line per cassette and, optionally,
``calls/<cassette>.json`` with the calls in chat-completions terms and what must come out of them;
without these both are derived from the recorded traffic. Every call runs through ``Runner.run`` or
``Runner.run_streamed``; the calls of an agent loop run as one run, whose tools return the recorded
results. Text, tool calls, usage and errors are compared. Each miss is printed with its reason, and
last how many calls passed. The exit status is 0 only when all did.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import anyio

ROOT = Path(__file__).resolve().parent.parent
if find_spec("routelock") is None:  # run from a checkout that is not installed
    sys.path[:0] = [str(ROOT / folder) for folder in ("runtime", "providers")]

from replay.checks import misses, missing_signatures  # noqa: E402
from replay.offline import SIDE_HOSTS, Played, play, prepare_process  # noqa: E402
from replay.recordings import Recording, load  # noqa: E402
from replay.runs import Outcome, run_chain, run_single  # noqa: E402
from replay.tape import Interaction, interactions_of  # noqa: E402

from routelock.testing import CassetteMiss, no_network  # noqa: E402


@dataclass
class Score:
    """How one recording did."""

    total: int
    problems: dict[int, list[str]] = field(default_factory=dict)
    """What is wrong, by the number of the call from 0."""

    @property
    def passed(self) -> int:
        """How many calls came out as recorded."""
        return self.total - len(self.problems)

    def add(self, number: int, reasons: list[str]) -> None:
        """Note what is wrong with a call; what is wrong with all of them counts for the last."""
        if reasons:
            self.problems.setdefault(min(number, self.total - 1), []).extend(reasons)


async def replay(recording: Recording) -> Score:
    """Run the calls of one cassette and compare what comes out of each."""
    score = Score(total=len(recording.calls))
    recorded = [one for one in interactions_of(recording.path) if one.asks_a_model]
    try:
        with play(recording.path) as played:
            await _compare(recording, recorded, score)
            score.add(score.total, _left_over(recording, recorded, played))
    except CassetteMiss as miss:
        score.add(score.total, [f"not in the cassette: {str(miss).splitlines()[0]}"])
    except Exception as error:  # one recording that cannot be run must not hide the others
        score.add(score.total, [f"the replay failed: {type(error).__name__}: {error}"])
    return score


async def _compare(recording: Recording, recorded: Sequence[Interaction], score: Score) -> None:
    if recording.chain:
        outcomes = await run_chain(recording.calls, recording.tool_outputs)
    else:
        outcomes = [await run_single(call) for call in recording.calls]
    answers = final_answers(recording, recorded)
    earlier_ids: set[str] = set()
    for number, call in enumerate(recording.calls):
        outcome = outcomes[number] if number < len(outcomes) else Outcome()
        score.add(number, misses(call.expected, outcome, answers.get(number), earlier_ids))
        if recording.chain:
            earlier_ids |= {made["id"] for made in call.expected.calls if made.get("id")}


def final_answers(recording: Recording, recorded: Sequence[Interaction]) -> dict[int, Interaction]:
    """Return the recorded answer of each call, by the call's number; empty if they cannot be matched."""
    ends = list(accumulate(call.attempts for call in recording.calls))
    if not ends or ends[-1] != len(recorded):
        return {}
    return {number: recorded[end - 1] for number, end in enumerate(ends)}


def _left_over(recording: Recording, recorded: Sequence[Interaction], played: Played) -> list[str]:
    """Return what the cassette holds and the run did not ask for or send."""
    left = [f"recorded and not asked for: {asked.method} {asked.url:.120}" for asked in played.unplayed()]
    return left + (missing_signatures(recorded, played.sent) if recording.chain else [])


async def replay_all(directories: list[Path]) -> tuple[int, int]:
    """Replay every recording of every set, print the misses, and return passed and total."""
    passed = total = 0
    for directory in directories:
        for recording in load(directory):
            score = await replay(recording)
            passed, total = passed + score.passed, total + score.total
            for number, reasons in sorted(score.problems.items()):
                for reason in reasons:
                    print(f"MISS {recording.path.name} call {number + 1}/{score.total}: {reason}")
    return passed, total


def main(arguments: list[str]) -> int:
    """Return 0 when every call passed, 1 when one did not, 2 when there is nothing to replay."""
    directories = [Path(argument) for argument in arguments]
    if not directories or not all((directory / "manifest.json").is_file() for directory in directories):
        print(__doc__)
        return 2
    warnings.simplefilter("ignore")  # litellm's own, about its pydantic models
    prepare_process()
    with no_network() as blocked:
        passed, total = anyio.run(replay_all, directories)
    tried = sorted(set(blocked) - SIDE_HOSTS)
    for host in tried:
        print(f"MISS the network was tried: {host}")
    print(f"{passed}/{total}")
    return 0 if passed == total and total and not tried else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
