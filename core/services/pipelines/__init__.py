"""Services of pipelines."""
