"""Replaying recorded provider responses through interlock; see `benchmarks/replay_recordings.py`."""
