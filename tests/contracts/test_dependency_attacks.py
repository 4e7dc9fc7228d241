"""Attacks on dependencies: each row names what a model's author or an index tries, and the outcome.

Further rows, which never reach the installer: tests/unit/test_declared_dependencies.py. What code in uv's place could
reach: test_confined_uv.py. Packages that replace other modules: test_package_shadows.py.
"""

import hashlib
import io
import os
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from common.errors import BadArchive, BadName, BadRequirements, TooLarge
from datasets.versions.archives import extraction
from datasets.versions.archives.extraction import extract, tar_names
from runtimes.dependencies import installer as installer_module
from runtimes.dependencies.declaration import Declaration, of_pyproject, of_requirements, of_script
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.dependencies.lock import checked, pins
from runtimes.dependencies.lock_files import of_pylock, of_uv_lock
from runtimes.dependencies.untrusted_folders import remove
from runtimes.environments import CannotPrepare
from tests.contracts.package_index import PackageIndex, wheel
from tests.contracts.test_installer import quiet

REFUSED, HARMLESS = "refused", "harmless"
LARGEST = 16 << 20
INFO = "evil-1.0.dist-info"
RAN = b"import os, tempfile\nopen('/tmp/escaped-ran', 'w')\n"
#: A name in a wheel, or an entry with attributes of its own, and the bytes.
Members = list[tuple[str | zipfile.ZipInfo, bytes]]


class Attack(NamedTuple):
    """What is tried, its outcome, and a part of the refusal's reason; a large content is made when it is needed."""

    tries: str
    outcome: str
    reason: str
    content: object


def packed(members: Members, *, name: str = "evil", metadata: bytes | None = None) -> bytes:
    """Return a wheel with these members besides its metadata, without a RECORD unless there is one among them."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode() if metadata is None else metadata
    kind = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    given = {entry if isinstance(entry, str) else entry.filename for entry, _ in members}
    rest = {f"{INFO}/METADATA": metadata, f"{INFO}/WHEEL": kind, f"{INFO}/RECORD": b""}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in [*members, *((path, data) for path, data in rest.items() if path not in given)]:
            archive.writestr(entry, data)
    return buffer.getvalue()


def link(name: str, target: str) -> Members:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return [(entry, target.encode())]


def setuid(name: str) -> Members:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o6777) << 16
    return [(entry, b"#!/bin/sh\n")]


def renamed(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return a zip with a member's name replaced by bytes that zipfile would not write; the lengths are equal."""
    assert len(old) == len(new) and old in content
    return content.replace(old, new)


def empty_files(count: int) -> Members:
    return [(f"evil/{number}", b"") for number in range(count)]


