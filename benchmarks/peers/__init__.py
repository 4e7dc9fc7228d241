"""Peers: other systems that run many small tasks, each in a script, in an environment apart from the server's."""
