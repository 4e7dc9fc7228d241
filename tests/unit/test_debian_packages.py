"""Debian packages: versions and dependencies, signatures and hashes, and what must not come into a tree."""

import functools
import hashlib
import http.server
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import BadRequirements, NotFound
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.compiled_code import find_compiler
from runtimes.environments import CannotPrepare, OutOfSpace
from runtimes.packages.deb_archive import BadPackage, DebArchive, alternatives
from runtimes.packages.debian_versions import compare, satisfies
from runtimes.packages.package_case import parse_case
from runtimes.packages.package_closure import Dependency, IndexedPackage, PackageSet, parse_dependencies
from runtimes.packages.package_index import BadSignature, signed_text
from runtimes.packages.package_installer import BESIDE, PackageInstaller, library_folders, shipped_locks
from runtimes.packages.package_lock import read_lock
from runtimes.packages.package_options import PackageOptions
from runtimes.packages.package_tree import PackageTree
from tests.debs import Mirror, deb, entry, folder, has_gpg, link

needs_gpg = pytest.mark.skipif(not has_gpg(), reason="gpg and gpgv are not installed")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0", "1:0.1"),
        ("2.36-9", "2.36-9+deb12u14"),
        ("1.0-1~bpo12+1", "1.0-1"),
        ("1.0a", "1.0+"),
        ("20220917+dfsg", "20220917.1"),
        ("1.2-3-1", "1.2-3-2"),
    ],
)
def test_versions_have_the_order_of_dpkg(older: str, newer: str) -> None:
    assert compare(older, newer) < 0 < compare(newer, older)
    assert compare(older, older) == 0
    assert satisfies(newer, ">>", older)
    assert not satisfies(older, ">=", newer)


def test_dependencies_are_read_with_versions_alternatives_and_architectures() -> None:
    assert parse_dependencies("libc6 (>= 2.36), perl:any, mawk | gawk (<< 2:5)") == [
        [Dependency("libc6", ">=", "2.36")],
        [Dependency("perl")],
        [Dependency("mawk"), Dependency("gawk", "<<", "2:5")],
    ]
    with pytest.raises(ValueError, match="is not a dependency"):
        parse_dependencies("libc6 (2.36)")


def package(name: str, version: str = "1", depends: str = "", provides: str = "", **members: bool) -> IndexedPackage:
    return IndexedPackage(
        name=name,
        version=version,
        path=f"pool/{name}.deb",
        sha256="0" * 64,
        size=1,
        depends=parse_dependencies(depends),
        provides={each[0].name: each[0].version for each in parse_dependencies(provides)},
        **members,
    )


def test_a_closure_has_essential_packages_first_alternatives_and_providers() -> None:
    packages = PackageSet(
        [
            package("solver", depends="libmpi (>= 2), awk, sh | csh"),
            package("openmpi", provides="libmpi (= 3)"),
            package("mpich", provides="libmpi (= 1)"),
            package("mawk", provides="awk"),
            package("base", essential=True, depends="dash"),
            package("dash", "1", provides="sh"),
            package("dash", "2", provides="sh"),
            package("csh"),
            package("unrelated"),
        ]
    )
    chosen = {each.name: each.version for each in packages.closure(["solver"])}
    assert chosen == {"solver": "1", "openmpi": "1", "mawk": "1", "base": "1", "dash": "2"}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ("solver=9", "not there in version 9; there is 2-1, 1-1"),
        ("solvr", "There is no package solvr"),
        ("lonely", "needs missing \\| gone \\(>= 3\\), which is not there"),
        ("-o Dir=/etc", "each is the name of a Debian package"),
    ],
)
def test_packages_that_cannot_be_had_are_refused_with_the_reason(request_: str, reason: str) -> None:
    packages = PackageSet(
        [package("solver", "2-1"), package("solver", "1-1"), package("lonely", depends="missing | gone (>= 3)")]
    )
    with pytest.raises(BadRequirements, match=reason):
        packages.closure([request_])


def test_a_version_may_be_named_with_and_without_the_revision() -> None:
    packages = PackageSet([package("solver", "2-1"), package("solver", "1-4")])
    assert [packages.closure([f"solver={version}"])[0].version for version in ("1", "1-4", "2")] == [
        "1-4",
        "1-4",
        "2-1",
    ]


