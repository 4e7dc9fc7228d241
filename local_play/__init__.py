"""Local play: a model on the scenarios of a dataset, and scenarios step by step, on this machine without a server."""
