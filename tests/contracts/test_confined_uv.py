"""Subverted installer: a hostile program in uv's place reaches nothing, at each level and as each user."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uv

from common.errors import BadRequirements
from runtimes import confined_program
from runtimes.dependencies import confined_uv
from runtimes.dependencies import installer as installer_module
from runtimes.dependencies.confined_uv import UvOptions
from runtimes.dependencies.declaration import of_requirements
from runtimes.dependencies.index_proxy import IndexProxy
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.environments import ProgramKilled
from tests.contracts.hostile_program import program
from tests.contracts.package_index import PackageIndex, wheel
from tests.contracts.test_installer import quiet
from tests.sandbox.attacks import python_for_all


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-uv-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    server = PackageIndex(wheel("alpha"))
    yield server
    server.close()


@pytest.fixture
def elsewhere() -> Iterator[PackageIndex]:
    server = PackageIndex(wheel("alpha"))
    yield server
    server.close()


def outcomes(
    folder: Path,
    index: PackageIndex,
    monkeypatch: pytest.MonkeyPatch,
    level: int,
    body: str,
    reach: dict[str, object],
    upstream: tuple[str, int] | None = None,
) -> dict[str, str]:
    """Run probes in uv's place at a level; return each one's outcome."""
    filled = folder / "filled"
    filled.mkdir()
    python = python_for_all(folder / "python")  # at level 2 the folders above it have to be readable too
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(confined_uv, "PYTHON", str(python))
    binary = program(folder, reach, body, python)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(binary))
    start = confined_program.start

    def at_level(command: Any, environ: Any, confinement: Mapping[str, Any], **options: Any) -> Any:
        return start(command, environ, {**confinement, "level": level}, **options)

    monkeypatch.setattr(confined_program, "start", at_level)
    (folder / "cache").mkdir()
    port = int(index.address.rpartition(":")[2])
    options = UvOptions(
        cache=folder / "cache",
        environ={},
        readonly=(),
        allowed=frozenset({("127.0.0.1", port)}),
        upstream=upstream,
        largest=16 << 20,
    )
    result = confined_uv.run([], options, [filled], 60.0, quiet)
    found = dict(line.split(": ", 1) for line in result.output.splitlines() if ": " in line)
    assert found, result
    return found


FILES = """
for name in ("database", "home", "accounts", "cgroup"):
    attempt(name, read(REACH[name]))
attempt("parent_environment", read(f"/proc/{REACH['parent']}/environ"))
attempt("write_beside", write(REACH["database"] + ".new"))
attempt("write_tmp", write("/tmp/windtunnel-escaped"))
attempt("write_own", write(REACH["own"]))
attempt("elsewhere", connect("127.0.0.1", REACH["port"]))
attempt("index_itself", connect("127.0.0.1", REACH["index"]))
attempt("fast_open", fast_open("127.0.0.1", REACH["port"]))
attempt("multipath", kind(2, 1, 262))
attempt("sctp", kind(2, 1, 132))
attempt("datagram", kind(2, 2, 0))
attempt("unix", kind(1, 1, 0))
attempt("netlink", kind(16, 3, 0))
attempt("kernel_tls", option(6, 31))
attempt("attach_filter", option(1, 26))
attempt("signal_parent", lambda: os.kill(REACH["parent"], 0) or "SIGNALLED")
attempt("child", spawn)
"""
#: Outcomes that are not refusals.
ALLOWED = {"write_own": "WROTE", "child": "spawned"}


@pytest.mark.parametrize("level", [3, 2])
def test_a_subverted_installer_reaches_neither_files_nor_hosts(
    level: int, folder: Path, index: PackageIndex, elsewhere: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "database").write_text("secret")
    reach = {
        "database": str(folder / "database"),
        "home": str(Path.home()),
        "accounts": "/etc/passwd",
        "cgroup": "/sys/fs/cgroup",
        "parent": os.getpid(),
        "own": str(folder / "filled" / "own"),
        "late": str(folder / "filled" / "late"),
        "port": int(elsewhere.address.rpartition(":")[2]),
        "index": int(index.address.rpartition(":")[2]),
    }
    found = outcomes(folder, index, monkeypatch, level, FILES, reach)
    allowed = ALLOWED | ({"write_tmp": "WROTE"} if level == 3 else {})  # a /tmp of its own
    assert {name: found.get(name) for name in allowed} == allowed, found
    assert {name: text for name, text in found.items() if name not in allowed and not text.startswith("refused")} == {}
    assert len(found) == 20 and not elsewhere.requests and not Path("/tmp/windtunnel-escaped").exists()
    until = time.monotonic() + 5
    while time.monotonic() < until and not (folder / "filled" / "late").exists():
        threading.Event().wait(0.1)
    assert not (folder / "filled" / "late").exists()  # the child that was left has ended with it


ASKED = r"""
good = f"127.0.0.1:{REACH['index']}".encode()
bad = f"127.0.0.1:{REACH['port']}".encode()
def get(target, *lines, host=good):
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", b"Host: " + host, *lines]) + b"\r\n\r\n"
def tunnel(target):
    return b"CONNECT " + target + b" HTTP/1.1\r\n\r\n"