def test_links_of_update_alternatives_are_read_and_nothing_of_the_script_runs(tmp_path: Path) -> None:
    script = f"""#!/bin/sh
touch {tmp_path}/ran
update-alternatives --install /usr/bin/mpirun mpirun /usr/bin/mpirun.openmpi 50 \\
    --slave /usr/share/man/man1/mpirun.1.gz mpirun.1.gz /usr/share/man/man1/mpirun.openmpi.1.gz
for name in a b; do update-alternatives --install /usr/bin/$name $name /usr/bin/$name.x 10; done
update-alternatives --remove mpirun /usr/bin/mpirun.openmpi; update-alternatives --install /usr/bin/x
"""
    path = deb(tmp_path / "a.deb", postinst=script)
    assert DebArchive(path, "a").links() == [
        ("/usr/bin/mpirun", "/usr/bin/mpirun.openmpi", 50),
        ("/usr/share/man/man1/mpirun.1.gz", "/usr/share/man/man1/mpirun.openmpi.1.gz", 50),
    ]
    assert not (tmp_path / "ran").exists()
    assert alternatives("update-alternatives --install '/unclosed") == []


class TreeHere:
    """A tree in a folder, into which packages made by hand are unpacked."""

    def __init__(self, root: Path) -> None:
        self.root = root / "root"
        self.root.mkdir()
        self._file = root / "package.deb"
        self.tree = PackageTree(self.root, largest=1 << 20)

    def add(self, *entries: tuple[tarfile.TarInfo, bytes], name: str = "a") -> None:
        deb(self._file, *entries)
        self.tree.add(name, DebArchive(self._file, name))


@pytest.fixture
def here(tmp_path: Path) -> TreeHere:
    return TreeHere(tmp_path)


def test_files_lose_special_bits_and_links_become_relative(here: TreeHere) -> None:
    here.add(
        folder("./usr/"),
        entry("./usr/bin/su", b"#!", 0o4755),
        entry("./bin/mount", b"#!", 0o2755),
        entry("./usr/share/data", b"1", 0o600),
        link("./etc/alternatives/blas", "/lib/x86_64-linux-gnu/blas/libblas.so.3"),
        link("./usr/bin/sh", "../bin/su"),
        entry("./usr/bin/su2", type=tarfile.LNKTYPE, linkname="./usr/bin/su"),
        entry("./usr/share/doc/a/copyright", b"left out"),
    )
    here.tree.finish([("/usr/bin/editor", "/usr/bin/su"), ("/usr/bin/none", "/usr/bin/absent")])
    root = here.root
    assert stat.S_IMODE((root / "usr/bin/su").lstat().st_mode) == 0o755
    assert stat.S_IMODE((root / "usr/bin/mount").lstat().st_mode) == 0o755
    assert os.readlink(root / "etc/alternatives/blas") == "../../usr/lib/x86_64-linux-gnu/blas/libblas.so.3"
    assert os.readlink(root / "usr/bin/editor") == "su"
    assert (root / "usr/bin/sh").samefile(root / "usr/bin/su2")
    assert os.readlink(root / "bin") == "usr/bin"
    assert not os.path.lexists(root / "usr/bin/none")
    assert not (root / "usr/share/doc").exists()
    assert (root / "etc/passwd").read_bytes() == b""  # the sandbox's own covers it


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([entry("./usr/../../escaped", b"1")], "leads out of the tree"),
        ([entry("/usr/../../../escaped", b"1")], "leads out of the tree"),
        ([link("./usr/bin/x", "../../../etc/shadow")], "leads out of the tree"),
        ([link("./usr/bin/x", "/../etc/shadow")], "leads out of the tree"),
        ([link("./usr/lib/out", "/etc"), entry("./usr/lib/out/passwd", b"1")], "leads through out"),
        ([entry("./usr/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "is a device, a pipe or a socket"),
        ([entry("./usr/sda", type=tarfile.BLKTYPE, devmajor=8)], "is a device, a pipe or a socket"),
        ([entry("./usr/pipe", type=tarfile.FIFOTYPE)], "is a device, a pipe or a socket"),
        ([entry("./usr/hard", type=tarfile.LNKTYPE, linkname="../../etc/shadow")], "leads out of the tree"),
        ([entry("./usr/hard", type=tarfile.LNKTYPE, linkname="etc/shadow")], "which the package does not have"),
        ([entry("./usr/x", b"1"), entry("./usr/x", b"2")], "both have usr/x"),
        ([folder("./usr/x"), entry("./usr/x", b"2")], "is a folder"),
    ],
)
def test_a_package_that_leads_out_is_refused(
    here: TreeHere, entries: list[tuple[tarfile.TarInfo, bytes]], reason: str
) -> None:
    with pytest.raises(BadPackage, match=reason):
        here.add(*entries)
    assert not list(here.root.parent.glob("escaped*"))
    assert not any(stat.S_ISCHR(path.lstat().st_mode) for path in here.root.rglob("*"))


def test_a_diversion_and_a_bomb_are_refused(here: TreeHere) -> None:
    here.add(entry("./usr/bin/x", b"1"))
    with pytest.raises(BadPackage, match="the packages a and b both have usr/bin/x, which needs a diversion"):
        here.add(entry("./bin/x", b"1"), name="b")
    with pytest.raises(OutOfSpace, match="more than 1,048,576 bytes unpacked"):
        here.add(entry("./usr/bin/zeros", bytes(2 << 20)), name="c")


def test_a_file_that_is_not_a_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.deb"
    for content, reason in ((b"<html>", "is not a Debian package"), (b"!<arch>\n", "has no data.tar")):
        path.write_bytes(content)
        with pytest.raises(BadPackage, match=reason):
            list(DebArchive(path, "a").members())


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class ServedMirror:
    """A mirror over HTTP, and installers that use it."""

    def __init__(self, root: Path) -> None:
        self.mirror = Mirror(root / "mirror")
        handler = functools.partial(_QuietHandler, directory=str(root / "mirror"))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.store = FilesystemStore(root / "store")
        self._scratch = root / "scratch"
        self._scratch.mkdir()

    def installer(self, *, allowed: tuple[str, ...] = ("*",), keyring: Path | None = None) -> PackageInstaller:
        options = PackageOptions(mirrors=(self.url,), keyring=keyring or self.mirror.keyring, packages=allowed)
        return PackageInstaller(options, self.store)

    def resolve(self, *requests: str, keyring: Path | None = None) -> str:
        return self.installer(keyring=keyring).resolve(requests, self._scratch, lambda *_: None)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedMirror]:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    served = ServedMirror(tmp_path)
    served.mirror.add(
        "solver",
        "1.0-1",
        entry("./usr/bin/solver.real", b"#!/bin/sh\n", 0o755),
        entry("./etc/ld.so.conf.d/solver.conf", b"# comment\n/usr/lib/solver\n../out\n"),
        Depends="libsolver (>= 1)",
        postinst="update-alternatives --install /usr/bin/solver solver /usr/bin/solver.real 1",
    )
    served.mirror.add("libsolver", "1.1", entry("./usr/lib/solver/libsolver.so", b"elf"))
    served.mirror.sign("amd64")
    yield served
    served.server.shutdown()
    served.server.server_close()


