"""Request signatures for S3 (AWS Signature Version 4), fast enough to sign tens of thousands of small requests."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote

#: SHA-256 of the empty body: every request signed here is a GET.
EMPTY = hashlib.sha256(b"").hexdigest()


def quoted(key: str) -> str:
    """Return a key encoded for a URL path: each part percent-encoded once, as S3 canonicalises it."""
    return quote(key, safe="/-._~")


class Signer:
    """Signs requests to one host with one key pair; thread-safe."""

    def __init__(self, access_key: str, secret_key: str, region: str, host: str) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._region = region
        self._host = host
        self._day: tuple[str, bytes] = ("", b"")
        self._second: tuple[int, str] = (-1, "")

    def headers(self, path: str, now: float, signed: Mapping[str, str]) -> list[str]:
        """Return the header lines of a GET of an encoded path; ``signed``: further headers, in lower case."""
        stamp = self._stamp(int(now))
        day = stamp[:8]
        headers = {**signed, "x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
        names = sorted((*headers, "host"))
        signed_names = ";".join(names)
        lines = "".join([f"{name}:{headers.get(name, self._host)}\n" for name in names])
        request = hashlib.sha256(f"GET\n{path}\n\n{lines}\n{signed_names}\n{EMPTY}".encode()).hexdigest()
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{request}"
        signature = hmac.digest(self._key(day), text.encode(), "sha256").hex()
        credential = f"Credential={self._access_key}/{scope}"
        return [
            *[f"{name}: {value}" for name, value in headers.items()],
            f"Authorization: AWS4-HMAC-SHA256 {credential}, SignedHeaders={signed_names}, Signature={signature}",
        ]

    def _stamp(self, now: int) -> str:
        """Return the time in ISO 8601 basic format; cached, because thousands of requests share a second."""
        second, stamp = self._second
        if second != now:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
            self._second = now, stamp
        return stamp

    def _key(self, day: str) -> bytes:
        """Return the signing key of a day; cached, because it changes only daily."""
        cached_day, key = self._day
        if cached_day != day:
            key = f"AWS4{self._secret_key}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day = day, key
        return key
