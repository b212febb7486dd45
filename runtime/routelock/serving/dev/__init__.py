"""A page to chat with agents during development, and to see what each model call was shown.

    serve_dev(triage)                        # opens nothing by itself: http://127.0.0.1:8001

The command ``routelock dev module:agent`` does the same. The page is for the user's own machine: it listens
on loopback, refuses requests from elsewhere, and sends data only to the agents' models. It needs the extra
``routelock[serve]``, when an app is made; importing this package does not. Start at `app.py`.
"""

from __future__ import annotations

from routelock.serving.dev.app import create_dev_app, serve_dev

__all__ = ["create_dev_app", "serve_dev"]
