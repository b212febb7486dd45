"""Reading the JSON of a run from a place that nobody trusts.

What is read is checked so far that a run can be made of it: types, ranges, and that whatever refers to
something does so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pydantic

from routelock.errors import ConfigError
from routelock.handoffs.context_fields import check_version
from routelock.history.messages import checked_message
from routelock.run_document import CallerDocument, ItemDocument, Position, RunDocument

__all__ = ["checked_document"]

_MOST_SHOWN = 5


@functools.cache
def _contract() -> pydantic.TypeAdapter[RunDocument]:
    # made with the first state that is read: it takes longer than importing all of routelock
    return pydantic.TypeAdapter(RunDocument)


def checked_document(data: object) -> RunDocument:
    """Return foreign JSON data as the document of a run.

    Raises:
        ValueError: it is none, or one of a newer format. The message says where, and shows no value.
    """
    if not isinstance(data, dict):
        raise ValueError("it is no object")
    if "format_version" not in data:
        raise ValueError("format_version is missing")
    check_version(cast("dict[str, Any]", data))
    try:
        document = _contract().validate_python(data, strict=True)
    except pydantic.ValidationError as error:
        raise ValueError(_misfit(error)) from None  # its own text shows values
    document = cast(RunDocument, _as_written(document, cast(object, data)))
    _check(document)
    return document


def _as_written(checked: Any, data: Any) -> Any:
    """Return checked data in the order, and with the numbers, in which it was written: 5 does not become 5.0.

    So a state that is read and written again is the same text.
    """
    if isinstance(checked, dict) and isinstance(data, dict):
        known = cast("dict[str, object]", checked)
        given = cast("dict[str, object]", data)
        return {key: _as_written(known[key], each) for key, each in given.items() if key in known}
    if isinstance(checked, list) and isinstance(data, list):
        pairs = zip(cast("list[object]", checked), cast("list[object]", data), strict=True)
        return [_as_written(*pair) for pair in pairs]
    written: object = data
    return written if checked == data else cast(object, checked)


def _check(document: RunDocument) -> None:
    _check_items(document)
    _check_calls(document)
    _check_handoffs(document)
    for decision in document.get("decisions", ()):
        if not decision["fingerprint"] and len(decision["on"]) != 2:
            raise ValueError("decisions: one on a tool names its agent and its tool")
    for inner in document.get("within", {}).values():
        _check(inner)


def _misfit(error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(str(step)[:40] for step in each['loc'])}: {each['msg']}" for each in found[:_MOST_SHOWN]
    ]
    more = error.error_count() - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _check_items(document: RunDocument) -> None:
    items = document["items"]
    for place, item in enumerate(items):
        if item["id"] != place:
            raise ValueError(f"items[{place}] must have the id {place}")
        if "covers" in item:
            raise ValueError(f"items[{place}] is no summary: those are in views only")
        item["message"] = _message(f"items[{place}]", place, item["message"])
    for name in ("input_count", "first_of_turn"):
        if document[name] > len(items):
            raise ValueError(f"{name} is beyond the last item")
    views = [("position", document["position"]), *_named("callers", document["callers"])]
    for name, position in views:
        _check_view(f"{name}.view", position["view"], len(items))
        position["rendered"] = min(position["rendered"], len(position["view"]))


def _named(name: str, all_of: Sequence[CallerDocument]) -> Iterable[tuple[str, Position]]:
    return ((f"{name}[{place}]", each) for place, each in enumerate(all_of))


def _check_view(where: str, view: list[int | ItemDocument], count: int) -> None:
    for place, item in enumerate(view):
        if isinstance(item, int):
            if not 0 <= item < count:
                raise ValueError(f"{where}[{place}] is the place of no item")
            continue
        item["message"] = _message(f"{where}[{place}]", place, item["message"])
        for n, each in enumerate(item.get("whole", [])):
            item.get("whole", [])[n] = _message(f"{where}[{place}].whole[{n}]", n, each)
        _check_view(f"{where}[{place}].covers", item.get("covers", []), count)


def _message(where: str, place: int, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", checked_message(place, message))
    except ConfigError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}") from error


def _check_calls(document: RunDocument) -> None:
    calls = [("pending", call) for call in document["pending"]]
    calls += [("callers", caller["call"]) for caller in document["callers"]]
    for where, call in calls:
        function: Any = call.get("function")
        if not isinstance(function, dict):
            raise ValueError(f"{where}: a call has no function")
        texts = (
            call.get("id"),
            *(cast("dict[str, Any]", function).get(key) for key in ("name", "arguments")),
        )
        if not all(isinstance(text, str) for text in texts) or not call["id"]:
            raise ValueError(f"{where}: a call needs an id, a name and arguments, all text")
    for item in document["items"]:
        for call in item["message"].get("tool_calls") or ():
            if item["kind"] == "model" and not call.get("id"):
                raise ValueError(f"items[{item['id']}]: a call of the run has no id")
    _check_ids(document)
    made = {call["id"] for item in document["items"] for call in item["message"].get("tool_calls") or ()}
    if strangers := [call["id"] for call in document["pending"] if call["id"] not in made]:
        raise ValueError(f"pending: there is no call {strangers[0]!r:.60} in the items")


def _check_ids(document: RunDocument) -> None:
    """See that no decision and no answer can be taken for those of another call of the run's."""
    seen: set[str] = set()
    for item in document["items"]:
        for call in item["message"].get("tool_calls") or () if item["kind"] == "model" else ():
            if call["id"] in seen:
                raise ValueError(f"items[{item['id']}]: two calls of the run have the id {call['id']!r:.60}")
            seen.add(call["id"])


def _check_handoffs(document: RunDocument) -> None:
    known = {record["id"] for record in document["handoffs"]}
    if any(caller["narrowings"] > len(document["narrowings"]) for caller in document["callers"]):
        raise ValueError("narrowings: there are fewer than a caller has")
    for position in (document["position"], *document["callers"]):
        opened = position["open_handoff"]
        if opened is not None and (opened not in known or opened not in document["spent"]):
            raise ValueError(f"open_handoff {opened!r:.60} is no handoff of the run")
