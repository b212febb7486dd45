"""Claude and Gemini through litellm's translation, without litellm's wrapper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock_providers.litellm import LiteLLM
from interlock_providers.litellm_exchange import Exchange
from interlock_providers.translation import ask, can_ask

__all__ = ["Translated"]


class _Exchange(Exchange):
    """An exchange that leaves out the wrapper where that changes nothing."""

    async def _asked(self, arguments: Mapping[str, Any]) -> Any:
        if self._tap is not None and can_ask(self._litellm, self._target.provider, self._target.name):
            return await ask(self._litellm, arguments)
        return await super()._asked(arguments)


class Translated(LiteLLM):
    """A `LiteLLM` that costs less: litellm translates, and does nothing else.

    It takes the same arguments, sends the same bytes and gives the same replies and errors. Left out is
    what ``litellm.acompletion`` does around a call: logging, callbacks, caching, budgets and the copying of
    each chunk. So it is for Claude and Gemini at Anthropic, Google and Bedrock, and for Nova. A call to any
    other model is an ordinary one, and so is one with a connection of the app's own, or where the app has
    set one of these in litellm.

    The number of tokens that were thoughts is the vendor's own; litellm makes one up where there is none.
    """

    _exchange_type = _Exchange
