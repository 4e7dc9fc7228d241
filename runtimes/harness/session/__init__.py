"""Session: a process that owns a simulator and runs scenarios step by step on the orders of a client outside."""
