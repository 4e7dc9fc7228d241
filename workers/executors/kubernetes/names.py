"""Object names: valid for every launch, project or runtime name, and collision-free."""

import hashlib
import re
import unicodedata

#: Prefix of all object names; also makes each name begin with a letter (DNS-1035).
PREFIX = "wt-"
#: Maximum length of an owner's name: JobSet appends `-<job>-<index>-<pod index>-<five characters>`, at most 63 in all.
LONGEST = 44
LABEL = 63
_PLAIN = re.compile(r"[a-z0-9]+")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
#: Form of names generated below; an input of that form is generated too, or two names could collide.
_GENERATED = re.compile(r".*-[0-9a-f]{10}")


def owner(launch_id: str) -> str:
    """Return the name of a launch's owner; all objects of the launch have that name."""
    return PREFIX + (launch_id if _is_valid(launch_id, _PLAIN, LONGEST - len(PREFIX)) else _generated(launch_id, 30))


def network(launch_id: str) -> str:
    """Return the subdomain of a gang's replicas.

    Short, because JobSet puts its coordinator's whole name, `<owner>-<job>-0-0.<subdomain>`, in a label of 63
    characters.
    """
    return "g" + hashlib.sha256(launch_id.encode(errors="surrogatepass")).hexdigest()[:11]


def label(value: str) -> str:
    """Return a unique label value that shows as much of the text as a label may hold."""
    if _is_valid(value, _VALUE, LABEL) and not _GENERATED.fullmatch(value):
        return value
    return _generated(value, LABEL - 11)


def namespace(template: str, project: str) -> str:
    """Return the namespace of a project."""
    if "{project}" not in template:
        return template
    room = LABEL - len(template.replace("{project}", ""))
    plain = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    valid = _is_valid(project, plain, room) and not _GENERATED.fullmatch(project)
    return template.replace("{project}", project if valid else _generated(project, room - 11))


def device(name: str) -> str:
    """Return the name of a resource claim within a pod."""
    plain = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    return name if _is_valid(name, plain, LABEL) and not _GENERATED.fullmatch(name) else _generated(name, LABEL - 11)


def _is_valid(value: str, shape: re.Pattern[str], longest: int) -> bool:
    return len(value) <= longest and bool(shape.fullmatch(value))


def _generated(value: str, room: int) -> str:
    """Return the readable part of a text and a digest of all of it."""
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:10]
    ascii = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9]+", "-", ascii)[: max(room, 0)].strip("-")
    return f"{readable}-{digest}" if readable else f"x-{digest}"
