"""Model references: models that a submission names where they are, in a bucket, an MLflow server or at an address."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from common.errors import Invalid
from common.patterns import MODEL_REFERENCE_LENGTH

#: Most characters of a reference.
LONGEST = MODEL_REFERENCE_LENGTH
FORMS = "`s3://bucket/key`, `models:/name/version`, `models:/name@alias`, `runs:/run/path` or `https://host/path`"
_BUCKET_OBJECT = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<key>.*[^/])", re.DOTALL)
_REGISTERED = re.compile(r"models:/(?P<name>[^/@]{1,250})(?:/(?P<version>\d{1,9})|@(?P<alias>[^/@]{1,250}))")
_LOGGED = re.compile(r"models:/(?P<id>m-[0-9a-f]{32})")
_RUN = re.compile(r"runs:/(?P<run>[0-9a-zA-Z_-]{1,64})/(?P<path>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object of a connection's bucket."""

    bucket: str
    key: str

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A version of an MLflow registry's model, by number or alias."""

    name: str
    version: str = ""
    alias: str = ""


@dataclass(frozen=True, slots=True)
class LoggedModel:
    """A logged model of MLflow 3, by its id."""

    id: str

    @property
    def name(self) -> str:
        """The id."""
        return self.id


@dataclass(frozen=True, slots=True)
class RunModel:
    """A model that an MLflow run has logged, by its name or the path of its folder in the run's artifacts."""

    run: str
    path: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Address:
    """A file at an HTTP address."""

    url: str

    @property
    def name(self) -> str:
        """The last part of the path; empty if there is none."""
        return urlsplit(self.url).path.rpartition("/")[2]


Reference = BucketObject | RegisteredModel | LoggedModel | RunModel | Address


def parse(text: str) -> Reference:
    """Return what a reference names. Raise Invalid with the accepted forms."""
    if len(text) > LONGEST or not text.isprintable() or not text.isascii():
        raise Invalid(f"A model reference has at most {LONGEST:,} printable ASCII characters; others are `%`-encoded.")
    if match := _BUCKET_OBJECT.fullmatch(text):
        return BucketObject(match["bucket"], match["key"])
    if match := _LOGGED.fullmatch(text):
        return LoggedModel(match["id"])
    if match := _REGISTERED.fullmatch(text):
        return RegisteredModel(match["name"], match["version"] or "", match["alias"] or "")
    if match := _RUN.fullmatch(text):
        return RunModel(match["run"], confined(match["path"]))
    if text.startswith(("https://", "http://")):
        return _address(text)
    if text.startswith("models:/"):
        raise Invalid("Name a version or an alias of the model: `models:/name/3` or `models:/name@champion`.")
    raise Invalid(f"Not a model reference: {text[:80]!r}. There are {FORMS}.")


def confined(path: str) -> str:
    """Return a relative path of an artifact, without slashes at its ends; raise Invalid if it leaves its folder."""
    parts = path.strip("/").split("/")
    if any(part in {"", ".", ".."} or not part.isprintable() or set(part) & set("\\%?#") for part in parts):
        raise Invalid(f"The path {path[:80]!r} has parts that no artifact has (`..`, `%`, `?`, `#`, backslashes).")
    return "/".join(parts)


def _address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise Invalid("The address of the model reference cannot be parsed.") from None
    if "@" in parts.netloc:
        raise Invalid("An address has no credentials in it; the operator configures them (docs/model-references.md).")
    if not parts.hostname or "\\" in url or " " in url:
        raise Invalid("The address of the model reference has no valid host.")
    return Address(url.partition("#")[0])


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address as `allowed_addresses` has them: lower case, without default port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    if ":" in host:
        host = f"[{host}]"
    port = parts.port
    suffix = "" if port in {None, {"http": 80, "https": 443}.get(parts.scheme)} else f":{port}"
    return f"{parts.scheme}://{host}{suffix}"
