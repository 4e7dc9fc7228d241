"""Webhooks: which events there are, who wants them, their bodies, and when a delivery is tried again."""
