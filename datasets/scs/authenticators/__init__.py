"""Who knows bearer tokens: the port and its adapters, chosen by the configuration's ``Reviewer``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datasets.scs.authenticators.base import Identity, TokenReviewer, Unavailable
from datasets.scs.authenticators.jwt import JwtReviewer, published
from datasets.scs.authenticators.kubernetes import KubernetesReviewer
from datasets.scs.authenticators.static import StaticReviewer

__all__ = ["Identity", "TokenReviewer", "Unavailable", "open_reviewer"]

#: Where Kubernetes puts what a pod needs to speak to its API server.
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def open_reviewer(given: Mapping[str, Any]) -> TokenReviewer:
    """Build the reviewer a configuration names; without one, no token is good. Errors never repeat a token."""
    told = {key: value for key, value in given.items() if key != "base"}
    base: Path = given.get("base", Path())
    kind = told.pop("Kind", "static")
    if kind not in _KINDS:
        raise ValueError(f"Reviewer: Kind is one of {', '.join(_KINDS)}")
    known, build = _KINDS[kind]
    if unknown := sorted(set(told) - set(known)):
        raise ValueError(f"Reviewer: unknown key {unknown[0]!r}; known are Kind, {', '.join(known)}")
    return build(told, base)


def _static(told: Mapping[str, Any], base: Path) -> TokenReviewer:
    tokens: dict[str, Identity] = {}
    for number, one in enumerate(told.get("Tokens", [])):
        if not isinstance(one, dict) or set(one) not in ({"Token", "Namespace"}, {"TokenFile", "Namespace"}):
            raise ValueError(f"Reviewer: Tokens number {number} needs Namespace and either Token or TokenFile")
        token = one["Token"] if "Token" in one else _text(base / one["TokenFile"])
        if not token or not isinstance(token, str):
            raise ValueError(f"Reviewer: Tokens number {number} is empty")
        tokens[token] = Identity(one["Namespace"], f"static-{number}")
    return StaticReviewer(tokens)


def _jwt(told: Mapping[str, Any], base: Path) -> TokenReviewer:
    if "Audience" not in told or ("KeysURL" in told) == ("KeysFile" in told):
        raise ValueError("Reviewer: jwt needs Audience and either KeysURL or KeysFile")
    bearer = _reader(base / told["TokenFile"]) if "TokenFile" in told else None
    if "KeysFile" in told:
        keys: Callable[[], bytes] = (base / told["KeysFile"]).read_bytes
    else:
        keys = published(told["KeysURL"], authority=told.get("CAFile"), bearer=bearer)
    algorithms = told.get("Algorithms", ("RS256", "ES256"))
    return JwtReviewer(keys, audience=told["Audience"], issuer=told.get("Issuer"), algorithms=algorithms)


def _kubernetes(told: Mapping[str, Any], base: Path) -> TokenReviewer:
    if "Audience" not in told:
        raise ValueError("Reviewer: kubernetes needs Audience")
    return KubernetesReviewer(
        told.get("Server", "https://kubernetes.default.svc"),
        audience=told["Audience"],
        authority=str(base / told.get("CAFile", _POD / "ca.crt")),
        bearer=_reader(base / told.get("TokenFile", _POD / "token")),
    )


def _reader(path: Path) -> Callable[[], str]:
    return lambda: _text(path)


def _text(path: Path) -> str:
    return path.read_text().strip()


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any], Path], TokenReviewer]]] = {
    "static": (("Tokens",), _static),
    "jwt": (("Audience", "Issuer", "Algorithms", "KeysURL", "KeysFile", "CAFile", "TokenFile"), _jwt),
    "kubernetes": (("Audience", "Server", "CAFile", "TokenFile"), _kubernetes),
}
