"""Peers: other ways to run many small tasks, each in a script of its own, in an environment apart from the server's."""
