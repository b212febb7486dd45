"""Answers that send a request elsewhere. It does not go: the key and the conversation would go along."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin

from routelock.errors import InvalidRequest
from routelock_providers.http_errors import shortened

__all__ = ["redirect_refused"]


def redirect_refused(
    status: int,
    headers: Mapping[str, str],
    *,
    url: str,
    provider: str,
    model: str,
    argument: str = "base_url",
) -> InvalidRequest:
    """Return the error for an answer with a status of 300 to 399.

    Args:
        status: of the answer.
        headers: likewise; names in lower case find their value.
        url: what was asked: a redirect may be relative to it.
        provider: who was asked, as the error is to name it.
        model: likewise.
        argument: of the handler, which names the address.
    """
    location = headers.get("location", "")
    where = repr(shortened(_joined(url, location), 200)) if location else "nowhere"
    return InvalidRequest(
        f"{provider} answered {status}, a redirect to {where}, which is not followed: a key would go there "
        f"too. Pass the new address as {argument}.",
        status=status,
        provider=provider,
        model=model,
    )


def _joined(url: str, location: str) -> str:
    """Return an address in full, so that its host can be seen."""
    try:
        return urljoin(url, location)
    except ValueError:  # whatever a server may write there
        return location
