"""Comparisons of models: requests, batches and views."""
