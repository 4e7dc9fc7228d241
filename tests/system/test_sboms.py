"""Bills of materials, checked against the schema of CycloneDX and the content of an image."""

import json

import pytest

from runtimes.images import image_names
from tests.cached import image

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("name", ["noop", "server"])
def test_a_bill_of_materials_is_valid_cyclonedx_and_lists_interpreter_and_packages(name: str) -> None:
    # Imported here: the import takes two seconds in each process that collects this file.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    built = image(name)
    text = built.archive.with_suffix(".sbom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert {"cpython", "numpy", "msgspec"} <= {component["name"] for component in bill["components"]}
    assert f"{image_names.PREFIX}{name}:{bill['metadata']['component']['version']}" == built.reference