attempt("allowed", ask(get(b"http://" + good + b"/simple/alpha/")))
attempt("connect_elsewhere", ask(tunnel(bad)))
attempt("connect_port", ask(tunnel(b"127.0.0.1:22")))
attempt("connect_user", ask(tunnel(bad + b"@" + good)))
attempt("connect_ipv6", ask(tunnel(b"[::ffff:127.0.0.1]:" + good[10:])))
attempt("connect_decimal", ask(tunnel(b"2130706433:" + good[10:])))
attempt("connect_octal", ask(tunnel(b"0177.0.0.1:" + good[10:])))
attempt("connect_dot", ask(tunnel(b"127.0.0.1.:" + good[10:])))
attempt("connect_upper", ask(tunnel(b"LOCALHOST:" + good[10:])))
attempt("connect_metadata", ask(tunnel(b"169.254.169.254:80")))
attempt("absolute_elsewhere", ask(get(b"http://" + bad + b"/secret", host=good)))
attempt("user_in_target", ask(get(b"http://" + bad + b"@" + good + b"/secret")))
attempt("user_in_target_reversed", ask(get(b"http://" + good + b"@" + bad + b"/secret")))
attempt("backslash", ask(get(b"http://" + bad + b"\\@" + good + b"/secret")))
attempt("fragment", ask(get(b"http://" + good + b"#@" + bad + b"/secret")))
attempt("https_in_absolute", ask(get(b"https://" + good + b"/secret")))
attempt("origin_form", ask(get(b"/secret", host=bad)))
attempt("file", ask(get(b"file:///etc/passwd")))
attempt("post", ask(b"POST http://" + good + b"/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))
attempt("body", ask(get(b"http://" + good + b"/", b"Transfer-Encoding: chunked")))
attempt("bare_newline", ask(get(b"http://" + good + b"/", b"X: 1\n\nGET http://" + bad + b"/secret HTTP/1.1")))
attempt("folded", ask(get(b"http://" + good + b"/", b"X: 1\r\n Host: " + bad)))
attempt("two_requests", ask(get(b"http://" + good + b"/simple/alpha/") + get(b"http://" + bad + b"/secret", host=bad)))
attempt("two_requests_apart", ask(get(b"http://" + good + b"/simple/alpha/"), get(b"http://" + bad + b"/secret")))
attempt("host_header", ask(get(b"http://" + good + b"/simple/alpha/", b"Host: " + bad, host=bad)))
"""
#: Probes to which the index may answer, once.
ANSWERED = {"allowed", "two_requests", "two_requests_apart", "host_header"}


@pytest.mark.parametrize("upstream", [False, True], ids=["direct", "through the operator's proxy"])
def test_requests_of_a_subverted_installer_reach_the_allowed_host_once(
    upstream: bool, folder: Path, index: PackageIndex, elsewhere: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"index": int(index.address.rpartition(":")[2]), "port": int(elsewhere.address.rpartition(":")[2])}
    listener = socket.create_server(("127.0.0.1", 0))
    open_to_all = {("127.0.0.1", port) for port in ports.values()}
    proxy = IndexProxy(listener, open_to_all, largest=1 << 30)
    try:
        address = listener.getsockname() if upstream else None
        found = outcomes(folder, index, monkeypatch, 3, ASKED, dict(ports), address)
    finally:
        proxy.close()
    assert {name for name, text in found.items() if text.startswith("ANSWERED 1 HTTP/1.0 200")} == ANSWERED, found
    rest = {name: text for name, text in found.items() if name not in ANSWERED}
    assert {name: text for name, text in rest.items() if " 403 " not in text and " 400 " not in text} == {}
    assert len(found) == 25 and not elsewhere.requests and set(index.requests) == {"/simple/alpha/"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("out = sys.argv[sys.argv.index('-o') + 1]; os.unlink(out); os.symlink('/etc/passwd', out)", "cannot be read"),
        ("out = sys.argv[sys.argv.index('-o') + 1]; open(out, 'w').truncate(5 << 20)", "more than 4,194,304 bytes"),
        ("os.write(2, b'x' * (8 << 20)); sys.exit(1)", "cannot be resolved"),
        ("p = sys.argv[-1] + '-'\nfor n in range(300): os.mkdir(p); os.chdir(p); p = 'a'", "within each other"),
    ],
    ids=["a lock that is a link", "a lock of 5 MB", "a line of 8 MB", "folders in folders"],
)
def test_what_a_subverted_installer_leaves_is_not_trusted(
    body: str, reason: str, folder: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer_module, "HARNESS", ())
    binary = program(folder, {}, body)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(binary))
    installer = Installer(folder / "packages", InstallerOptions(indexes=(index.url,), hosts=(), environ={}))
    with pytest.raises(BadRequirements) as caught:
        installer.resolve(of_requirements("alpha"), "", quiet)
    assert reason in str(caught.value.detail) and "root:" not in str(caught.value.detail)
    assert not list((folder / "packages").glob(".uv-*"))


@pytest.mark.parametrize("sandbox", [True, False])
def test_an_installer_that_is_killed_is_no_fault_of_the_requirements(
    folder: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, sandbox: bool
) -> None:
    (folder / "tree").mkdir()
    binary = program(folder, {}, "os.kill(os.getpid(), 9)")
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(binary))
    options = InstallerOptions(indexes=(index.url,), hosts=(), environ={}, sandbox=sandbox)
    installer = Installer(folder / "packages", options)
    with pytest.raises(ProgramKilled, match="uv, was killed by SIGKILL; it is tried again"):
        installer.resolve(of_requirements("alpha"), "", quiet)
    with pytest.raises(ProgramKilled, match="uv, was killed by SIGKILL; it is tried again"):
        installer.install("alpha==1.0\n", folder / "tree", quiet)


def test_a_folder_of_packages_that_is_a_link_is_not_frozen(
    folder: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "victim" / "bin").mkdir(parents=True)
    (folder / "tree").mkdir()
    binary = program(
        folder,
        {"victim": str(folder / "victim")},
        "os.symlink(REACH['victim'], sys.argv[sys.argv.index('--target') + 1])",
    )
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(binary))
    installer = Installer(folder / "packages", InstallerOptions(indexes=(index.url,), hosts=(), environ={}))
    with pytest.raises(BadRequirements, match="no folder of packages"):
        installer.install("beta==1.0\n", folder / "tree", quiet)
    assert (folder / "victim" / "bin").is_dir() and not list((folder / "tree").iterdir())
