"""Comparisons of models: requests, batches and documents."""
