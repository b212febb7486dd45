"""AG-UI, the Agent User Interaction Protocol, over the served agents.

`requests.py` reads a request and `messages.py` its messages, `events.py` makes the events of a run, and
`threads.py` keeps runs that wait for their client. Start at `routes.py`.
"""
