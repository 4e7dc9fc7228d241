# Generated from windtunnel/_async/__init__.py by scripts/sync_client.py; change that file.
"""The client with `async` and `await`; `scripts/sync_client.py` makes `_sync` of it."""