@needs_gpg
def test_a_lock_pins_every_package_and_is_unpacked_without_the_mirror(served: ServedMirror, tmp_path: Path) -> None:
    text = served.resolve("solver=1.0")
    lock = read_lock(text)
    assert [(each.name, each.version) for each in lock.packages] == [("libsolver", "1.1"), ("solver", "1.0-1")]
    assert lock.links == [("/usr/bin/solver", "/usr/bin/solver.real")]
    served.server.shutdown()
    served.server.server_close()
    place = tmp_path / "environment"
    place.mkdir()
    served.installer().install(text, place, lambda *_: None)
    root = place / "root"
    assert (root / "usr/bin/solver").read_bytes() == b"#!/bin/sh\n"
    assert library_folders(root) == ["/usr/lib/solver"]
    assert stat.S_IMODE((root / "usr/bin/solver.real").stat().st_mode) == 0o555


@needs_gpg
@pytest.mark.skipif(find_compiler() is None, reason="needs a compiler")
def test_packages_with_a_launcher_of_ranks_have_the_library_that_measures_ranks_beside_them(
    served: ServedMirror, tmp_path: Path
) -> None:
    served.mirror.add("launcher", "1.0", entry("./usr/bin/mpirun", b"#!/bin/sh\n", 0o755))
    served.mirror.sign("amd64")
    for name in ("launcher", "solver"):
        place = tmp_path / name
        place.mkdir()
        served.installer().install(served.resolve(name), place, lambda *_: None)
        built = [path.name for path in (place / BESIDE).glob("*")]
        assert built == (["libwindtunnel_mpi_times.so"] if name == "launcher" else [])
        assert sorted(path.name for path in place.iterdir()) == [*([BESIDE] if built else []), "root"]


@needs_gpg
def test_an_index_of_another_key_and_a_changed_one_are_refused(served: ServedMirror, tmp_path: Path) -> None:
    stranger = Mirror(tmp_path / "stranger")
    with pytest.raises(BadSignature, match="signature of the package index is not valid"):
        served.resolve("solver", keyring=stranger.keyring)
    signed = served.mirror.root / "dists/bookworm/InRelease"
    text = signed.read_text()
    signed.write_text(text.replace("Codename: bookworm", "Codename: bookworn"))
    with pytest.raises(BadSignature, match="signature of the package index is not valid"):
        served.resolve("solver")
    signed.write_text("Codename: bookworm\n" + text)
    with pytest.raises(BadSignature, match="has no signature"):
        served.resolve("solver")


@needs_gpg
def test_text_after_the_signed_part_is_not_taken_for_the_index(served: ServedMirror) -> None:
    signed = served.mirror.root / "dists/bookworm/InRelease"
    forged = hashlib.sha256(b"forged").hexdigest()
    signed.write_text(signed.read_text() + f"\nSHA256:\n {forged} 6 main/binary-amd64/Packages.xz\n")
    try:
        text = served.resolve("solver")
    except BadSignature:
        return
    assert forged not in text
    assert [each.name for each in read_lock(text).packages] == ["libsolver", "solver"]


