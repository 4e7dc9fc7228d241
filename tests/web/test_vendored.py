"""Vendored libraries: the files that the lock's packages have, unchanged, and each with its licence."""

import json
from pathlib import Path

from scripts.vendor import FILES, LOCKED, SUMS, TARGET, sums


def test_vendored_files_are_unchanged() -> None:
    assert (TARGET / SUMS).read_text() == sums(TARGET)
    assert {path.name for path in TARGET.iterdir()} == {SUMS, *(name for files in FILES.values() for name in files)}


def test_every_package_is_locked_with_its_hash_and_has_a_licence() -> None:
    packages = json.loads(Path(LOCKED, "package-lock.json").read_text())["packages"]
    for package, files in FILES.items():
        assert packages[f"node_modules/{package}"]["integrity"].startswith("sha512-")
        assert any(name.endswith(".LICENSE") for name in files)