DATA = "evil-1.0.data"
WHEELS: Mapping[str, Attack] = {
    "link_to_a_file": Attack("a member is a link to /etc/passwd", HARMLESS, "", packed(link("evil/x", "/etc/passwd"))),
    "link_to_a_folder": Attack(
        "a link to the parent, and a file in it", REFUSED, "", packed([*link("up", ".."), ("up/escaped.py", b"")])
    ),
    "data_up": Attack("../ in .data/data", HARMLESS, "", packed([(f"{DATA}/data/../../../escaped.py", b"")])),
    "data_absolute": Attack("/ in .data/data", HARMLESS, "", packed([(f"{DATA}/data//tmp/escaped.py", b"")])),
    "headers_up": Attack(
        "../ in .data/headers", HARMLESS, "", packed([(f"{DATA}/headers/../../../../escaped.h", b"")])
    ),
    "scripts_up": Attack(
        "../ in .data/scripts", HARMLESS, "", packed([(f"{DATA}/scripts/../../../escaped", b"#!python")])
    ),
    "data_scheme": Attack("a scheme that does not exist", REFUSED, "", packed([(f"{DATA}/evil/escaped.py", b"")])),
    "scripts": Attack(
        "a program in .data/scripts", HARMLESS, "", packed([(f"{DATA}/scripts/tool", b"#!python\n" + RAN)])
    ),
    "entry_point": Attack(
        "an entry point named ../../escaped",
        REFUSED,
        "",
        packed([(f"{INFO}/entry_points.txt", b"[console_scripts]\n../../../escaped = evil:main\n")]),
    ),
    "entry_point_code": Attack(
        "code in an entry point",
        REFUSED,
        "",
        packed([(f"{INFO}/entry_points.txt", b"[console_scripts]\nx = os;system('x')\n")]),
    ),
    "record_up": Attack(
        "../ in RECORD", HARMLESS, "", packed([(f"{INFO}/RECORD", b"../../../escaped.py,,\n/etc/passwd,,\n")])
    ),
    "record_malformed": Attack(
        "a RECORD that is not a table", REFUSED, "", packed([(f"{INFO}/RECORD", b'"\x00,,,,,\n"')])
    ),
    "other_name": Attack("metadata of another package", REFUSED, "", packed([], name="alpha")),
    "other_version": Attack(
        "metadata of another version",
        REFUSED,
        "",
        packed([], metadata=b"Metadata-Version: 2.1\nName: evil\nVersion: 9.0\n"),
    ),
    "no_metadata_name": Attack("metadata without a name", REFUSED, "", packed([], metadata=b"Metadata-Version: 2.1\n")),
    "two_infos": Attack(
        "two dist-info folders", REFUSED, "", packed([("alpha-1.0.dist-info/METADATA", b"Name: alpha\n")])
    ),
    "address_required": Attack(
        "a requirement with an address in metadata",
        REFUSED,
        "",
        packed(
            [],
            metadata=b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nRequires-Dist: x @ http://127.0.0.1:1/x-1-py3-none-any.whl\n",
        ),
    ),
    "file_required": Attack(
        "a requirement with a file's address in metadata",
        REFUSED,
        "",
        packed(
            [], metadata=b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nRequires-Dist: x @ file:///etc/passwd\n"
        ),
    ),
    "forbidden_required": Attack(
        "a requirement of a name that is not allowed",
        REFUSED,
        "The package forbidden is not allowed",
        packed([], metadata=b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\nRequires-Dist: forbidden\n"),
    ),
    "pth": Attack(
        "a .pth file with code", HARMLESS, "", packed([("evil.pth", b"import os; open('/tmp/escaped-ran', 'w')\n")])
    ),
    "sitecustomize": Attack(
        "modules that an interpreter imports by itself",
        HARMLESS,
        "",
        packed(
            [
                (name, RAN)
                for name in (
                    "sitecustomize.py",
                    "usercustomize.py",
                    "compileall.py",
                    "encodings/__init__.py",
                    "py_compile.py",
                )
            ]
        ),
    ),
    "bytecode": Attack(
        "bytecode of its own",
        HARMLESS,
        "",
        packed([("evil.py", b""), ("__pycache__/evil.cpython-311.pyc", b"\xff" * 99)]),
    ),
    "setuid": Attack("a file with the setuid bit", HARMLESS, "", packed(setuid("evil/tool"))),
    "twice": Attack(
        "one name twice", REFUSED, "", renamed(packed([("evil.py", b"1"), ("evil.pz", b"2")]), b"evil.pz", b"evil.py")
    ),
    "case": Attack("names that differ in case", HARMLESS, "", packed([("evil.py", b""), ("EVIL.py", b"")])),
    "nul": Attack("a NUL in a name", REFUSED, "", renamed(packed([("evil@.py", b"")]), b"evil@.py", b"evil\0.py")),
    "backslash": Attack("backslashes in a name", HARMLESS, "", packed([("..\\..\\escaped.py", b"")])),
    "not_utf8": Attack(
        "a name that is not UTF-8", REFUSED, "", renamed(packed([("evil@.py", b"")]), b"evil@.py", b"evil\xff.py")
    ),
    "long_name": Attack("a name of 60,000 bytes", REFUSED, "", packed([("x" * 60_000, b"")])),
    "deep": Attack(
        "1,500 folders within each other", REFUSED, "folders within each other", packed([("a/" * 1500 + "x.py", b"")])
    ),
    "bomb_of_one_file": Attack("200 MB of zeros in 200 kB", REFUSED, "", lambda: packed([("zeros", bytes(200 << 20))])),
    "bomb_of_many_files": Attack(
        "80 files of 1 MB",
        REFUSED,
        "",
        lambda: packed([(f"{number}", bytes(1 << 20)) for number in range(80)]),
    ),
    "bomb_in_a_bomb": Attack(
        "a wheel in a wheel is a file",
        HARMLESS,
        "",
        lambda: packed([("x.whl", packed([("zeros", bytes(50 << 20))]))]),
    ),
    "large_metadata": Attack(
        "metadata of 64 MB",
        REFUSED,
        "",
        lambda: packed([], metadata=b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n\n" + bytes(64 << 20)),
    ),
    "empty_files": Attack(
        "3,000 empty files, with a limit of 2,000", REFUSED, "more than 2,000 files", packed(empty_files(3000))
    ),
    "not_a_zip": Attack("no zip at all", REFUSED, "", b"#!/bin/sh\n"),
    "deep_source": Attack("a module that the compiler refuses", HARMLESS, "", packed([("evil.py", b"(" * 5000)])),
}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    monkeypatch.setattr(installer_module, "HARNESS", ())
    server = PackageIndex(wheel("alpha"), wheel("forbidden"))
    yield server
    server.close()


@pytest.fixture
def installer(index: PackageIndex, tmp_path: Path) -> Installer:
    return installer_of(tmp_path, index)


def installer_of(folder: Path, *indexes: PackageIndex) -> Installer:
    urls = tuple(index.url for index in indexes)
    allowed = ("evil", "alpha", "foo-*")
    return Installer(
        folder / "packages", InstallerOptions(indexes=urls, hosts=(), environ={}, largest=LARGEST, packages=allowed)
    )


def outcome(installer: Installer, requirement: str, tree: Path) -> tuple[str, str]:
    """Resolve and install; return whether it was refused, and the reason."""
    tree.mkdir()
    try:
        installer.install(installer.resolve(of_requirements(requirement), "", quiet), tree, quiet)
    except (BadRequirements, CannotPrepare) as error:
        assert not list(tree.iterdir())
        return REFUSED, str(error)
    return HARMLESS, ""


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_is_refused_or_harmless(
    name: str, index: PackageIndex, installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtimes.dependencies.confined_uv.ENTRIES", 2000)
    attack = WHEELS[name]
    content = attack.content() if callable(attack.content) else attack.content
    assert isinstance(content, bytes)
    index.packages["evil-1.0-py3-none-any.whl"] = content
    result, reason = outcome(installer, "evil", tmp_path / "tree")
    remove(tmp_path / "packages" / "cache")
    assert result == attack.outcome and attack.reason in reason, reason
    site = tmp_path / "tree" / "site"
    outside = [path for path in tmp_path.rglob("*escaped*") if site not in path.parents]
    assert not outside and not list(Path("/tmp").glob("escaped*"))
    assert not list((tmp_path / "packages").glob(".uv-*"))
    for path in site.rglob("*"):
        assert path.is_symlink() or not path.stat().st_mode & 0o7022, path
        assert not path.is_symlink() or site in path.resolve().parents or path.readlink().is_absolute(), path


#: Answers of an index: the page of a package, or how a request is answered. ``{}``: the address of another server.
EVIL = wheel("evil")
DIGEST = hashlib.sha256(EVIL[1]).hexdigest()


def page(target: str, digest: str = DIGEST) -> str:
    return f'<html><body><a href="{target}#sha256={digest}">evil-1.0-py3-none-any.whl</a></body></html>'


class AnsweringIndex(PackageIndex):
    """An index that answers with a page of a test, or an endless stream."""

    def __init__(self, text: str, *, status: int = 200, content_type: str = "text/html") -> None:
        super().__init__(EVIL)
        self._page = status, content_type, text

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Answer the page for every project."""
        if path.startswith("/files/"):
            return super().answer(path)
        return self._page[0], self._page[1], self._page[2].encode()


JSON = "application/vnd.pypi.simple.v1+json"
PAGES: Mapping[str, Attack] = {
    "other_host": Attack(
        "a link to another host", REFUSED, "does not allow", page("{}/files/evil-1.0-py3-none-any.whl")
    ),
    "metadata_service": Attack(
        "a link to the metadata service",
        REFUSED,
        "169.254.169.254",
        page("http://169.254.169.254/latest/evil-1.0-py3-none-any.whl"),
    ),
    "other_port": Attack(
        "a link to another port", REFUSED, "does not allow", page("http://127.0.0.1:1/evil-1.0-py3-none-any.whl")
    ),
    "user_in_link": Attack(
        "a link with the allowed host as user",
        REFUSED,
        "does not allow",
        page("http://127.0.0.1@localhost:1/evil-1.0-py3-none-any.whl"),
    ),
    "ipv6": Attack(
        "a link to an IPv6 address", REFUSED, "does not allow", page("http://[::1]:1/evil-1.0-py3-none-any.whl")
    ),
    "decimal": Attack(
        "a link to an address in decimal", REFUSED, "", page("http://2130706433:1/evil-1.0-py3-none-any.whl")
    ),
    "file": Attack("a link to a file", REFUSED, "", page("file:///etc/passwd/evil-1.0-py3-none-any.whl")),
    "javascript": Attack("a link with a script", REFUSED, "", page("javascript:alert(1)//evil-1.0-py3-none-any.whl")),
    "lying_hash": Attack("a hash of another file", REFUSED, "", page("/files/evil-1.0-py3-none-any.whl", "b" * 64)),
    "no_hash_type": Attack(
        "a hash of a weak kind", REFUSED, "", page("/files/evil-1.0-py3-none-any.whl").replace("sha256", "evil")
    ),
    "other_project": Attack(
        "another project's files", REFUSED, "", page("/files/alpha-1.0-py3-none-any.whl").replace("evil", "alpha")
    ),
    "base": Attack(
        "a base of another host",
        REFUSED,
        "does not allow",
        '<base href="http://127.0.0.1:1/">' + page("x/evil-1.0-py3-none-any.whl"),
    ),
    "not_html": Attack("bytes that are not a page", REFUSED, "", "\x00\x01"),
    "large_page": Attack("a page of 20 MB", REFUSED, "bytes", "<html>" + " " * (20 << 20)),
    "many_links": Attack("50,000 links without a wheel", REFUSED, "", "<html>" + '<a href="x.txt">x.txt</a>' * 50_000),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_an_index_leads_nowhere_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer_module, "HARNESS", ())
    attack, elsewhere = PAGES[name], PackageIndex(EVIL)
    index = AnsweringIndex(str(attack.content).replace("{}", elsewhere.address))
    try:
        result, reason = outcome(installer_of(tmp_path, index), "evil", tmp_path / "tree")
        assert result == attack.outcome and attack.reason in reason, reason
        assert not elsewhere.requests
    finally:
        index.close()
        elsewhere.close()


def test_invalid_json_of_an_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer_module, "HARNESS", ())
    index = AnsweringIndex("{" * 10_000, content_type=JSON)
    try:
        assert outcome(installer_of(tmp_path, index), "evil", tmp_path / "tree")[0] == REFUSED
    finally:
        index.close()


def test_an_index_that_is_silent_ends_at_the_limit_of_time(
    index: PackageIndex, installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_module, "RESOLUTION", 2.0)
    release = threading.Event()
    monkeypatch.setattr(index, "answer", lambda path: release.wait(30) and (200, "text/html", b""))
    result, reason = outcome(installer, "evil", tmp_path / "tree")
    release.set()
    assert result == REFUSED and "more than 2 s" in reason


#: Versions of ``foo-bar`` on the operator's internal index and on a public one, and what is asked for.
@pytest.mark.parametrize(
    "requirement", ["Foo_Bar", "foo.bar", "FOO--BAR", "foo-bar[extra]", "foo_bar>=0; python_version>'3'"]
)
def test_no_spelling_of_an_internal_name_is_taken_from_a_public_index(
    requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_module, "HARNESS", ())
    internal = PackageIndex(wheel("foo_bar", "1.0"))
    public = PackageIndex(wheel("foo_bar", "99.0"), wheel("foo_bar", "0.1"))
    try:
        lock = installer_of(tmp_path, internal, public).resolve(of_requirements(requirement), "", quiet)
        assert pins(lock) == {"foo-bar": "1.0"} and not public.requests
    finally:
        internal.close()
        public.close()


@pytest.mark.parametrize("requirement", ["alpha[evil]", "alpha; os_name == 'posix'"])
def test_extras_and_markers_add_no_forbidden_name(
    requirement: str, index: PackageIndex, installer: Installer, tmp_path: Path
) -> None:
    extra = ("forbidden ; extra == 'evil'", "forbidden ; os_name == 'posix'")
    index.packages |= dict([wheel("alpha", "2.0", requires=extra)])
    result, reason = outcome(installer, requirement, tmp_path / "tree")
    assert result == REFUSED and "forbidden is not allowed" in reason


SHA = "sha256:" + "a" * 64
PROJECT = '[project]\ndependencies = ["a"]\n'


def uv_lock(**fields: str) -> str:
    values = {"name": '"a"', "version": '"1"', "source": '{registry="x"}', "wheels": f'[{{hash="{SHA}"}}]'} | fields
    return "[[package]]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def deep(depth: int) -> str:
    return "(" * depth + "os_name == 'x'" + ")" * depth


Read = Callable[[str], Declaration | None]


def of_lock(text: str) -> Declaration:
    return of_uv_lock(text, PROJECT)


DECLARATIONS: Mapping[str, tuple[Read, Attack]] = {
    "openings": (of_script, Attack("80,000 openings of script metadata", HARMLESS, "", "# /// script\n" * 80_000)),
    "blanks": (
        of_requirements,
        Attack("a line of a million blanks", REFUSED, "500 characters", "a" + " " * 1_000_000 + "x"),
    ),
    "continued": (of_requirements, Attack("400,000 continued lines", HARMLESS, "", "\\\n" * 400_000)),
    "variable": (
        of_requirements,
        Attack("a variable of the environment", REFUSED, "variables", "a; os_name == '${UV_INDEX}'"),
    ),
    "arbitrary": (of_requirements, Attack("an arbitrary version", REFUSED, "===", "a===--index-url=http://x")),
    "unicode_name": (
        of_requirements,
        Attack("a name that looks like another", REFUSED, "not a requirement", "n\u0443mpy"),
    ),
    "line_separator": (
        of_requirements,
        Attack("a line separator of Unicode", REFUSED, "line 2", "a\u2028--index-url http://x"),
    ),
    "deep_marker": (of_requirements, Attack("a marker of 200 parentheses", HARMLESS, "", f"a; {deep(200)}")),
    "number": (of_pyproject, Attack("a number of 10,000 digits", REFUSED, "is not TOML", "x = " + "1" * 10_000)),
    "dotted_key": (of_pyproject, Attack("a key of 300,000 parts", REFUSED, "150,000 dots", "a." * 300_000 + "a = 1")),
    "quoted_key": (of_pyproject, Attack("a key of quoted parts", REFUSED, "32 parts", '"a" . ' * 50_000 + "a = 1")),
    "dynamic": (of_pyproject, Attack("dynamic is a number", HARMLESS, "", "[project]\ndynamic = 1")),
    "tool": (of_pyproject, Attack("tool.uv is a number", REFUSED, "not a table", PROJECT + "[tool]\nuv = 1")),
    "python": (
        of_pyproject,
        Attack(
            "100,000 specifiers of Python",
            REFUSED,
            "100,000 values",
            PROJECT + f"requires-python = '{'>1,' * 100_000}'",
        ),
    ),
    "new_line": (
        of_pyproject,
        Attack("a line in a string", REFUSED, "address", '[project]\ndependencies = ["a\\n--index-url http://x"]'),
    ),
    "deep_toml": (of_lock, Attack("50,000 arrays within each other", REFUSED, "is not TOML", "x = " + "[" * 50_000)),
    "lock_marker": (
        of_lock,
        Attack(
            "a marker of 5,000 parentheses", REFUSED, "marker", uv_lock(**{"resolution-markers": f'["{deep(5000)}"]'})
        ),
    ),
    "lock_markers": (
        of_lock,
        Attack("markers are a number", REFUSED, "not a list", uv_lock(**{"resolution-markers": "1"})),
    ),
    "lock_version": (
        of_lock,
        Attack("a version of 5,000 digits", REFUSED, "no version", uv_lock(version=f'"{"1" * 5000}"')),
    ),
    "lock_long_marker": (
        of_lock,
        Attack("a marker of 100 kB", REFUSED, "20,000", uv_lock(**{"resolution-markers": f'["{"x" * 100_000}"]'})),
    ),
    "lock_packages": (of_lock, Attack("5,000 packages", REFUSED, "at most 500", uv_lock() * 5000)),
    "pylock_marker": (
        of_pylock,
        Attack(
            "a marker of 5,000 parentheses",
            REFUSED,
            "marker",
            f'lock-version = "1.0"\n[[packages]]\nname = "a"\nversion = "1"\nmarker = "{deep(5000)}"',
        ),
    ),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_is_read_or_refused_within_seconds(name: str) -> None:
    read, attack = DECLARATIONS[name]
    started = time.process_time()
    try:
        read(str(attack.content))
        result, reason = HARMLESS, ""
    except BadRequirements as error:
        result, reason = REFUSED, str(error.detail)
    assert result == attack.outcome and attack.reason in reason, reason
    assert time.process_time() - started < 3.0


LOCKS: Mapping[str, str] = {
    "an address": f"evil @ http://x/evil-1.0-py3-none-any.whl --hash={SHA}\n",
    "an option": f"alpha==1.0 \\\n    --hash={SHA}\n--index-url http://x\n",
    "an option at the start": f"-r /etc/passwd\nalpha==1.0 \\\n    --hash={SHA}\n",
    "no hash": "alpha==1.0\n",
    "a weak hash": "alpha==1.0 \\\n    --hash=md5:" + "a" * 32 + "\n",
    "a file of the platform": "root:x:0:0:root:/root:/bin/sh\n",
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_versions_and_hashes_and_nothing_else(name: str) -> None:
    with pytest.raises(BadRequirements, match="without a version and SHA-256 hashes"):
        checked(LOCKS[name], of_requirements("alpha"), ["*"])


def zipped(names: list[str], content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(*entries: tuple[str, bytes, str]) -> bytes:
    """Return a tar of entries: name, type and target of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    return buffer.getvalue()


ARCHIVES: Mapping[str, Attack] = {
    "requirements_twice": Attack(
        "requirements.txt twice",
        REFUSED,
        "twice",
        zipped(["requirements.txt", "requirements.tx_"]).replace(b".tx_", b".txt"),
    ),
    "symlink": Attack(
        "a symbolic link in a tar",
        REFUSED,
        "symbolic link",
        tarred(("x", tarfile.SYMTYPE, "/etc"), ("x/y", tarfile.REGTYPE, "")),
    ),
    "hard_link": Attack("a hard link in a tar", REFUSED, "hard link", tarred(("x", tarfile.LNKTYPE, "/etc/passwd"))),
    "device": Attack("a device in a tar", REFUSED, "a device", tarred(("x", tarfile.CHRTYPE, ""))),
    "pipe": Attack("a pipe in a tar", REFUSED, "a pipe", tarred(("x", tarfile.FIFOTYPE, ""))),
    "backslash_in_zip": Attack("a backslash in a zip", REFUSED, "backslash", zipped(["..\\x"])),
    "nul_in_zip": Attack("a control character in a zip", REFUSED, "control", zipped(["a@b"]).replace(b"a@b", b"a\1b")),
    "nested_folders": Attack(
        "50 files in 25,000 folders",
        REFUSED,
        "files and folders",
        zipped([f"{n}/" + "a/" * 500 + "x" for n in range(50)]),
    ),
    "many_files": Attack("2,001 files, with a limit of 2,000", REFUSED, "2,000", zipped([f"{n}" for n in range(2001)])),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_of_a_model_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "FILES", 2000)
    attack = ARCHIVES[name]
    assert isinstance(attack.content, bytes)
    (tmp_path / "archive").write_bytes(attack.content)
    with pytest.raises((BadArchive, BadName, TooLarge)) as caught:
        extract(tmp_path / "archive", tmp_path / "files", largest=LARGEST)
    assert attack.reason in str(caught.value.detail)
    folders = sum(len(names) for _, names, _ in os.walk(tmp_path / "files"))
    assert folders <= extraction.FILES


def test_a_compressed_tar_of_zeros_is_refused_while_it_is_listed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "archive", "w:gz", compresslevel=1) as archive:
        entry = tarfile.TarInfo("zeros")
        entry.size = 200 << 20
        archive.addfile(entry, io.BytesIO(bytes(200 << 20)))
    with pytest.raises(BadArchive, match="200 times its size"):
        tar_names(tmp_path / "archive", largest=1 << 30)