@needs_gpg
def test_an_index_of_another_suite_is_refused_although_it_is_signed(served: ServedMirror, tmp_path: Path) -> None:
    dists = served.mirror.root / "dists"
    (dists / "bookworm").rename(dists / "trixie")
    options = PackageOptions(mirrors=(served.url,), keyring=served.mirror.keyring, packages=("*",), suite="trixie")
    with pytest.raises(BadSignature, match="is of bookworm or stable, and trixie was asked for"):
        PackageInstaller(options, served.store).resolve(["solver"], tmp_path, lambda *_: None)


@needs_gpg
def test_a_package_that_is_not_the_signed_one_is_refused_and_not_stored(served: ServedMirror) -> None:
    deb(served.mirror.root / "pool/main/libsolver_1.1.deb", entry("./usr/bin/backdoor", b"1"))
    with pytest.raises(CannotPrepare):
        served.resolve("solver")
    assert not list(served.store.list("packages/"))


@needs_gpg
def test_a_stored_package_that_has_changed_is_refused(served: ServedMirror, tmp_path: Path) -> None:
    text = served.resolve("solver")
    key = read_lock(text).packages[0].key
    path = served.store.root / key
    path.chmod(0o644)
    path.write_bytes(b"changed")
    with pytest.raises(BadSignature, match="is not the one with the SHA-256 of the lock"):
        served.installer().install(text, tmp_path, lambda *_: None)


@needs_gpg
def test_packages_that_the_operator_does_not_allow_are_refused_before_the_mirror_is_asked(
    served: ServedMirror, tmp_path: Path
) -> None:
    served.server.shutdown()
    with pytest.raises(BadRequirements, match=r"does not allow the package solver .*WINDTUNNEL_DEBIAN_PACKAGES"):
        served.installer(allowed=("lib*",)).resolve(["solver"], tmp_path, lambda *_: None)


def test_without_a_keyring_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotPrepare, match="install gpgv and debian-archive-keyring"):
        signed_text(b"-----BEGIN PGP SIGNED MESSAGE-----\n", tmp_path / "absent.gpg")


def test_shipped_locks_have_their_packages_and_are_resolved_without_a_mirror(tmp_path: Path) -> None:
    class Nowhere:
        def put(self, *_: object) -> int:
            raise AssertionError

        def get(self, key: str) -> Iterator[bytes]:
            raise NotFound(key)

    assert shipped_locks()
    for (architecture, requests), text in shipped_locks().items():
        lock = read_lock(text)
        assert lock.text() == text
        assert {request.partition("=")[0] for request in requests} <= {each.name for each in lock.packages}
        assert {"dash", "libc6", "base-files"} <= {each.name for each in lock.packages}  # essential
        if architecture == "amd64" and os.uname().machine == "x86_64":
            installer = PackageInstaller(PackageOptions(mirrors=()), Nowhere())
            assert installer.resolve(requests, tmp_path, lambda *_: None) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "Expected `object`"),
        ('{"packages": ["a-b"]}', "command"),
        ('{"packages": ["A B"], "command": ["x"]}', "each is a Debian package"),
        ('{"packages": ["ab"], "command": ["x"], "progres": ""}', "progres"),
        ('{"packages": ["ab"], "command": ["x"], "metrics": {"m": "("}}', "expression of m is not valid"),
        ('{"packages": ["ab"], "command": ["x"], "metrics": {"m": "a{99999999999999999999}"}}', "of m is not valid"),
        ('{"packages": ["ab"], "command": ["x"], "templates": ["../x"]}', "is not the path of a file"),
        ('{"packages": ["ab"], "command": ["x"], "ranks": 0}', "ranks"),
        ('{"packages": ["ab"], "command": ["x"], "files": {"a": "", "a/b": ""}}', "`files` has 'a' and files in a fo"),
        ('{"packages": ["ab"], "command": ["sh", "-c", "x {{ v }}"]}', "move {{ v }} into a file"),
        ('{"packages": ["ab"], "command": ["x\\u0000"]}', "has a NUL"),
        ('{"packages": ["ab"], "command": ["x"], "environ": {"V": "\\u0000"}}', "has a NUL"),
        (
            '{"packages": ["ab"], "command": ["x"], "metrics": {"m": "' + "(" * 499 + ")" * 499 + '"}}',
            "of m is not valid",
        ),
        ('{"packages": ["ab"], "command": ["x"], "environ": {"V": "{{v}}"}}', "not into the command or `environ`"),
    ],
)
def test_a_description_that_cannot_be_read_is_refused_with_the_member(text: str, reason: str) -> None:
    with pytest.raises(BadRequirements, match=reason):
        parse_case(text)
