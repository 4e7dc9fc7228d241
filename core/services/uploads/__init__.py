"""Uploaded content: models, resumable uploads, and transfers directly to the object store."""
