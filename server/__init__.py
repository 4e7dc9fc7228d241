"""The server's processes: one role each, the supervisor that keeps them running, their logs and ports."""
