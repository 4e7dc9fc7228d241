"""Minimal Kubernetes API client on the standard library, like the executor's until 2026-11: a call's lowest cost.

It has one keep-alive connection, client certificates of a kubeconfig, compressed responses and msgspec; nothing else.
"""

import base64
import gzip
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import yaml


class ApiClient:
    """Client of one API server, for one thread."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as file:
            for key in ("client-certificate-data", "client-key-data"):
                file.write(base64.b64decode(user[key]) + b"\n")
            file.flush()
            self._tls.load_cert_chain(file.name)
        self._server = urlsplit(cluster["server"])
        self._connection = self._connect()

    def get(self, path: str, kind: Any, **query: str) -> Any:
        """Return the object or list at a path, decoded as ``kind``."""
        return msgspec.json.decode(self._request("GET", path, query=query), type=kind)

    def create(self, path: str, document: Any) -> bytes:
        """Create an object in a collection."""
        return self._request("POST", path, json.dumps(document).encode())

    def watch(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch."""
        connection = self._connect()
        try:
            connection.request(
                "GET", f"{path}?{urlencode({'watch': '1', **query})}", None, {"Accept": "application/json"}
            )
            response = connection.getresponse()
            while line := response.readline():
                yield msgspec.json.decode(line)
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self._server.hostname or "", self._server.port or 443
        return http.client.HTTPSConnection(host, port, timeout=30.0, context=self._tls)

    def _request(self, method: str, path: str, body: bytes | None = None, query: Any = None) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "Content-Type": "application/json"}
        self._connection.request(method, path + (f"?{urlencode(query)}" if query else ""), body, headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise OSError(f"{response.status}: {content[:500]!r}")
        return gzip.decompress(content) if response.headers.get("Content-Encoding") == "gzip" else content
