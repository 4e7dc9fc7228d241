"""The server's processes: one process per role, their supervisor, logs and ports."""
