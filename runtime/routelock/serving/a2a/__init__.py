"""The Agent2Agent protocol over the same served agents: ``create_app(agent, ServeConfig(a2a=A2A(...)))``.

Needs the extra ``routelock[a2a]``. Start at `routes.py`.
"""
