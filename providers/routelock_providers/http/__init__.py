"""HTTP for all handlers: connections over aiohttp, the same for httpx, and bodies with a limit.

Start at `client.py`.
"""
