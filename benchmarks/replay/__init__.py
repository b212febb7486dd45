"""Replaying recorded provider responses through routelock; see `benchmarks/replay_recordings.py`."""
