"""How a worker works."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError
from routelock.run.config import RunConfig

__all__ = ["WorkerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works."""

    at_once: int = 8
    """So many runs of each agent are carried out by one worker at a time; the others wait in the queue."""
    name: str = "routelock"
    """Of the application, in the database: small letters, digits, - and _."""
    executor_id: str | None = None
    """What this process is called; no two that live may have one name. None makes one up."""
    poll: float = 0.1
    """Seconds between two looks for work."""
    watch: float = 0.3
    """Seconds between two looks for dead workers: their runs go on after two of these and some moments."""
    lease: float = 15.0
    """Seconds without a sign of life after which a worker is taken for dead whose process is there still,
    and frozen. A third of it is how long a transaction may stand still, and how long a run may be claimed by
    this worker without being carried out."""
    grace: float = 5.0
    """Seconds in which nobody is declared dead after the database was away."""
    drain: int = 0
    """Seconds that runs may go on when the worker is stopped; what is left then goes on elsewhere."""
    elsewhere: Collection[str] = ()
    """Names of agents that other workers serve: a run that is handed over to one of them goes into its queue,
    and on with one of those workers. Of such an agent this worker needs the name alone."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """For all runs; without ``run_id`` and ``executor``."""
    hooks: RunHooks | None = None
    context: Callable[[Any], Any] | None = None
    """Makes the context object of a run from the JSON that the client gave; None takes the JSON itself."""

    def __post_init__(self) -> None:
        if self.run_config.executor is not None or self.run_config.run_id is not None:
            raise ConfigError("A worker sets run_id and executor of the RunConfig itself: leave them out.")
        if not self.lease > 4 * self.watch > 0:
            raise ConfigError(
                f"WorkerSettings: lease must be more than four times watch, not {self.lease!r} with a watch "
                f"of {self.watch!r}: a worker gives a sign of life every watch seconds."
            )
