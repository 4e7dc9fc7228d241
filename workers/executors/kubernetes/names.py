"""Names in a cluster: valid whatever a launch, a project or a runtime is called, and never the same for two."""

import hashlib
import re
import unicodedata

#: What every object of ours begins with; also what makes a name begin with a letter (DNS-1035).
PREFIX = "wt-"
#: The longest a name of an owner may be: JobSet adds `-<job>-<index>-<pod index>-<five of its own>` and keeps to 63.
LONGEST = 44
LABEL = 63
_PLAIN = re.compile(r"[a-z0-9]+")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
#: What a name looks like that was made up below; a given one of that look is made up too, or two could meet.
_MADE_UP = re.compile(r".*-[0-9a-f]{10}")


def owner(launch_id: str) -> str:
    """Return the name of a launch's object; all that belongs to it is found by that name."""
    return PREFIX + (launch_id if _fits(launch_id, _PLAIN, LONGEST - len(PREFIX)) else _made_up(launch_id, 30))


def network(launch_id: str) -> str:
    """Return the domain that a gang's replicas are named in.

    Short, for JobSet notes its coordinator's whole name, `<owner>-<job>-0-0.<this>`, in a label of 63 characters.
    """
    return "g" + hashlib.sha256(launch_id.encode(errors="surrogatepass")).hexdigest()[:11]


def label(value: str) -> str:
    """Return a value for a label that tells these words apart from all others, and shows as much of them as it may."""
    if _fits(value, _VALUE, LABEL) and not _MADE_UP.fullmatch(value):
        return value
    return _made_up(value, LABEL - 11)


def namespace(template: str, project: str) -> str:
    """Return the namespace of a project."""
    if "{project}" not in template:
        return template
    room = LABEL - len(template.replace("{project}", ""))
    plain = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    keep = _fits(project, plain, room) and not _MADE_UP.fullmatch(project)
    return template.replace("{project}", project if keep else _made_up(project, room - 11))


def device(name: str) -> str:
    """Return a name for a claim within a pod."""
    plain = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    return name if _fits(name, plain, LABEL) and not _MADE_UP.fullmatch(name) else _made_up(name, LABEL - 11)


def _fits(value: str, shape: re.Pattern[str], longest: int) -> bool:
    return len(value) <= longest and bool(shape.fullmatch(value))


def _made_up(value: str, room: int) -> str:
    """Return what can be read of it, and a digest of all of it."""
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:10]
    ascii = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9]+", "-", ascii)[: max(room, 0)].strip("-")
    return f"{readable}-{digest}" if readable else f"x-{digest}"
