"""Model formats: one module per format loads and calls its models; each imports its own libraries."""
