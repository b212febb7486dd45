"""Who may come in: this machine's own browser, on a page that this app has served.

A page that runs tools is worth attacking. Any site that the user visits can send requests to loopback (CSRF),
and can let a name of its own point there (DNS rebinding); so every request is asked under which name it came,
and what changes something has to bring the token that only the page has.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from routelock.serving.config import ServeConfig
from routelock.serving.guards import Guards
from routelock.serving.refusals import Refusal
from routelock.serving.wire import AsgiReceive, AsgiScope, AsgiSend, ClientGone, headers_of, send_json

__all__ = ["Door"]

_logger = logging.getLogger("routelock.dev")

TOKEN_HEADER = "x-routelock-token"

SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types routelock-graph",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
"""What every response carries: no script but ours runs, nothing is loaded from elsewhere or framed."""

_App = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


class Door:
    """Lets requests in to an app, or answers them with an error, always with the headers of `SECURITY`.

    Args:
        app: what is behind it.
        token: what a request that is no GET has to bring.
    """

    def __init__(self, app: _App, token: str) -> None:
        self._app = app
        self._token = token
        self._guards = Guards(ServeConfig())

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request, as an ASGI app does."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
                message["headers"] = [*_without(message.get("headers", ())), *more]
            await send(message)

        try:
            self.check(scope["method"], headers_of(scope))
            await self._app(scope, receive, guarded)
        except ClientGone:
            _logger.info("the page has left")
        except Refusal as refusal:
            _logger.info("%s %s: %s", scope["method"], scope["path"], refusal)
            await send_json(guarded, refusal.status, {"error": refusal.message}, refusal.headers)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse what does not come from the page.

        Raises:
            Refusal: 403 or 415.
        """
        host = headers.get("host", "")
        try:
            self._guards.check_host(host)
        except Refusal as refusal:
            why = "The dev page answers on this machine only, as 127.0.0.1 or localhost."
            raise Refusal(403, why, refusal.code) from refusal
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            raise Refusal(403, "This request comes from another site.", "origin_not_allowed")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, "This request comes from another site.", "origin_not_allowed")
        if method in ("GET", "HEAD"):
            return
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            raise Refusal(403, "The server was restarted since this page was loaded. Reload it.", "bad_token")
        self._guards.check_content_type(headers.get("content-type", ""))


def _without(headers: Any) -> list[tuple[bytes, bytes]]:
    """Return headers without those that every response has anyway."""
    return [(name, value) for name, value in headers if name.lower().decode("latin-1") not in SECURITY]
