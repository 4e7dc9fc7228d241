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
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        super().__init__("\n".join([detail, *(line for line in self.fields if line not in detail)]))

    @property
    def retry_after(self) -> float | None:
        """Return the seconds after which the platform asks to try again, if it does."""
        seconds = self.problem.get("retry_after")
        return float(seconds) if isinstance(seconds, int | float) else None

    @property
    def fields(self) -> list[str]:
        """Return the lines of the problem's `errors`, one for each field that was refused."""
        errors = self.problem.get("errors")
        return [str(line) for line in errors] if isinstance(errors, list) else []
