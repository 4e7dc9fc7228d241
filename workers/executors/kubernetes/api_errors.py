"""What the API server's no means: never, not now, or not to us. No I/O."""

import re

from errors import ClusterFull, LaunchRefused, NotGranted, PlatformError
from workers.executors.kubernetes.client import Refused
from workers.executors.kubernetes.status_messages import clean

_RIGHT = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


def missing_namespace(refused: Refused) -> bool:
    """Tell whether it is the namespace that is not there."""
    return refused.status == 404 and refused.message.startswith("namespaces ")


def error_of(refused: Refused, namespace: str) -> PlatformError:
    """Make the error that tells people what to do about it."""
    said = clean(refused.message)
    if "exceeded quota" in refused.message or "status unknown for quota" in refused.message:
        return ClusterFull(f"The quota of {namespace} in the cluster is used up: {said}")
    if "is being terminated" in refused.message:
        return ClusterFull(f"The namespace {namespace} is being deleted. Launches are taken again once it is back.")
    if refused.reason == "Conflict":  # as when a quota is written by two at once
        return ClusterFull(f"The cluster was changed at the same moment; it is tried again: {said}")
    if right := _RIGHT.search(refused.message):
        what = f"{right['resource']}{right['group'] and '.' + right['group']}"
        return NotGranted(
            f"The platform's account may not {right['verb']} {what} in {namespace}; grant it that: {said}"
        )
    if missing_namespace(refused):  # whoever gives us rights there makes it, too
        return NotGranted(
            f"The cluster has no namespace {namespace}. Create it (`kubectl create namespace {namespace}`), "
            "or set create_namespaces for this executor."
        )
    return LaunchRefused(f"The cluster does not take it: {said}")
