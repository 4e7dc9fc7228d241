"""Model formats: each module with a FORMAT is one, with all that is known about it; see docs/model-formats.md."""
