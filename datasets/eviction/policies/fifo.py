"""First in, first out."""

from datasets.eviction.policy import Policy

POLICY = Policy(key=lambda item, floor: item.added)
