"""The bill of materials of an image: CycloneDX 1.6, and the same for the same content."""

import uuid
from collections.abc import Iterable
from typing import Any

from runtimes.images.facts import Component, Facts, gathered

#: A serial number of ours follows from what is listed.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/windtunnel")


def bill(name: str, version: str, description: str, parts: Iterable[Facts]) -> dict[str, Any]:
    """Return what an image holds that others made. No date: it would be another bill every day."""
    components = [_component(one) for one in gathered(parts).components]
    subject = {"type": "container", "bom-ref": name, "name": name, "version": version, "description": description}
    listed = [name, version, *(one["bom-ref"] for one in components)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, ' '.join(listed))}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _component(one: Component) -> dict[str, Any]:
    told: dict[str, Any] = {"type": one.kind, "bom-ref": one.purl, "name": one.name, "version": one.version}
    told["purl"] = one.purl
    if one.licence:
        told["licenses"] = [{"expression": one.licence}]
    return told
