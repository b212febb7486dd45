"""The numbers of messages in a trace."""

from __future__ import annotations

from typing import Any

from routelock.history.messages import Message, RunItem
from routelock.run.records import Shown
from routelock.tracing.message_numbers import MessageNumbers


class ReadCounted(list[Message]):
    """A list that counts how many messages were read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        found: Any = super().__getitem__(place)
        self.reads += len(found) if isinstance(place, slice) else 1
        return found


def test_each_message_of_a_long_run_is_looked_at_once() -> None:
    numbers, growing, items = MessageNumbers("r"), ReadCounted(), list[RunItem]()
    for turn in range(20):
        new = [RunItem(id=len(items) + n, kind="model", message={"role": "user"}) for n in (0, 1)]
        items += new
        assert [one.id for one in numbers.new_items(items, 1.0)] == [2 * turn, 2 * turn + 1]
        growing += [item.message for item in new]
        shown = Shown({"role": "system", "content": "Be kind."}, growing, len(growing))
        seen = numbers.of_call((), shown, items, 1.0)
        assert (seen.shown, seen.removed, len(seen.unwritten)) == (((-1, 2 * turn + 1),), (), turn == 0)
    assert growing.reads == len(growing)
