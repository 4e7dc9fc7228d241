"""Peer systems: other systems that run many small tasks, each in a script, in a separate environment."""
