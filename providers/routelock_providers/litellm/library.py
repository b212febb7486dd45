"""Loading litellm, and asking it what it knows. Everything that is untyped about it ends here."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, cast

from anyio.lowlevel import RunVar
from pydantic import BaseModel

__all__ = [
    "as_dict",
    "close_litellm",
    "is_loaded",
    "load_in_a_thread",
    "load_litellm",
    "reads_no_file",
    "settle_with_the_loop",
]


_CLIENT_MODULE = "routelock_providers.litellm.client"

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or importing it calls GitHub, and a thread tries again
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # or the first call to Claude that needs one does
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",  # or importing it reads the next .env up the tree
}

_SETTINGS = (
    "suppress_debug_info",  # or it prints advice to stdout when a call fails
    "disable_hf_tokenizer_download",  # or it waits for Hugging Face to count tokens
)

_LISTENERS = ("callbacks", "success_callback", "_async_success_callback")
"""Where litellm keeps what an app wants to be told of each reply."""

_SETTLING: RunVar[AsyncGenerator[None] | None] = RunVar("routelock_litellm_settling", None)


def load_litellm() -> Any:
    """Return the litellm module, importing it first if need be: 2 to 5 seconds, and 160 MB.

    An app that cannot wait at its first model call calls this when it starts. Variables of the
    environment that are set already keep their values.
    """
    litellm: Any = sys.modules.get("litellm")
    if all(getattr(litellm, name, False) for name in _SETTINGS):
        return litellm
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm = _imported()
    for name in _SETTINGS:
        setattr(litellm, name, True)
    return litellm


def is_loaded() -> bool:
    """Whether litellm is imported, or is being imported."""
    return "litellm" in sys.modules


def reads_no_file() -> bool:
    """Whether importing litellm reads no ``.env`` file, which may have a key in it."""
    return os.environ.get("LITELLM_MODE", "PRODUCTION") == "PRODUCTION"


def _imported() -> Any:
    """Import litellm; if that is interrupted, leave nothing of it behind, so that it can be done again.

    Python forgets a package whose import failed, and keeps those of its modules that were done: they would go
    on using the half of a package that they know. So they are forgotten, too, of openai's library as well.
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
    """Import litellm, and what listens in on it, while the event loop goes on."""
    if _client_module() is None:
        await asyncio.to_thread(_load)


def _client_module() -> Any:
    """Return the module that listens in, or None before it is loaded."""
    module = sys.modules.get(_CLIENT_MODULE)
    return module if hasattr(module, "close_client") else None  # half of a module is in there as well


def _load() -> None:
    load_litellm()
    importlib.import_module(_CLIENT_MODULE)


async def settle_with_the_loop() -> None:
    """See to it that nothing which litellm has yet to log outlives the running event loop.

    litellm notes each whole reply in a queue that all loops of a process share, and hands what a loop leaves
    there to the next one, with a warning (litellm 1.105 and later). A loop that ends closes its asynchronous
    generators, and this one empties the queue.
    """
    if _SETTLING.get() is None:
        settling = _settling()
        _SETTLING.set(settling)
        await anext(settling)


async def _settling() -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with suppress(Exception):  # whatever an app's own callback raises: litellm would log it, and go on
            await _settle()
        _SETTLING.set(None)  # which would keep the loop


async def _settle() -> None:
    """Let litellm log what it has yet to log, as long as it allows itself."""
    worker: Any = importlib.import_module("litellm.litellm_core_utils.logging_worker").GLOBAL_LOGGING_WORKER
    # there is no public way to tell that another loop, in another thread, has taken the queue over
    if getattr(worker, "_bound_loop", None) is not asyncio.get_running_loop():
        return
    await worker.clear_queue()
    litellm = load_litellm()
    heard = [each for name in _LISTENERS for each in getattr(litellm, name, None) or ()]
    if any(each != "cache" for each in heard):  # which litellm adds by itself
        return  # what was taken from the queue and not begun is the app's: litellm hands it on, and says so
    if "discard_pending" in inspect.signature(worker.stop).parameters:
        await worker.stop(discard_pending=True)


async def close_litellm() -> None:
    """Close the connections of the running event loop: ours, and those that litellm keeps for itself.

    An app calls this before its event loop ends, or leaves it to the operating system. Where litellm was
    never loaded there is nothing to do. The app's own calls of litellm get new connections as well.
    """
    if "litellm" not in sys.modules:
        return
    if (client_module := _client_module()) is not None:  # an app may have asked litellm by itself alone
        await client_module.close_client()
    litellm = load_litellm()
    await _settle()
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


def as_dict(value: object) -> dict[str, Any]:
    """Return one of litellm's objects as a dict, without what is None."""
    if isinstance(value, BaseModel):
        # litellm puts other types into its fields than it declares, and pydantic would warn each time
        return value.model_dump(exclude_none=True, warnings="none")
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
