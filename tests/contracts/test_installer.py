"""Package installer: uv resolves and installs wheels in a sandbox that reaches the operator's indexes only."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import BadRequirements
from runtimes.dependencies import installer as installer_module
from runtimes.dependencies.declaration import Declaration, of_requirements
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.dependencies.lock import pins
from runtimes.environments import IndexUnavailable
from tests.contracts.package_index import PackageIndex, wheel

MakeInstaller = Callable[..., Installer]


def quiet(message: str, fraction: float | None) -> None:
    """Ignore progress."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    monkeypatch.setattr(installer_module, "HARNESS", ())  # the index has small packages only
    server = PackageIndex(wheel("alpha", "1.0", requires=("beta>=1",)), wheel("beta", "1.0"), wheel("beta", "2.0"))
    yield server
    server.close()


@pytest.fixture
def make_installer(tmp_path: Path) -> MakeInstaller:
    def make(*indexes: PackageIndex, **options: object) -> Installer:
        values = InstallerOptions(indexes=tuple(index.url for index in indexes), hosts=(), environ={})
        return Installer(tmp_path / "packages", replace(values, **options))  # type: ignore[arg-type]

    return make


def imported(site: Path, code: str) -> str:
    program = f"import sys; sys.path.insert(0, {str(site)!r}); {code}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_declared_packages_are_resolved_to_a_lock_with_hashes_and_installed_from_it(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    installer = make_installer(index)
    messages: list[str] = []
    lock = installer.resolve(of_requirements("alpha\n"), "", lambda message, part: messages.append(message))
    assert pins(lock) == {"alpha": "1.0", "beta": "2.0"}
    digest = hashlib.sha256(index.packages["alpha-1.0-py3-none-any.whl"]).hexdigest()
    assert f"--hash=sha256:{digest}" in lock
    (tmp_path / "tree").mkdir()
    installer.install(lock, tmp_path / "tree", lambda message, part: messages.append(message))
    site = tmp_path / "tree" / "site"
    assert imported(site, "import alpha, beta; print(alpha.VERSION, beta.VERSION)") == "1.0 2.0"
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["site"]
    assert {path.stat().st_mode & 0o222 for path in site.rglob("*") if path.is_file()} == {0}
    assert {path.stat().st_uid for path in site.rglob("*")} == {os.geteuid()}
    assert "resolving 1 requirements of requirements.txt" in messages and "installing 2 packages" in messages


def test_the_preferred_versions_are_taken_where_they_are_possible(
    index: PackageIndex, make_installer: MakeInstaller
) -> None:
    assert pins(make_installer(index).resolve(of_requirements("alpha"), "beta==1.0\n", quiet))["beta"] == "1.0"
    assert pins(make_installer(index).resolve(of_requirements("beta>1"), "beta==1.0\n", quiet))["beta"] == "2.0"


