"""Eviction policies by name: each module of this package is one, and defines ``POLICY``."""

import importlib
import pkgutil

from datasets.eviction.policy import Policy


def policy_names() -> list[str]:
    """Return the names of all policies: of the modules of this package."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_policy(name: object) -> Policy:
    """Return a policy; raise ValueError, which lists all policies, if there is none of that name."""
    if name not in policy_names():
        raise ValueError(f"there is no eviction policy {name!r}; the policies are {', '.join(policy_names())}")
    policy: Policy = importlib.import_module(f"{__name__}.{name}").POLICY
    return policy
