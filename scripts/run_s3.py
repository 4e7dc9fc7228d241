"""Run the platform with its own MinIO: `make run-s3`. Both store their data under the platform's home folder."""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from core.settings import Settings

ROOT = Path(__file__).parent.parent
BUCKET = "windtunnel"
#: Seconds for MinIO to start.
PATIENCE = 60.0


def read_or_create_keys(path: Path) -> tuple[str, str]:
    """Return MinIO's access key and secret key, generated once and stored in a file that only this user can read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(10)}\n{secrets.token_urlsafe(30)}\n")
    user, password = path.read_text().split()
    return user, password


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """Return a preexec function, by which the new process gets a signal when this process dies."""
    parent = os.getpid()

    def request_signal() -> None:
        ctypes.CDLL(None).prctl(1, signal_number)
        if os.getppid() != parent:
            os._exit(1)

    return request_signal


def start(binary: str, folder: Path, port: int, credentials: tuple[str, str]) -> "subprocess.Popen[bytes]":
    """Start MinIO in a session of its own, which Ctrl-C does not reach."""
    root_user = {"MINIO_ROOT_USER": credentials[0], "MINIO_ROOT_PASSWORD": credentials[1]}
    settings = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CI_CD": "1"}
    with open(folder / "minio.log", "ab") as output:
        return subprocess.Popen(
            [binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "disk")],
            env={**os.environ, **root_user, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )


def is_ready(endpoint: str) -> bool:
    """Return whether MinIO is ready."""
    try:
        with urllib.request.urlopen(f"{endpoint}/minio/health/ready", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def main() -> int:
    """Start MinIO, then the platform; stop MinIO when the platform has ended."""
    build = subprocess.run([ROOT / "scripts" / "tools" / "minio"], stdout=subprocess.PIPE, text=True)
    if build.returncode != 0:
        return build.returncode
    folder = Settings.from_env(os.environ).home.resolve() / "minio"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    credentials = read_or_create_keys(folder / "keys")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = start(build.stdout.strip(), folder, port, credentials)
    # The platform handles Ctrl-C itself, and needs MinIO until it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        deadline = time.monotonic() + PATIENCE
        while not is_ready(endpoint):
            if server.poll() is not None or time.monotonic() > deadline:
                print(f"MinIO did not start; see {folder / 'minio.log'}", file=sys.stderr)
                return 1
            time.sleep(0.05)
        variables = {
            "WINDTUNNEL_OBJECT_STORE_URL": f"s3://{BUCKET}?endpoint={endpoint}",
            "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY": credentials[0],
            "WINDTUNNEL_OBJECT_STORE_SECRET_KEY": credentials[1],
        }
        print(
            f"Objects are stored in MinIO at {endpoint}, bucket {BUCKET}; its keys are in {folder / 'keys'}.",
            flush=True,
        )
        platform = subprocess.Popen(
            [sys.executable, "-m", "server", "run"],
            cwd=ROOT,
            env={**os.environ, **variables},
            start_new_session=True,  # the platform gets Ctrl-C only once, from this process
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: platform.send_signal(number))
        return platform.wait()
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
