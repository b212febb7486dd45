"""What a request says of its run: which URL is asked for, and what the remote run is to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_jsonable_python

from routelock.errors import ConfigError
from routelock.handlers.port import Request

__all__ = ["handoff_context", "tracking_headers", "url_in_context", "url_in_input"]

_RUN_ID = re.compile("[!-~]{1,200}")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/, section 3.2."""


def url_in_input(request: Request) -> str:
    """Return ``agent_url`` of what the transfer passed along; empty when there is none."""
    return _found(request.handoff_input, "agent_url")


def url_in_context(request: Request) -> str:
    """Return ``handoff_agent_url`` of the run; empty when there is none."""
    if request.context is None:
        return ""
    key = "handoff_agent_url"
    context: object = request.context.context
    own = _found(cast("Mapping[str, Any]", context), key) if isinstance(context, Mapping) else ""
    return _found(request.context.shared_memory, key) or own


def handoff_context(request: Request) -> Mapping[str, Any]:
    """Return what the body says of this run and of those before it.

    Raises:
        ConfigError: the input of the transfer cannot be JSON.
    """
    before: object = _incoming(request).get("hops")
    passed = before if isinstance(before, int) and before > 0 else 0
    context: dict[str, Any] = {
        "run_id": "" if request.context is None else request.context.run_id,
        "agent": request.agent,
        "turn": request.turn,
        "hops": passed + 1,
    }
    if (given := _as_json(request.handoff_input)) not in (None, {}):
        context["input"] = given
    return context


def tracking_headers(request: Request) -> Mapping[str, str]:
    """Return the headers that tie the remote run to this one."""
    run_id = "" if request.context is None else request.context.run_id
    parent: object = _incoming(request).get("traceparent")
    headers: dict[str, str] = {}
    if _RUN_ID.fullmatch(run_id):
        headers["x-routelock-run-id"] = run_id
    if isinstance(parent, str) and _TRACEPARENT.fullmatch(parent):
        headers["traceparent"] = parent
    return headers


def _found(given: object, key: str) -> str:
    if isinstance(given, Mapping):
        found: object = cast("Mapping[str, Any]", given).get(key)
    else:
        found = getattr(given, key, None)
    return str(found) if found else ""


def _incoming(request: Request) -> Mapping[str, Any]:
    """Return the handoff context that came in with the request that this run serves."""
    memory: Mapping[str, Any] = {} if request.context is None else request.context.shared_memory
    found: object = memory.get("handoff_origin")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _as_json(given: object) -> object:
    try:
        value: object = to_jsonable_python(given, by_alias=False, fallback=str)
    except ValueError as error:
        raise ConfigError(f"The input of a remote handoff must fit into JSON: {error}.") from error
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in cast("dict[str, Any]", value).items() if key != "agent_url"}
