"""Eviction: which items of a full cache make room for a new one; for the node cache and the cache service."""
