"""Comparisons of models: questions, sequential tests and verdicts."""
