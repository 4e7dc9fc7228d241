"""Installed packages: the wheels that `make dist` builds, in environments without a checkout."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uv

from benchmarks.terminal import Terminal
from common.version import VERSION
from scripts import dist
from server.local.demo import documented_request
from server.local.local_platform import Platform, process_tree
from tests.ports import free_ports
from tests.system.platform_process import FINAL, ROOT, census, lives, share_environments
from tests.waiting import until

#: Seconds for downloads of packages, where nothing is cached.
DOWNLOADS = 280
MODULES = "windtunnel_server/src/"
#: Package that puts those modules on the path.
DOOR = "server/windtunnel_server/"
MODEL = b"""class Model:
    def act(self, observation):
        speed, limit, gap = observation[0], observation[2], observation[10]
        return [1.0 if speed < limit and gap > 2 * speed + 5 else -3.0, 0]
"""
#: Files of a working directory that must not take the places of the server's modules.
SHADOWS = ("app.py", "api.py", "core.py", "errors.py", "server.py", "click.py", "windtunnel_server.py")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheels and source distributions of client and server."""
    return dist.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheels(distributions: list[Path]) -> list[Path]:
    """The wheels of client and server."""
    return [path for path in distributions if path.suffix == ".whl"]


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's empty home folder, with a blank in its path, and the prepared environments of other tests."""
    folder = tmp_path_factory.mktemp("u") / "my home"
    data = folder / ".local" / "share" / "windtunnel"
    data.mkdir(parents=True)
    share_environments(data)
    return folder


