"""A package index for tests (PEP 503, served over HTTP), with wheels that tests write."""

import base64
import hashlib
import http.server
import io
import re
import threading
import zipfile
from collections.abc import Mapping
from urllib.parse import quote, unquote

import httpx

from tests.ports import free_ports

#: Prefix of the paths of files of the index behind.
THROUGH = "/through/"


def _fetched(url: str) -> bytes:
    response = httpx.get(url, headers={"Accept": "text/html, */*;q=0.1"}, follow_redirects=True, timeout=60.0)
    response.raise_for_status()
    return response.content


def wheel(
    name: str,
    version: str = "1.0",
    files: Mapping[str, bytes] | None = None,
    *,
    requires: tuple[str, ...] = (),
    metadata_name: str = "",
    record: bool = True,
) -> tuple[str, bytes]:
    """Return a wheel's file name and its bytes; by default it has a module of its name that knows its version."""
    files = {f"{name}.py": f"VERSION = {version!r}\n".encode()} if files is None else files
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {metadata_name or name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = dict(files) | {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in contents.items()
    ]
    if record:
        contents[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            archive.writestr(path, data)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


class PackageIndex:
    """An index on a port of this machine. ``requests`` are the paths that were asked for.

    ``behind``: URL of an index whose packages are passed on, for clients that reach this machine only.
    """

    def __init__(
        self, *packages: tuple[str, bytes], files_at: str = "", host: str = "127.0.0.1", behind: str = ""
    ) -> None:
        self._behind = behind
        self.packages = dict(packages)
        self.files_at = files_at
        self.requests: list[str] = []
        self.failing = 0  # status of every answer, 0: none
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests.append(self.path)
                status, content_type, body = index.answer(unquote(self.path))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Write nothing."""

        self._server = http.server.ThreadingHTTPServer((host, free_ports(1)[0]), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """URL of the index."""
        return f"{self.address}/simple"

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if self.failing:
            return self.failing, "text/plain", b"failing"
        if path.startswith("/files/"):
            content = self.packages.get(path.removeprefix("/files/"))
            return (200, "application/octet-stream", content) if content is not None else (404, "text/plain", b"")
        if path.startswith(THROUGH):
            return 200, "application/octet-stream", _fetched(path.removeprefix(THROUGH))
        project = path.removeprefix("/simple/").strip("/")
        names = [name for name in self.packages if name.partition("-")[0].replace("_", "-").lower() == project]
        if not names and self._behind:
            page = _fetched(f"{self._behind}/{project}/").decode()
            return 200, "text/html", re.sub(r'href="(https?://)', rf'href="{THROUGH}\1', page).encode()
        if not names:
            return 404, "text/plain", b"no such project"
        digests = {name: hashlib.sha256(self.packages[name]).hexdigest() for name in names}
        links = "".join(
            f'<a href="{self.files_at}/files/{quote(name)}#sha256={digest}">{name}</a>\n'
            for name, digest in digests.items()
        )
        return 200, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
