"""The shop: its database, and the tools that work on it for one customer."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from routelock import RunContext, tool

__all__ = [
    "Desk",
    "Refused",
    "check_devices",
    "issue_refund",
    "list_orders",
    "look_up_order",
    "restart_device",
    "search_manual",
]

SHOP = Path(__file__).with_name("shop.sql")

OrderId = Annotated[str, "such as A-1001"]


class Refused(Exception):
    """Something that the shop does not do; the text is for the model that asked for it."""


class Desk:
    """The context of a run: the shop's database and the customer who is logged in. No model sees it."""

    def __init__(self, customer: str = "ada") -> None:
        self.customer = customer
        self._lock = threading.Lock()  # tools that are not async run in threads, several at a time
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(SHOP.read_text("utf-8"))

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Open the database for changes: all changes of the block are made, or none."""
        with self._lock, self._db:
            yield self._db

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Return what a query finds."""
        with self._lock:
            return [dict(row) for row in self._db.execute(sql, values)]

    def order(self, order_id: str) -> dict[str, Any]:
        """Return one of the customer's orders; an order of another customer counts as none."""
        sql = "SELECT order_id, item, price, state FROM shown_orders WHERE customer = ? AND order_id = ?"
        for found in self.rows(sql, self.customer, order_id.strip().upper()):
            return found
        raise Refused(f"the customer has no order {order_id!r}")

    def close(self) -> None:
        """Close the database."""
        self._db.close()


# -- tools; the model gets what they raise, and can correct its call --


@tool
def list_orders(run: RunContext[Desk]) -> list[dict[str, Any]]:
    """List all orders of the customer."""
    sql = "SELECT order_id, item, price, state FROM shown_orders WHERE customer = ? ORDER BY order_id"
    return run.context.rows(sql, run.context.customer)


@tool
def look_up_order(run: RunContext[Desk], order_id: OrderId) -> dict[str, Any]:
    """Look up one order: what it is, what it cost and where it is."""
    return run.context.order(order_id)


@tool
def issue_refund(
    run: RunContext[Desk], order_id: OrderId, reason: Annotated[str, "why, in a few words"]
) -> str:
    """Pay an order back in full. This works once, and only after the order was delivered."""
    order = run.context.order(order_id)
    if not reason.strip():
        raise Refused("a refund needs a reason")
    with run.context.transaction() as db:
        # one statement checks the state and changes it: of two calls at the same time, only one succeeds
        sql = "UPDATE orders SET state = 'refunded' WHERE order_id = ? AND state = 'delivered'"
        booked = db.execute(sql, [order["order_id"]]).rowcount
        if booked:
            sql = "INSERT INTO refunds SELECT order_id, cents, ? FROM orders WHERE order_id = ?"
            db.execute(sql, [reason.strip(), order["order_id"]])
    if not booked:
        state = run.context.order(order_id)["state"]
        raise Refused(f"order {order['order_id']} is {state}; only a delivered order can be refunded")
    return f"Booked: {order['price']} for order {order['order_id']}."


@tool
def search_manual(
    run: RunContext[Desk], words: Annotated[str, "what to look for, such as: lamp flicker"]
) -> list[dict[str, Any]] | str:
    """Search the manual of all products."""
    wanted = set(re.findall(r"\w{3,}", words.lower()))
    pages = run.context.rows("SELECT topic, advice FROM manual ORDER BY topic")
    hits = {page["topic"]: len(wanted & set(re.findall(r"\w+", page["topic"].lower()))) for page in pages}
    most = max(hits.values(), default=0)
    return [
        page for page in pages if hits[page["topic"]] == most > 0
    ] or "The manual says nothing about that."


@tool
def check_devices(run: RunContext[Desk]) -> list[dict[str, Any]]:
    """List the customer's devices with what their lights show now."""
    sql = "SELECT serial, model, light FROM devices WHERE customer = ? ORDER BY serial"
    return run.context.rows(sql, run.context.customer)


@tool
def restart_device(run: RunContext[Desk], serial: Annotated[str, "such as H-10"]) -> str:
    """Restart a device from afar."""
    with run.context.transaction() as db:
        sql = "SELECT light FROM devices WHERE serial = ? AND customer = ?"
        device = db.execute(sql, [serial, run.context.customer]).fetchone()
        if device is None:
            raise Refused(f"the customer has no device {serial!r}")
        if device["light"] == "blue":
            raise Refused(f"{serial} is updating itself and must not be restarted")
        db.execute("UPDATE devices SET light = 'green', restarts = restarts + 1 WHERE serial = ?", [serial])
    return f"{serial} has restarted, its light is green."
