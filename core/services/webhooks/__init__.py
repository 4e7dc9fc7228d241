"""Webhooks: what a project wants to be told of, the secrets that sign it, and the job that delivers it."""
