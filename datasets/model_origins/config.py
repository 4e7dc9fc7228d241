"""Model origins that an operator allows: addresses by their origin, and MLflow servers by name.

They are members of the connections file (`datasets/objectstore/connections.py`), beside `connections`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common.errors import Invalid
from datasets.model_origins.model_references import origin_of
from datasets.objectstore.connections import (
    DEFAULT_PROJECTS,
    NAME,
    PROJECTS_MEMBER,
    projects_of,
    read_document,
    serves,
)

_NAME = re.compile(NAME)


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedAddress:
    """An origin (scheme, host, port) from which files may be read.

    ``private``: it may resolve to private and loopback addresses. ``token``: sent as a bearer token, to it alone.
    """

    origin: str
    private: bool = False
    token: str = field(default="", repr=False)
    projects: tuple[str, ...] = DEFAULT_PROJECTS


@dataclass(frozen=True, kw_only=True, slots=True)
class MlflowServer:
    """An MLflow tracking server. ``uri``: `https://host[:port][/path]`; with a token, or a user name and a password.

    ``log_results``: submissions may log results to its runs. ``platform_url``: where its users find this platform.
    """

    name: str
    uri: str
    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    log_results: bool = False
    platform_url: str = ""
    projects: tuple[str, ...] = DEFAULT_PROJECTS


@dataclass(frozen=True, kw_only=True, slots=True)
class OriginConfig:
    """What models may be imported from, besides buckets: allowed addresses by origin, and MLflow servers by name."""

    addresses: Mapping[str, AllowedAddress] = field(default_factory=dict)
    mlflow: Mapping[str, MlflowServer] = field(default_factory=dict)

    def of_project(self, project: str) -> "OriginConfig":
        """Return those that a project may use; the others do not exist for it."""
        return OriginConfig(
            addresses={origin: each for origin, each in self.addresses.items() if serves(each.projects, project)},
            mlflow={name: each for name, each in self.mlflow.items() if serves(each.projects, project)},
        )

    def server(self, name: str | None) -> MlflowServer:
        """Return a server by name, or the only one; raise Invalid if there is none or several."""
        listed = ", ".join(sorted(self.mlflow)) or "none"
        if name is None and len(self.mlflow) != 1:
            hint = (
                "Name one as the `connection`." if self.mlflow else "The operator adds one (docs/model-references.md)."
            )
            raise Invalid(f"MLflow servers that are configured here: {listed}. {hint}")
        if name is not None and name not in self.mlflow:
            raise Invalid(f"There is no MLflow server {name[:63]!r}; configured are: {listed}.")
        return self.mlflow[name] if name is not None else next(iter(self.mlflow.values()))


def load(path: Path) -> OriginConfig:
    """Read the origins of the connections file; errors do not repeat the file's values."""
    document = read_document(path)
    addresses = {item.origin: item for item in _addresses(path, document.get("addresses", {}))}
    return OriginConfig(addresses=addresses, mlflow=dict(_servers(path, document.get("mlflow", {}))))


def _addresses(path: Path, values: Any) -> Iterator[AllowedAddress]:
    if not isinstance(values, dict):
        raise ValueError(f"{path}: addresses must be an object by origin, such as https://models.example.com")
    for origin, options in values.items():
        if not _is_origin(origin):
            raise ValueError(f"{path}: an address is allowed by its origin, https://host or https://host:port")
        if not isinstance(options, dict) or not set(options) <= {"private", "token", PROJECTS_MEMBER}:
            raise ValueError(f"{path}: address {origin} may have private, token and projects")
        token, private = options.get("token", ""), options.get("private", False)
        if not isinstance(private, bool) or not isinstance(token, str) or not token.isprintable():
            raise ValueError(f"{path}: address {origin}: private is true or false, token is a string")
        projects = projects_of(f"{path}: address {origin}", options)
        yield AllowedAddress(origin=origin, private=private, token=token, projects=projects)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and origin_of(text) == text
    except ValueError:
        return False


def _servers(path: Path, values: Any) -> Iterator[tuple[str, MlflowServer]]:
    if not isinstance(values, dict):
        raise ValueError(f"{path}: mlflow must be an object by name")
    allowed = {item.name for item in fields(MlflowServer)} - {"name"}
    for name, options in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: an MLflow server's name has lower-case letters, digits, - and _, up to 63")
        if not isinstance(options, dict) or not set(options) <= allowed or "uri" not in options:
            raise ValueError(f"{path}: mlflow {name} needs a uri, and may have {', '.join(sorted(allowed - {'uri'}))}")
        texts = {key: value for key, value in options.items() if key not in {"log_results", PROJECTS_MEMBER}}
        if not all(isinstance(value, str) and value.isprintable() for value in texts.values()):
            raise ValueError(f"{path}: mlflow {name} has a value that is not a string")
        if not isinstance(options.get("log_results", False), bool):
            raise ValueError(f"{path}: mlflow {name}: log_results is true or false")
        projects = projects_of(f"{path}: mlflow {name}", options)
        server = MlflowServer(name=name, **options | {PROJECTS_MEMBER: projects})
        parts = urlsplit(server.uri)
        if not _is_origin(f"{parts.scheme}://{parts.netloc}") or parts.query or parts.fragment:
            raise ValueError(f"{path}: mlflow {name}: a uri is https://host[:port][/path], without credentials in it")
        yield name, server
