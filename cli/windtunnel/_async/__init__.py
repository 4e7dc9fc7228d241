"""The client with `async` and `await`; `scripts/sync_client.py` makes `_sync` of it."""
