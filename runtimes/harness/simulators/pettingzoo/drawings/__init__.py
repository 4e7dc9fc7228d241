"""Drawings of environments of PettingZoo."""
