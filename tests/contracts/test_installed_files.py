"""Files of installed wheels: those of one distribution in another's package are refused, and ours are kept apart."""

import io
import zipfile
from pathlib import Path

import pytest

from common.errors import BadRequirements
from runtimes.dependencies.declaration import of_requirements
from runtimes.dependencies.installer import Installer
from runtimes.dependencies.lock import divided, merged, pins
from tests.contracts.package_index import PackageIndex, wheel
from tests.contracts.test_installer import MakeInstaller, index, make_installer, quiet

__all__ = ["index", "make_installer"]

OWN = {"numeric/__init__.py": b"VERSION = 1\n", "numeric/core.py": b""}
EXTENDED = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


def install(installer: Installer, folder: Path, names: str = "numeric\nevil") -> Path:
    """Resolve and install packages; return the folder of their environment."""
    lock = installer.resolve(of_requirements(names), "", quiet)
    folder.mkdir()
    installer.install(lock, folder, quiet)
    return folder


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"numeric/_distributor_init_local.py": b""},
            "numeric/_distributor_init_local.py of evil-1.0 is in the package",
        ),
        (
            {"numeric/more/__init__.py": b""},
            "The file numeric/more/__init__.py of evil-1.0 is in the package numeric of",
        ),
        ({"numeric/__init__.py": b"VERSION = 2\n"}, "evil-1.0 and numeric-1.0 both have the package numeric"),
        ({"evil-1.0.data/purelib/numeric/_late.py": b""}, "numeric/_late.py of evil-1.0 is in the package numeric"),
    ],
    ids=["a module", "a package", "the same file", "a file by another scheme"],
)
def test_a_file_in_another_distributions_package_is_refused(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    index.packages |= dict([wheel("numeric", "1.0", OWN), wheel("evil", "1.0", files)])
    with pytest.raises(BadRequirements) as caught:
        install(make_installer(index), tmp_path / "tree")
    assert reason in str(caught.value.detail)


def test_a_file_that_no_list_has_is_refused_in_a_package(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    name, content = wheel("evil", "1.0", {"evil.py": b"", "numeric/_hidden.py": b""})
    index.packages |= dict([wheel("numeric", "1.0", OWN), (name, without_line(content, "numeric/_hidden.py"))])
    with pytest.raises(BadRequirements, match=r"numeric/_hidden\.py"):
        install(make_installer(index), tmp_path / "tree")


def without_line(content: bytes, path: str) -> bytes:
    """Return a wheel whose RECORD does not list a file."""
    source, target = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("RECORD"):
                data = b"\n".join(line for line in data.splitlines() if not line.startswith(path.encode())) + b"\n"
            archive.writestr(name, data)
    return target.getvalue()


@pytest.mark.parametrize(
    "shared", [b"", b'"""A namespace."""\n', EXTENDED, b"from pkgutil import extend_path\n" + EXTENDED]
)
def test_packages_that_only_share_a_name_are_installed(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path, shared: bytes
) -> None:
    for name in ("numeric", "evil"):
        files = {"vendor/__init__.py": shared, f"vendor/{name}/__init__.py": b"X = 1\n"}
        index.packages |= dict([wheel(name, "1.0", files)])
    tree = install(make_installer(index), tmp_path / "tree")
    assert {path.name for path in (tree / "site" / "vendor").iterdir()} >= {"numeric", "evil"}


def test_the_platforms_own_packages_are_installed_into_a_folder_of_their_own(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    index.packages |= dict([wheel("numeric", "1.0", OWN), wheel("evil", "1.0")])
    own = make_installer(index).resolve(of_requirements("numeric"), "", quiet)
    tree = install(make_installer(index, own=(own,)), tmp_path / "tree")
    assert sorted(path.name for path in tree.iterdir()) == ["shared", "site"]
    assert (tree / "shared" / "numeric" / "core.py").exists() and not (tree / "site" / "numeric").exists()
    assert (tree / "site" / "evil.py").exists() and not (tree / "shared" / "evil.py").exists()


def test_files_of_others_in_the_platforms_own_packages_are_refused(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    index.packages |= dict([wheel("numeric", "1.0", OWN), wheel("evil", "1.0", {"numeric/_late.py": b""})])
    own = make_installer(index).resolve(of_requirements("numeric"), "", quiet)
    with pytest.raises(BadRequirements, match=r"numeric/_late\.py"):
        install(make_installer(index, own=(own,)), tmp_path / "tree")


def entry(name: str, *digests: str) -> str:
    return f"{name}" + "".join(f" \\\n    --hash=sha256:{digest * 64}" for digest in digests) + "\n"


def test_a_package_is_the_platforms_own_if_all_its_files_are() -> None:
    own = entry("a==1", "1", "2") + entry("b==1", "3")
    lock = entry("A==1", "1") + entry("b==1", "3", "4") + entry("c==1", "5") + entry("a==2", "1")
    ours, others = divided(lock, [own])
    assert (list(pins(ours)), others) == (["a"], entry("b==1", "3", "4") + entry("c==1", "5") + entry("a==2", "1"))
    assert divided("b==1\n", [own]) == ("", "b==1\n"), "a package without hashes is nobody's"


def test_of_several_locks_the_first_decides_for_a_package() -> None:
    lock = merged([entry("a==1", "1"), entry("a==2", "2") + entry("b==1", "3")])
    assert pins(lock) == {"a": "1", "b": "1"}
