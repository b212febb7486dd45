"""HTTP for all handlers: connections of aiohttp, an httpx transport over them, and bodies with a limit.

Start at `client.py`.
"""
