"""Durable runs on DBOS and PostgreSQL, the engine behind `routelock.state.durable`. Start at `worker.py`."""
