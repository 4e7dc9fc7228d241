"""Simulations from submission to results: submit, follow, finalize, retry, delete."""
