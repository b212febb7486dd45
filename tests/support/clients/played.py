"""What a client saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clients.cast import Log


@dataclass(frozen=True)
class Played:
    """What a client saw, by scene, and what happened on the server meanwhile."""

    client: str
    facts: dict[str, Any]
    log: Log

    def __getitem__(self, scene: str) -> Any:
        facts = self.facts[scene]
        assert "failed" not in facts, facts["failed"]
        return facts
