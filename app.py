"""WSGI applications for another server, as in `gunicorn "app:create_api()"`; `python -m server` runs every role."""

from server.composition import create_api, create_runner_api

__all__ = ["create_api", "create_runner_api"]
