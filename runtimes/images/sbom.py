"""Bill of materials of an image: CycloneDX 1.6, reproducible from the same content."""

import uuid
from collections.abc import Iterable
from typing import Any

from runtimes.images.facts import Component, Facts, merged
from runtimes.images.image_names import LICENCE

#: Namespace of the serial numbers, which are derived from the listed components.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/windtunnel")


def bill(name: str, version: str, description: str, parts: Iterable[Facts]) -> dict[str, Any]:
    """Return the bill of an image's third-party components, without a date: equal content gives an equal bill."""
    components = [_component(component) for component in merged(parts).components]
    subject = {
        "type": "container",
        "bom-ref": name,
        "name": name,
        "version": version,
        "description": description,
        "licenses": [{"license": {"id": LICENCE}}],
    }
    listed = [name, version, *(component["bom-ref"] for component in components)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, ' '.join(listed))}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _component(component: Component) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": component.kind,
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
    }
    if component.licence:
        entry["licenses"] = [{"expression": component.licence}]
    return entry
