"""Makes tool names from agent and handler names: stable, short, and different for different names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Set
from typing import Any, cast

from routelock._hints import hint_attributes
from routelock._peer_names import LIST

__all__ = [
    "LONGEST_TOOL_NAME",
    "TRANSFER_PREFIX",
    "FrozenList",
    "capable_name",
    "frozen_list",
    "in_order",
    "litellm_name",
    "name_words",
    "odd_tool_name",
    "slug",
    "transfer_tool_name",
]


TRANSFER_PREFIX = "transfer_to_"

LONGEST_TOOL_NAME = 64  # OpenAI, Anthropic and Gemini refuse longer ones

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


def slug(name: str, *, longest: int = LONGEST_TOOL_NAME) -> str:
    """Return ``name`` as ``[a-z0-9_]``, at most ``longest`` characters long.

    Upper case and the separators space, dash and dot fold into one form, so "Refund Agent" and "refund-agent"
    give the same slug. An agent with both is a configuration error. If more than that is lost (other scripts,
    emoji, length), six hex digits of the name's SHA-1 are appended. So different names stay different, and a
    name has the same slug in every process.
    """
    folded = re.sub(r"[^a-z0-9_]", "_", name.lower())
    lossy = re.search(r"[^A-Za-z0-9_ .\-]", name) is not None or not name.strip(" .-_")
    if not lossy and len(folded) <= longest:
        return folded
    import hashlib  # noqa: PLC0415 - loads OpenSSL, for few names

    digest = hashlib.sha1(name.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[:6]
    return f"{folded[: longest - 7]}_{digest}"


def transfer_tool_name(target: str) -> str:
    """Return the name of the tool that transfers to ``target``: ``transfer_to_<slug>``."""
    return TRANSFER_PREFIX + slug(target, longest=LONGEST_TOOL_NAME - len(TRANSFER_PREFIX))


def capable_name(capabilities: Collection[str]) -> str:
    """Return the name of a target that is chosen by capabilities: ``agent with sql and python``."""
    return f"agent with {' and '.join(capabilities)}"


def litellm_name(model: str) -> str:
    """Return the name of the bundled handler for a model string."""
    return f"litellm_{model.replace('/', '_')}"


def name_words(name: str) -> list[str]:
    """Return the words of a name or a text in lower case; it is split at underscores and in camelCase."""
    return [word.lower() for word in _WORD.findall(name)]


def odd_tool_name(name: str) -> str:
    """Return what providers do not accept in a tool's name; an empty text if they accept it."""
    if not isinstance(cast(object, name), str):
        return f"the type {type(name).__name__}"
    strange = "".join(sorted(set(re.sub(r"[a-zA-Z0-9_-]", "", name))))
    if strange:
        return repr(strange)
    return "" if 1 <= len(name) <= LONGEST_TOOL_NAME else f"{len(name)} characters"


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Return names as a tuple. A set is sorted: its own order differs from process to process."""
    return tuple(sorted(names) if isinstance(names, Set) else names)


@hint_attributes(LIST)
class FrozenList(tuple[Any, ...]):
    """A tuple whose missing list methods raise an error that says what to write instead."""

    __slots__ = ()


def frozen_list(given: Iterable[Any]) -> tuple[Any, ...]:
    """Return a list as a tuple that later changes do not reach; a set of names is sorted."""
    is_names = isinstance(given, Set) and all(isinstance(each, str) for each in given)
    return FrozenList(in_order(cast("Set[str]", given)) if is_names else given)
