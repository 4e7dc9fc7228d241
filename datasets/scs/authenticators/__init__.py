"""Authenticators: check bearer tokens; the configuration's ``Reviewer`` chooses the adapter."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common.bearer_tokens import SHORTEST, token_fault
from datasets.scs.authenticators.base import Authenticator, Identity, Unavailable
from datasets.scs.authenticators.kubernetes import TokenReviewAuthenticator
from datasets.scs.authenticators.signed_tokens import JwtAuthenticator, jwks_fetcher
from datasets.scs.authenticators.static import StaticAuthenticator
from kube.access import IN_CLUSTER_SERVER, SERVICE_ACCOUNT_FOLDER, InCluster, TokenFile

__all__ = ["Authenticator", "Identity", "Unavailable", "open_authenticator"]


def open_authenticator(config: Mapping[str, Any], *, local: bool = True) -> Authenticator:
    """Build the configured authenticator; without one, every token is rejected. Errors never repeat a token.

    Tokens in the configuration may be short if the service is ``local``: only this machine can reach it.
    """
    options = {key: value for key, value in config.items() if key != "base"}
    base: Path = config.get("base", Path())
    kind = options.pop("Kind", "static")
    if kind not in _KINDS:
        raise ValueError(f"Reviewer: Kind is one of {', '.join(_KINDS)}")
    known_keys, build = _KINDS[kind]
    if unknown := sorted(set(options) - set(known_keys)):
        raise ValueError(f"Reviewer: unknown key {unknown[0]!r}; known keys are Kind, {', '.join(known_keys)}")
    if kind == "static":
        return _static(options, base, shortest=1 if local else SHORTEST)
    return build(options, base)


def _static(options: Mapping[str, Any], base: Path, *, shortest: int = 1) -> Authenticator:
    tokens: dict[str, Identity] = {}
    for number, entry in enumerate(options.get("Tokens", [])):
        if not isinstance(entry, dict) or set(entry) not in ({"Token", "Namespace"}, {"TokenFile", "Namespace"}):
            raise ValueError(f"Reviewer: Tokens number {number} needs Namespace and either Token or TokenFile")
        token = entry["Token"] if "Token" in entry else _read_text(base / entry["TokenFile"])
        if not token or not isinstance(token, str):
            raise ValueError(f"Reviewer: Tokens number {number} is empty")
        if fault := token_fault(token, shortest=shortest):
            raise ValueError(f"Reviewer: Tokens number {number}: {fault}")
        tokens[token] = Identity(entry["Namespace"], f"static-{number}")
    return StaticAuthenticator(tokens)


def _jwt(options: Mapping[str, Any], base: Path) -> Authenticator:
    if "Audience" not in options or ("KeysURL" in options) == ("KeysFile" in options):
        raise ValueError("Reviewer: jwt needs Audience and either KeysURL or KeysFile")
    bearer = _reader(base / options["TokenFile"]) if "TokenFile" in options else None
    if "KeysFile" in options:
        keys: Callable[[], bytes] = (base / options["KeysFile"]).read_bytes
    else:
        keys = jwks_fetcher(options["KeysURL"], authority=options.get("CAFile"), bearer=bearer)
    algorithms = options.get("Algorithms", ("RS256", "ES256"))
    return JwtAuthenticator(keys, audience=options["Audience"], issuer=options.get("Issuer"), algorithms=algorithms)


def _kubernetes(options: Mapping[str, Any], base: Path) -> Authenticator:
    if "Audience" not in options:
        raise ValueError("Reviewer: kubernetes needs Audience")
    if not {"Server", "CAFile", "TokenFile"} & set(options):
        return TokenReviewAuthenticator(InCluster(), audience=options["Audience"])
    server = options.get("Server", IN_CLUSTER_SERVER)
    parts = urlsplit(server)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"Reviewer: Server begins with https://, not {server!r}")
    token = base / options.get("TokenFile", SERVICE_ACCOUNT_FOLDER / "token")
    authority = base / options.get("CAFile", SERVICE_ACCOUNT_FOLDER / "ca.crt")
    return TokenReviewAuthenticator(TokenFile(server, token, authority), audience=options["Audience"])


def _reader(path: Path) -> Callable[[], str]:
    return lambda: _read_text(path)


def _read_text(path: Path) -> str:
    return path.read_text().strip()


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any], Path], Authenticator]]] = {
    "static": (("Tokens",), _static),
    "jwt": (("Audience", "Issuer", "Algorithms", "KeysURL", "KeysFile", "CAFile", "TokenFile"), _jwt),
    "kubernetes": (("Audience", "Server", "CAFile", "TokenFile"), _kubernetes),
}
