"""Launch objects on the API server: created in order, with the first as owner of the others, and deleted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kube.client import KubernetesClient
from kube.messages import ApiRefused, path_of
from workers.executors.kubernetes.api_errors import error_of, missing_namespace
from workers.executors.kubernetes.objects import AUXILIARY_KINDS, KINDS, NAMESPACE, SECRET, MetadataOnly, ResourceKind
from workers.executors.kubernetes.options import KubernetesOptions


class LaunchObjects:
    """Creates and deletes the objects of launches in one cluster. Methods raise OSError."""

    def __init__(self, client: KubernetesClient, options: KubernetesOptions) -> None:
        self._client, self._options = client, options

    def create(self, objects: Sequence[dict[str, Any]], namespace: str) -> None:
        """Create objects in order. The first owns the others, so deleting it deletes them all (garbage collection)."""
        owner_references: list[dict[str, str]] = []
        for object in objects:
            document = {
                **object,
                "metadata": {**object["metadata"], "namespace": namespace, "ownerReferences": owner_references},
            }
            uid = self._create(document, namespace)
            if uid is None:
                return  # the object is being deleted and is not created again
            if not owner_references:
                name = object["metadata"]["name"]
                owner_references = [
                    {"apiVersion": object["apiVersion"], "kind": object["kind"], "name": name, "uid": uid}
                ]

    def _create(self, document: dict[str, Any], namespace: str) -> str | None:
        """Create an object; return its uid, also if it existed, or None if it is being deleted."""
        kind = KINDS[document["kind"]]
        path = path_of(document["apiVersion"], kind.plural, namespace)
        try:
            answer = self._client.create(path, document)
        except ApiRefused as refused:
            if refused.reason == "AlreadyExists":
                return self._identity(kind, namespace, document["metadata"]["name"])
            if not (missing_namespace(refused) and self._options.create_namespaces):
                raise
            self._open_namespace(namespace)
            answer = self._client.create(path, document)
        return msgspec.json.decode(answer, type=MetadataOnly).metadata.uid

    def _identity(self, kind: ResourceKind, namespace: str, name: str) -> str | None:
        if kind is SECRET:
            return ""  # the secret is never read and owns nothing
        found = self._client.get(path_of(kind.api, kind.plural, namespace, name), MetadataOnly).metadata
        return found.uid if found.deletion_timestamp is None else None

    def _open_namespace(self, namespace: str) -> None:
        labels = {
            "windtunnel/installation": self._options.installation,
            "pod-security.kubernetes.io/enforce": "restricted",
        }
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        try:
            self._client.create(path_of(NAMESPACE.api, NAMESPACE.plural), document)
        except ApiRefused as refused:
            if refused.reason != "AlreadyExists":
                raise

    def delete(self, name: str, namespace: str, owners: Iterable[ResourceKind]) -> None:
        """Delete a launch's objects in a namespace: owners first, network policies last."""
        for kind in [*owners, *reversed(AUXILIARY_KINDS)]:
            try:
                self._client.delete(path_of(kind.api, kind.plural, namespace, name))
            except ApiRefused as refused:
                raise PermissionError(str(error_of(refused, namespace))) from None


def creation_order(document: Mapping[str, Any]) -> int:
    """Creation order: policies, then secrets, then the owner."""
    kind = KINDS[document["kind"]]
    return AUXILIARY_KINDS.index(kind) if kind in AUXILIARY_KINDS else len(AUXILIARY_KINDS)
