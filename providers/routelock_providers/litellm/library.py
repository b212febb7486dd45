"""Loads litellm, and closes its connections."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio.lowlevel import RunVar
from pydantic import BaseModel

__all__ = [
    "as_dict",
    "close_litellm",
    "is_loaded",
    "load_in_a_thread",
    "load_litellm",
    "reads_no_file",
    "register_event_loop",
]


_CLIENT_MODULE = "routelock_providers.litellm.client"

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise importing litellm calls GitHub, and a thread retries
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # otherwise a call to Claude with a beta header does
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",  # otherwise importing it reads the nearest .env file
}

_SETTINGS = (
    "suppress_debug_info",  # otherwise it prints advice to stdout when a call fails
    "disable_hf_tokenizer_download",  # otherwise counting tokens waits for Hugging Face
)

_CALLBACKS = ("callbacks", "success_callback", "_async_success_callback")
"""The lists in which litellm keeps an app's callbacks for replies."""

_QUEUE_CHANGE = "LoggingWorker: event loop changed"
"""How litellm's warning begins that its log queue goes to another event loop."""

_NO_CREDENTIALS = "Failed to load vertex credentials"
"""How litellm's report begins of Google's credentials that are missing; a traceback of 20 lines follows."""

_STOP_SECONDS = 1.0

_SETTLER: RunVar[AsyncGenerator[None] | None] = RunVar("routelock_litellm_settler", None)


def load_litellm() -> Any:
    """Return the litellm module. The first call imports it, which takes 2 to 5 seconds and 160 MB.

    An app that cannot wait at its first model call calls this when it starts. Environment variables that are
    set keep their values.
    """
    litellm: Any = sys.modules.get("litellm")
    if all(getattr(litellm, name, False) for name in _SETTINGS):
        return litellm
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm = _imported()
    logging.getLogger("LiteLLM").addFilter(_is_news)
    for name in _SETTINGS:
        setattr(litellm, name, True)
    return litellm


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for records of litellm that tell an app nothing.

    One is its warning that another event loop goes on with its log queue: where runs are in several threads
    this happens all the time, and nothing is lost. Another is of an exception that it raises as well.
    """
    return not str(record.msg).startswith((_QUEUE_CHANGE, _NO_CREDENTIALS))


def is_loaded() -> bool:
    """Return whether litellm is imported, or is being imported."""
    return "litellm" in sys.modules


def reads_no_file() -> bool:
    """Return whether importing litellm reads no ``.env`` file, which may hold a key."""
    return os.environ.get("LITELLM_MODE", "PRODUCTION") == "PRODUCTION"


def _imported() -> Any:
    """Import litellm. After an interrupted import, remove its modules, so that it can be imported again.

    Python removes a package whose import failed and keeps its finished modules, which would go on using the
    half package. So they are removed too, also those of the openai library.
    """
    before = frozenset(sys.modules)
    try:
        return importlib.import_module("litellm")
    except BaseException:
        for name in sys.modules.keys() - before:
            if name.partition(".")[0] not in sys.modules:
                del sys.modules[name]
        raise


async def load_in_a_thread() -> None:
    """Import litellm and our client for it in a thread, so that the event loop is not blocked."""
    if _client_module() is None:
        await asyncio.to_thread(_load)


def _client_module() -> Any:
    """Return the module of our client, or None before it is loaded."""
    module = sys.modules.get(_CLIENT_MODULE)
    return module if hasattr(module, "close_client") else None  # the module may still be importing


def _load() -> None:
    load_litellm()
    importlib.import_module(_CLIENT_MODULE)


async def register_event_loop() -> None:
    """Register the running event loop, so that litellm's log queue is emptied when the loop ends.

    litellm puts each whole reply into a queue that all loops of a process share. Replies that one loop leaves
    there go to the next one, with a warning (litellm 1.105 and later). A loop that ends closes its
    asynchronous generators, and this one empties the queue.
    """
    if _SETTLER.get() is None:
        emptier = _empty_log_queue_at_end()
        _SETTLER.set(emptier)
        await anext(emptier)


async def _empty_log_queue_at_end() -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with suppress(Exception):  # a callback of the app may raise; litellm would log that and continue
            await _empty_log_queue()
        _SETTLER.set(None)  # the generator refers to the loop


async def _empty_log_queue() -> None:
    """Let litellm empty its log queue, within its own time limit."""
    worker: Any = importlib.import_module("litellm.litellm_core_utils.logging_worker").GLOBAL_LOGGING_WORKER
    if not _belongs_to_this_loop(worker):
        return
    await worker.clear_queue()
    litellm = load_litellm()
    callbacks = [each for name in _CALLBACKS for each in getattr(litellm, name, None) or ()]
    if any(each != "cache" for each in callbacks):  # litellm adds "cache" itself
        return  # the rest of the queue is for the app's callbacks; litellm passes it on, with a warning
    if "discard_pending" in inspect.signature(worker.stop).parameters and _belongs_to_this_loop(worker):
        with anyio.move_on_after(_STOP_SECONDS):  # it would wait for ever for tasks of another thread's loop
            await worker.stop(discard_pending=True)


def _belongs_to_this_loop(worker: Any) -> bool:
    """Return whether no loop of another thread has taken over litellm's log queue.

    litellm has no public way to see it.
    """
    return getattr(worker, "_bound_loop", None) is asyncio.get_running_loop()


async def close_litellm() -> None:
    """Close the connections of the running event loop: ours, and those of litellm.

    An app may call this before its event loop ends. It does nothing if litellm was never loaded. The app's
    own calls of litellm get new connections as well.
    """
    if "litellm" not in sys.modules:
        return
    if (client_module := _client_module()) is not None:  # None if only the app itself has used litellm
        await client_module.close_client()
    litellm = load_litellm()
    await _empty_log_queue()
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


def as_dict(value: object) -> dict[str, Any]:
    """Return an object of litellm as a dict, without the keys whose value is None."""
    if isinstance(value, BaseModel):
        # litellm's fields hold other types than it declares, and pydantic would warn each time
        return value.model_dump(exclude_none=True, warnings="none")
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
