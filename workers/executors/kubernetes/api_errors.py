"""API errors: refusals of the API server as platform errors (permanent, temporary, or missing rights). No I/O."""

import re

from common.errors import ClusterFull, LaunchRefused, NotGranted, PlatformError
from kube.messages import ApiRefused
from workers.executors.kubernetes.status_messages import clean

_RIGHT = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


def missing_namespace(refused: ApiRefused) -> bool:
    """Return whether the refusal means that the namespace is missing."""
    return refused.status == 404 and refused.message.startswith("namespaces ")


def error_of(refused: ApiRefused, namespace: str) -> PlatformError:
    """Return the platform error, whose text says what to do."""
    message = clean(refused.message)
    if "exceeded quota" in refused.message or "status unknown for quota" in refused.message:
        return ClusterFull(f"The quota of {namespace} in the cluster is used up: {message}")
    if "is being terminated" in refused.message:
        return ClusterFull(f"The namespace {namespace} is being deleted. Launches are taken again once it is back.")
    if refused.reason == "Conflict":  # as when a quota is written by two at once
        return ClusterFull(f"The cluster was changed at the same moment; it is tried again: {message}")
    if denied := _RIGHT.search(refused.message):
        what = f"{denied['resource']}{denied['group'] and '.' + denied['group']}"
        return NotGranted(
            f"The platform's account may not {denied['verb']} {what} in {namespace}; grant it that: {message}"
        )
    if missing_namespace(refused):  # an administrator that grants rights in a namespace creates it too
        return NotGranted(
            f"The cluster has no namespace {namespace}. Create it (`kubectl create namespace {namespace}`), "
            "or set create_namespaces for this executor."
        )
    return LaunchRefused(f"The cluster refuses the launch: {message}")
