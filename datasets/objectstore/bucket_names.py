"""Names of buckets: the rules of Amazon S3, which every S3 server accepts."""

import re

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NUMBERS = re.compile(r"\d+(\.\d+){3}")


def check_bucket_name(name: str) -> None:
    """Raise ValueError if a bucket cannot have this name (Amazon S3, "Bucket naming rules")."""
    if not _BUCKET.fullmatch(name) or ".." in name or _NUMBERS.fullmatch(name):
        raise ValueError(
            f"OBJECT_STORE_URL: {name!r} is not the name of a bucket: 3 to 63 lower-case letters, digits, dots and"
            " dashes, beginning and ending with a letter or digit"
        )
