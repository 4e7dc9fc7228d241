"""Errors of the client; a refusal by the platform carries its problem document (RFC 9457)."""

from collections.abc import Mapping
from typing import Any


class WindtunnelError(Exception):
    """Base of all errors of this package; the text says what to do next."""


class BadConfiguration(WindtunnelError):
    """A context, an address or a token cannot be used."""


class CannotConnect(WindtunnelError):
    """No platform answers at the address."""


class Interrupted(WindtunnelError):
    """The connection broke, and the platform did not answer again within the client's patience."""


class Refused(WindtunnelError):
    """The platform refused the request.

    ``status`` is the HTTP status, ``problem`` the problem document, ``type`` its slug, such as ``unknown-dataset``;
    ``about`` is the address of its description, if it has one.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], server: str = "") -> None:
        self.status = status
        self.problem = dict(problem)
        reference = str(problem.get("type", ""))
        self.type = reference.rpartition("/")[2]
        self.about = f"{server}{reference}" if server and reference.startswith("/problems/") else None
        super().__init__(
            "\n".join([str(problem.get("detail") or problem.get("title") or f"HTTP {status}"), *self.fields])
        )

    @property
    def retry_after(self) -> float | None:
        """Return the seconds after which the platform asks to try again, if it does."""
        seconds = self.problem.get("retry_after")
        return float(seconds) if isinstance(seconds, int | float) else None

    @property
    def fields(self) -> list[str]:
        """Return a line for each field that was refused."""
        errors = self.problem.get("errors")
        return [f"{name}: {text}" for name, text in _flat(errors)] if isinstance(errors, dict | list) else []


def _flat(errors: Any, path: str = "") -> list[tuple[str, str]]:
    """Return nested messages of fields as (dotted path, message)."""
    if isinstance(errors, Mapping):
        return [pair for key, value in errors.items() for pair in _flat(value, f"{path}.{key}" if path else str(key))]
    if isinstance(errors, list):
        return [pair for value in errors for pair in _flat(value, path)]
    return [(path or "request", str(errors))]
