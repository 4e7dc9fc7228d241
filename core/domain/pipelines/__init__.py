"""Pipelines: submissions and comparisons whose outputs are the inputs of the next; pure decisions."""
