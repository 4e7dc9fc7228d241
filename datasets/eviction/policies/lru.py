"""Least recently used first."""

from datasets.eviction.policy import Policy

POLICY = Policy(key=lambda item, floor: item.used)
