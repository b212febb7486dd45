"""A `HandoffStore` over SQLite, as an app might write one: the contract is enough for two processes.

python sqlite_handoff_store.py FILE AGENT    waits for one handoff to AGENT, accepts it, and completes it
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio

from routelock import HandoffRequest
from routelock.errors import HandoffStateError
from routelock.handoff_request import HandoffResponse, HandoffStatus
from routelock.handoffs.context import deserialize_context
from routelock.handoffs.store import incoming

TABLE = """
CREATE TABLE IF NOT EXISTS handoffs (
    id TEXT PRIMARY KEY, target TEXT, priority INTEGER, number INTEGER, request TEXT,
    status TEXT DEFAULT 'PENDING', reason TEXT, metadata TEXT DEFAULT '{}'
)
"""


class SqliteStore:
    """Each method opens the file anew, so any number of processes may. It knows no timeouts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._transaction() as db:
            db.execute(TABLE)

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def request(self, request: HandoffRequest) -> str:
        handoff_id = f"{request.request_id}:{request.target_name}"
        values = handoff_id, request.target_name, request.priority, json.dumps(request.to_dict())
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO handoffs (id, target, priority, request, number)"
                " VALUES (?, ?, ?, ?, (SELECT COUNT(*) FROM handoffs))",
                values,
            )
        return handoff_id

    def pending(self, agent: str) -> list[tuple[str, HandoffRequest]]:
        with self._transaction() as db:
            sql = (
                "SELECT id, request FROM handoffs WHERE target = ? AND status = 'PENDING'"
                " ORDER BY priority, number"
            )
            found = db.execute(sql, [agent]).fetchall()
        return [(handoff_id, HandoffRequest.from_dict(json.loads(text))) for handoff_id, text in found]

    def status(self, handoff_id: str) -> HandoffResponse:
        with self._transaction() as db:
            return self._response(db, handoff_id)

    def _response(self, db: sqlite3.Connection, handoff_id: str) -> HandoffResponse:
        sql = "SELECT status, reason, metadata FROM handoffs WHERE id = ?"
        for status, reason, metadata in db.execute(sql, [handoff_id]):
            return HandoffResponse(
                status=HandoffStatus(status),
                handoff_id=handoff_id,
                rejection_reason=reason,
                metadata=json.loads(metadata),
            )
        raise HandoffStateError(f"Handoff {handoff_id} not found")

    def _move(
        self, handoff_id: str, status: HandoffStatus, reason: str | None, metadata: Mapping[str, Any] | None
    ) -> HandoffResponse:
        with self._transaction() as db:
            now = self._response(db, handoff_id)
            now.status.to(status, handoff_id)
            told = json.dumps({**now.metadata, **(metadata or {})})
            sql = "UPDATE handoffs SET status = ?, reason = ?, metadata = ? WHERE id = ?"
            db.execute(sql, [status.value, reason, told, handoff_id])
            return self._response(db, handoff_id)

    def accept(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        return self._move(handoff_id, HandoffStatus.ACCEPTED, None, metadata)

    def reject(self, handoff_id: str, reason: str) -> HandoffResponse:
        return self._move(handoff_id, HandoffStatus.REJECTED, reason, None)

    def expire(self, handoff_id: str) -> HandoffResponse:
        return self._move(handoff_id, HandoffStatus.EXPIRED, "the caller no longer waits for it", None)

    def complete(self, handoff_id: str, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        return self._move(handoff_id, HandoffStatus.COMPLETED, None, metadata)

    def fail(self, handoff_id: str, reason: str) -> HandoffResponse:
        return self._move(handoff_id, HandoffStatus.FAILED, reason, None)

    def clear(self) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM handoffs")


async def work(path: Path, agent: str) -> None:
    """Do one piece of work, in whatever process this is."""
    store = SqliteStore(path)
    handoff_id, request = await incoming(store, agent, poll=0.02)
    store.accept(handoff_id, {"reason": request.reason})
    if request.context_snapshot is not None:
        read = deserialize_context(request.context_snapshot)
        store.complete(handoff_id, {"messages": len(read.conversation_history)})


if __name__ == "__main__":
    anyio.run(work, Path(sys.argv[1]), sys.argv[2])
