"""Run the platform on a MinIO of its own: `make run-s3`. What both keep lies under the platform's home."""

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
#: Seconds until a server that was just started must answer.
PATIENCE = 60.0


def keys(path: Path) -> tuple[str, str]:
    """Return this MinIO's own access key and secret key; made once, and kept where nobody else can read them."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(10)}\n{secrets.token_urlsafe(30)}\n")
    user, password = path.read_text().split()
    return user, password


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def bound(number: int) -> Callable[[], None]:
    """Make what a new process does first: ask for a signal for the case that this one dies without a word."""
    parent = os.getpid()

    def bind() -> None:
        ctypes.CDLL(None).prctl(1, number)
        if os.getppid() != parent:
            os._exit(1)

    return bind


def start(binary: str, folder: Path, port: int, credentials: tuple[str, str]) -> "subprocess.Popen[bytes]":
    """Start MinIO in a session of its own: Ctrl-C is not for it."""
    told = {"MINIO_ROOT_USER": credentials[0], "MINIO_ROOT_PASSWORD": credentials[1]}
    quiet = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CI_CD": "1"}
    with open(folder / "minio.log", "ab") as output:
        return subprocess.Popen(
            [binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "disk")],
            env={**os.environ, **told, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=bound(signal.SIGKILL),
        )


def answers(endpoint: str) -> bool:
    """Tell whether MinIO serves."""
    try:
        with urllib.request.urlopen(f"{endpoint}/minio/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def main() -> int:
    """Start MinIO, then the platform on it; end MinIO when the platform has ended."""
    made = subprocess.run([ROOT / "scripts" / "tools" / "minio"], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        return made.returncode
    folder = Settings.from_env(os.environ).home.resolve() / "minio"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    credentials = keys(folder / "keys")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = start(made.stdout.strip(), folder, port, credentials)
    # The platform answers Ctrl-C itself, and MinIO must be there until it is done.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(endpoint):
            if server.poll() is not None or time.monotonic() > deadline:
                print(f"MinIO does not start; see {folder / 'minio.log'}", file=sys.stderr)
                return 1
            time.sleep(0.05)
        told = {
            "WINDTUNNEL_OBJECT_STORE_URL": f"s3://{BUCKET}?endpoint={endpoint}",
            "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY": credentials[0],
            "WINDTUNNEL_OBJECT_STORE_SECRET_KEY": credentials[1],
        }
        print(f"Objects lie in MinIO at {endpoint}, bucket {BUCKET}; its keys are in {folder / 'keys'}.", flush=True)
        platform = subprocess.Popen(
            [sys.executable, "-m", "server", "run"],
            cwd=ROOT,
            env={**os.environ, **told},
            start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
            preexec_fn=bound(signal.SIGTERM),
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