def environ_of(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a user who has neither a checkout nor settings."""
    removed = ("WINDTUNNEL_", "PYTHON", "VIRTUAL_ENV", "XDG_", "UV_CACHE_DIR", "UV_PROJECT", "PIP_FIND_LINKS", "CI")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    # Without uv: the packages' own is found, or the test puts another on the path.
    return environ | {"HOME": str(home), "PATH": "/usr/bin:/bin", **variables}


def new_environment(folder: Path) -> Path:
    """Create a virtual environment; return its folder of programs."""
    command = [uv.find_uv_bin(), "venv", "--quiet", "--python", os.path.realpath(sys.executable), str(folder)]
    subprocess.run(command, check=True)
    return folder / "bin"


def locked_versions(folder: Path) -> Path:
    """Return a file with the versions of uv.lock, which are in uv's cache already."""
    command = [uv.find_uv_bin(), "export", "--frozen", "--no-default-groups", "--no-emit-project", "--no-hashes"]
    command += ["--no-emit-package", "windtunnel", "--no-annotate", "--no-header", "--quiet"]
    file = folder / "versions.txt"
    file.write_text(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return file


def install(programs: Path, *requirements: str | Path) -> None:
    """Install requirements by uv."""
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(programs / "python")]
    command += ["--constraints", str(locked_versions(programs.parent)), *map(str, requirements)]
    subprocess.run(command, check=True)


@contextmanager
def started(program: Path, home: Path, environ: Mapping[str, str], limit: float = 120) -> Iterator[str]:
    """Call `windtunnel up` on a terminal; yield the URL. It ends with Ctrl-C, with status 0, and leaves no process."""
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    for name in SHADOWS:
        (folder / name).write_text("raise SystemExit('a module of the working directory was imported')\n")
    port, runner_api_port, scs_port = free_ports(3)
    ports = {"WINDTUNNEL_RUNNER_API_PORT": str(runner_api_port), "WINDTUNNEL_SCS_PORT": str(scs_port)}
    terminal = Terminal([str(program), "up", "--port", str(port)], folder, {**environ, **ports})
    try:
        url = terminal.until(r"In a browser: (http://\S+)", limit)[1]
        yield url
        times = dict(census())
        processes = {pid: times[pid][1] for pid in process_tree(terminal.process.pid) if pid in times}
        assert len(processes) > 5
        os.killpg(terminal.process.pid, signal.SIGINT)
        assert terminal.process.wait(30) == 0, terminal.text
        until(lambda: not any(lives(pid, started_at) for pid, started_at in processes.items()))
    finally:
        terminal.end()


def succeeds(client: httpx.Client, id: str) -> None:
    """Wait for the end of a simulation, which must be a success."""
    until(lambda: client.get(f"/v1/simulations/{id}").json()["state"] in FINAL, 240)
    simulation = client.get(f"/v1/simulations/{id}").json()
    assert simulation["state"] == "succeeded", simulation


def serves(url: str) -> None:
    """Drive a platform as a user does first: the documented request, a model in a file, the web page."""
    created = documented_request(Platform(url))
    with httpx.Client(base_url=url, trust_env=False, timeout=60.0, follow_redirects=True) as client:
        page = client.get("/")
        assert page.status_code == 200 and "Simulations" in page.text
        assert client.get("/static/windtunnel.css").status_code == 200
        assert client.get("/docs").status_code == 200
        fields = {"dataset": "car_street", "scenarios": '{"range": [0, 6]}'}
        answer = client.post("/v1/simulations", data=fields, files={"model": ("brake.py", MODEL)})
        assert answer.status_code in (201, 202), answer.text
        succeeds(client, answer.json()["id"])
        succeeds(client, created["id"])


def test_the_wheel_has_the_files_that_git_has_and_no_other(wheels: list[Path]) -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources, files = built["sources"], built["force-include"]
    expected = {files[path] for path in dist.tracked() if path in files}
    expected |= {f"{MODULES}{path}" for path in dist.tracked() if path.partition("/")[0] in sources and "/" in path}
    expected |= {path.removeprefix("server/") for path in dist.tracked() if path.startswith(DOOR)}
    with zipfile.ZipFile(wheels[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert names == expected
        for name in names:
            source = name.removeprefix(MODULES) if name.startswith(MODULES) else f"server/{name}"
            assert wheel.read(name) == (ROOT / source).read_bytes(), name
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert names == {path[4:] for path in dist.tracked() if path.startswith("cli/windtunnel/")}


def test_the_wheel_has_all_that_an_image_has(wheels: list[Path]) -> None:
    from runtimes.images.image_names import SERVER

    with zipfile.ZipFile(wheels[1]) as wheel:
        tops = {name.removeprefix(MODULES).partition("/")[0] for name in wheel.namelist() if name.startswith(MODULES)}
    assert set(SERVER) <= tops, "a server of the wheel computes the tags of images from these files"


def test_equal_files_give_equal_distributions(distributions: list[Path], tmp_path: Path) -> None:
    again = dist.build(tmp_path)
    assert [path.name for path in again] == [path.name for path in distributions] and len(again) == 4
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in distributions]


def test_client_and_server_have_the_same_version_and_the_server_asks_for_it() -> None:
    server, client = (tomllib.loads((ROOT / name).read_text()) for name in ("pyproject.toml", "cli/pyproject.toml"))
    assert client["project"]["version"] == VERSION
    assert f"windtunnel=={VERSION}" in server["project"]["dependencies"]


def test_a_built_server_has_the_version_that_its_provenances_have(wheels: list[Path]) -> None:
    assert [path.name.split("-")[1] for path in wheels] == [VERSION, VERSION]


def resolve_as_told(message: str, programs: Path, wheels: list[Path]) -> None:
    """Follow the command that a message has, in the folder that has the wheels in dist; nothing is installed."""
    command = re.search(r"pip (install --find-links (\S+) windtunnel-server==\S+)\. ", message)
    assert command is not None, message
    folder = programs.parent / "checkout"
    folder.mkdir()
    (folder / "dist").symlink_to(wheels[0].parent)
    arguments = [*shlex.split(command[1]), "--dry-run", "--no-deps", "--no-index", "--offline"]
    uv_pip = [uv.find_uv_bin(), "pip", *arguments, "--python", programs / "python"]
    followed = subprocess.run(uv_pip, cwd=folder, capture_output=True, text=True)
    assert followed.returncode == 0 and "windtunnel-server==" in followed.stderr, followed.stderr


def test_without_server_and_uv_the_error_has_the_next_step(wheels: list[Path], tmp_path: Path, home: Path) -> None:
    programs = new_environment(tmp_path / "client")
    install(programs, wheels[0])
    finished = subprocess.run(
        [programs / "windtunnel", "up"], env=environ_of(home, UV=""), capture_output=True, text=True
    )
    assert finished.returncode == 2 and "pip install uv" in finished.stderr and "`make dist`" in finished.stderr
    resolve_as_told(finished.stderr, programs, wheels)


def test_a_project_is_begun_checked_and_played_without_a_checkout(
    wheels: list[Path], tmp_path: Path, home: Path
) -> None:
    programs = new_environment(tmp_path / "with blank")
    install(programs, *wheels)
    folder = tmp_path / "my projects"
    folder.mkdir()
    for name in SHADOWS:
        (folder / name).write_text("raise SystemExit('this is not the module that was meant')\n")
    options: dict[str, Any] = {"cwd": folder, "env": environ_of(home), "capture_output": True, "text": True}
    begun = subprocess.run([programs / "windtunnel", "new", "python", "mine"], **options)
    assert begun.returncode == 0, begun.stderr
    checked = subprocess.run([programs / "windtunnel", "check", "mine/model.py", "car_street"], **options)
    assert checked.returncode == 0 and "yes" in checked.stdout, checked.stderr
    program = "from windtunnel import local; assert local.play('mine/model.py', 'car_street', scenarios=[0]).ok"
    played = subprocess.run([programs / "python", "-P", "-c", program], **options)
    assert played.returncode == 0, played.stderr
    assert (home / ".local/share/windtunnel/local").is_dir()


def test_a_server_of_another_version_is_not_started(wheels: list[Path], tmp_path: Path, home: Path) -> None:
    programs = new_environment(tmp_path / "client")
    install(programs, wheels[0])
    site = next((tmp_path / "client").glob("lib/python*/site-packages"))
    (site / "windtunnel_server").mkdir()
    (site / "windtunnel_server" / "__init__.py").touch()
    (site / "windtunnel_server-0.1.0.dist-info").mkdir()
    (site / "windtunnel_server-0.1.0.dist-info" / "METADATA").write_text("Name: windtunnel-server\nVersion: 0.1.0\n")
    finished = subprocess.run([programs / "windtunnel", "up"], env=environ_of(home), capture_output=True, text=True)
    assert finished.returncode == 2 and "must be equal" in finished.stderr
    resolve_as_told(finished.stderr, programs, wheels)


def test_a_server_in_the_same_environment_serves_from_any_folder_and_leaves_no_process(
    wheels: list[Path], tmp_path: Path, home: Path
) -> None:
    programs = new_environment(tmp_path / "with blank")
    install(programs, *wheels)
    with started(programs / "windtunnel", home, environ_of(home, WINDTUNNEL_URL="http://elsewhere")) as url:
        assert (home / ".local/share/windtunnel/windtunnel.db").exists()
        again = subprocess.run(
            [programs / "windtunnel", "up", "--port", "1"], env=environ_of(home), capture_output=True, text=True
        )
        assert again.returncode == 0 and f"runs in this home already, at {url}" in again.stdout
        serves(url)
    assert not (home / "work" / "var").exists()


def test_the_server_is_fetched_by_uv(wheels: list[Path], tmp_path: Path, home: Path) -> None:
    programs = new_environment(tmp_path / "client")
    install(programs, wheels[0])
    environ = environ_of(home, UV=uv.find_uv_bin(), UV_FIND_LINKS=str(wheels[0].parent))
    with started(programs / "windtunnel", home, environ, limit=DOWNLOADS) as url:
        serves(url)
    nowhere = "http://127.0.0.1:9"
    offline = environ | {name: nowhere for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy")}
    with started(programs / "windtunnel", home, offline) as url:
        assert httpx.get(f"{url}/v1/simulations", trust_env=False).json()["items"], "the data of the first start"


def test_pip_installs_client_and_server(wheels: list[Path], tmp_path: Path, home: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "pip"], check=True)
    programs = tmp_path / "pip" / "bin"
    command = [programs / "pip", "install", "--quiet", "--find-links", wheels[0].parent, "windtunnel-server"]
    subprocess.run(command, check=True, timeout=DOWNLOADS, env={**os.environ, "PYTHONPATH": ""})
    with started(programs / "windtunnel", home, environ_of(home)) as url:
        serves(url)
