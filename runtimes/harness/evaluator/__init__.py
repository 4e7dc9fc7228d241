"""Evaluator: the sandboxed process that owns simulator, clock and score."""
