"""litellm gets our client on every route that takes one, and one per event loop."""

from __future__ import annotations

from typing import Any

import pytest

from routelock_providers.litellm.library import close_litellm, load_litellm

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.filterwarnings("ignore")]


def route(provider: str, **more: Any) -> Any:
    load_litellm()
    from routelock_providers.litellm.client import Route

    settings = {"responses": False, "api_base": "http://127.0.0.1:9/v1", "api_key": "k", "given": {}, **more}
    return Route(provider=provider, **settings)


async def given_for(one: Any) -> Any:
    from routelock_providers.litellm.client import filtered_client

    return filtered_client(one)


async def test_calls_of_one_loop_share_a_client() -> None:
    first, second = [await given_for(route(provider)) for provider in ("anthropic", "gemini")]
    assert first["client"] is second["client"]
    await close_litellm()
    third = await given_for(route("anthropic"))
    assert third["client"] is not first["client"]
    await close_litellm()


async def test_openai_library_uses_our_client_without_retries() -> None:
    one, again = await given_for(route("openai")), await given_for(route("openai"))
    assert one["client"] is again["client"]
    assert one["client"].max_retries == 0
    await close_litellm()


async def test_a_provider_that_takes_no_client_is_asked_through_litellms_own() -> None:
    assert await given_for(route("github_copilot")) is None
    assert await given_for(route("openai", api_key=None)) is None


async def test_answers_in_an_unknown_format_are_not_filtered() -> None:
    assert route("anthropic").is_filtered
    assert not route("langflow").is_filtered
    assert route("langflow", responses=True).is_filtered
