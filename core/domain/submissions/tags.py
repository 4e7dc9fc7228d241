"""Tags: names for versions of models and datasets, such as `gold`, which users move to other versions."""

import re
from collections.abc import Iterable, Sequence

from common.errors import Invalid

#: Maximum of tags that a new version gets at once.
MOST = 20
#: Tags of a name that an error lists.
MOST_LISTED = 20
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_tag(tag: str) -> None:
    """Raise Invalid for a text that cannot be a tag: numbers are versions, and the platform maintains `latest`."""
    if not _TAG.fullmatch(tag) or tag.isdecimal() or tag == "latest":
        raise Invalid(f"{tag[:80]!r} is not a tag: a tag is a name other than a number and `latest`.")


def check_tags(tags: Iterable[str]) -> list[str]:
    """Return the tags of a new version, each once, in order. Raise Invalid for too many, or if one cannot be a tag."""
    once = sorted(set(tags))
    if len(once) > MOST:
        raise Invalid(f"A new version gets at most {MOST} tags at once.")
    for tag in once:
        check_tag(tag)
    return once


def unknown_version(kind: str, name: str, selector: str, tags: Sequence[str]) -> str:
    """Return the message for a version or a tag that a name lacks, with the tags that it has; ``kind``: of what."""
    listed = ", ".join(tags[:MOST_LISTED]) + (" and others" if len(tags) > MOST_LISTED else "")
    known = f"Its tags: latest, {listed}." if tags else "It has no tags but `latest`."
    return f"The {kind} {name} has no version or tag {selector[:80]!r}. {known}"