def test_a_lock_is_installed_after_the_index_has_newer_versions(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    lock = make_installer(index).resolve(of_requirements("beta"), "", quiet)
    index.packages |= dict([wheel("beta", "3.0")])
    (tmp_path / "tree").mkdir()
    make_installer(index).install(lock, tmp_path / "tree", quiet)
    assert imported(tmp_path / "tree" / "site", "import beta; print(beta.VERSION)") == "2.0"


@pytest.mark.parametrize(
    ("requirements", "reason"),
    [
        ("beta>2", "only beta<=2.0 is available"),
        ("beta<2\nbeta>=2", "your requirements are unsatisfiable"),
        ("gamma", "gamma was not found"),
        ("source", "no usable wheels"),
    ],
)
def test_a_conflict_ends_with_uvs_own_reason(
    index: PackageIndex, make_installer: MakeInstaller, requirements: str, reason: str
) -> None:
    index.packages["source-1.0.tar.gz"] = sdist("source", "raise SystemExit")
    with pytest.raises(BadRequirements) as caught:
        make_installer(index).resolve(of_requirements(requirements), "", quiet)
    assert reason in str(caught.value.detail)


def sdist(name: str, setup: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in ((f"{name}-1.0/setup.py", setup), (f"{name}-1.0/PKG-INFO", f"Name: {name}\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_the_setup_of_a_source_distribution_never_runs(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    index.packages["source-1.0.tar.gz"] = sdist("source", f"open({str(trace)!r}, 'w')")
    with pytest.raises(BadRequirements):
        make_installer(index).resolve(of_requirements("source"), "", quiet)
    assert not trace.exists()


def test_a_package_is_taken_from_the_first_index_that_has_it(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    """A newer version with the name of an internal package on a public index is not installed."""
    public = PackageIndex(wheel("beta", "99.0", {"beta.py": b"VERSION = 'stolen'"}), wheel("delta", "1.0"))
    try:
        lock = make_installer(index, public).resolve(of_requirements("beta\ndelta"), "", quiet)
        assert pins(lock) == {"beta": "2.0", "delta": "1.0"}
        with pytest.raises(BadRequirements):
            make_installer(index, public).resolve(of_requirements("beta>=99"), "", quiet)
    finally:
        public.close()


def test_an_index_that_fails_is_an_outage(index: PackageIndex, make_installer: MakeInstaller) -> None:
    index.failing = 503
    with pytest.raises(IndexUnavailable):
        make_installer(index).resolve(of_requirements("alpha"), "", quiet)


def test_an_index_that_is_gone_is_an_outage(index: PackageIndex, make_installer: MakeInstaller) -> None:
    index.close()
    with pytest.raises(IndexUnavailable):
        make_installer(index).resolve(of_requirements("alpha"), "", quiet)


def test_files_on_a_host_that_the_operator_does_not_allow_are_not_fetched(
    index: PackageIndex, make_installer: MakeInstaller
) -> None:
    elsewhere = PackageIndex(wheel("beta", "2.0"))
    try:
        index.files_at = elsewhere.address
        with pytest.raises(BadRequirements, match="which the operator does not allow"):
            make_installer(index).resolve(of_requirements("beta==2.0"), "", quiet)
        assert not elsewhere.requests
        lock = make_installer(index, hosts=(elsewhere.address,)).resolve(of_requirements("beta==2.0"), "", quiet)
        assert pins(lock) == {"beta": "2.0"} and elsewhere.requests
    finally:
        elsewhere.close()


def test_a_file_that_was_replaced_on_the_index_is_not_installed(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path
) -> None:
    lock = make_installer(index).resolve(of_requirements("beta==1.0"), "", quiet)
    index.packages |= dict([wheel("beta", "1.0", {"beta.py": b"VERSION = 'replaced'"})])
    (tmp_path / "tree").mkdir()
    other = Installer(tmp_path / "other", make_installer(index).options)  # without the first one's cache
    with pytest.raises(BadRequirements, match=r"[Hh]ash mismatch"):
        other.install(lock, tmp_path / "tree", quiet)


@pytest.mark.parametrize("files", [{"big.bin": bytes(40 << 20)}, {f"{n}.bin": bytes(1 << 20) for n in range(40)}])
def test_a_wheel_that_unpacks_to_more_than_the_limit_is_refused(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path, files: dict[str, bytes]
) -> None:
    index.packages |= dict([wheel("bomb", "1.0", files)])
    installer = make_installer(index, largest=8 << 20)
    lock = installer.resolve(of_requirements("bomb"), "", quiet)
    (tmp_path / "tree").mkdir()
    with pytest.raises(BadRequirements) as caught:
        installer.install(lock, tmp_path / "tree", quiet)
    assert "8,388,608 bytes" in str(caught.value.detail) or "File too large" in str(caught.value.detail)


@pytest.mark.parametrize("path", ["../escaped.py", "../../escaped.py", "/tmp/escaped.py", "beta/../../escaped.py"])
def test_a_wheel_writes_nothing_outside_of_its_environment(
    index: PackageIndex, make_installer: MakeInstaller, tmp_path: Path, path: str
) -> None:
    index.packages |= dict([wheel("evil", "1.0", {path: b"escaped = True", "evil.py": b""})])
    installer = make_installer(index)
    (tmp_path / "tree").mkdir()
    try:
        lock = installer.resolve(of_requirements("evil"), "", quiet)
        installer.install(lock, tmp_path / "tree", quiet)
    except BadRequirements:
        pass
    assert not list(tmp_path.rglob("escaped.py")) and not Path("/tmp/escaped.py").exists()


def test_a_declaration_for_another_python_is_refused_with_the_version_that_is_here(
    index: PackageIndex, make_installer: MakeInstaller
) -> None:
    declaration = Declaration(file="pyproject.toml", requirements=("beta",), python=">=4")
    with pytest.raises(BadRequirements, match=rf"; Python {sys.version_info.major}\.\d+\.\d+ runs here"):
        make_installer(index).resolve(declaration, "", quiet)


def test_without_an_index_nothing_is_installed(make_installer: MakeInstaller) -> None:
    with pytest.raises(BadRequirements, match="WINDTUNNEL_PACKAGE_INDEXES is empty"):
        make_installer().resolve(of_requirements("beta"), "", quiet)


def test_credentials_of_an_index_do_not_appear_in_errors(index: PackageIndex, make_installer: MakeInstaller) -> None:
    url = index.url.replace("http://", "http://user:hunter2@")
    with pytest.raises(BadRequirements) as caught:
        make_installer(indexes=(url,)).resolve(of_requirements("gamma"), "", quiet)
    assert "hunter2" not in str(caught.value.detail)
