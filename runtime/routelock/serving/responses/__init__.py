"""OpenAI's Responses API over the served agents, which other servers call Open Responses.

`requests.py` reads a request, `reply.py` makes the items and events of its reply, `kept_responses.py` keeps
responses for ``previous_response_id``. Start at `routes.py`.
"""
