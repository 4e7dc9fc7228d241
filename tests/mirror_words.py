"""Words of a mirror: what it says in place of each id, token and name of the project whose requests it makes first."""

import json
import re
from collections.abc import Mapping
from typing import Any

#: Ids (common/ids.py) and tokens (core/domain/access/tokens.py): a mirror has its own.
MADE = re.compile(r"(?<![0-9a-z_])01[0-9a-hjkmnp-tv-z]{24}(?![0-9A-Za-z_])|\bwt[a-z]?_[A-Za-z0-9_-]{20,}")
#: Members of bodies that are never names of projects or users.
FREE = frozenset({"labels", "parameters", "description", "reason"})


class MirrorWords:
    """Translates requests into those of a mirror; learns ids and tokens from pairs of answers, names from requests."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._made: dict[str, str] = {}
        self._names = dict(names)

    def made(self, word: str) -> str | None:
        """Return what the mirror has in place of an id or a token, None if it has nothing."""
        return self._made.get(word)

    def name(self, word: str) -> None:
        """From now on, a project or a user of this name has a mirror."""
        self._names.setdefault(word, f"{word}-mirror")

    def text(self, text: str) -> str:
        """Translate ids and tokens in a text, and cursors and cookies that are all of it."""
        return self._made.get(text) or MADE.sub(lambda match: self._made.get(match[0], match[0]), text)

    def reference(self, text: str) -> str:
        """Translate a text that may be a name, a name's part before a slash, or hold ids."""
        head, slash, rest = text.partition("/")
        return self.text(self._names.get(head, head) + slash + rest)

    def path(self, path: str) -> str:
        """Translate each segment of a path."""
        return "/".join(self.reference(segment) for segment in path.split("/"))

    def query(self, query: str) -> str:
        """Translate the values of a query."""
        pairs = [pair.partition("=") for pair in query.split("&")]
        return "&".join(key + equals + self.reference(value) for key, equals, value in pairs)

    def body(self, body: bytes, content_type: str) -> bytes:
        """Translate a JSON document or a form; other bytes are the same for both."""
        if content_type == "application/x-www-form-urlencoded":
            return self.query(body.decode("latin-1")).encode("latin-1")
        if not content_type.endswith("json"):
            return body
        try:
            document = json.loads(body)
            translated = self.value(document)
        except (ValueError, RecursionError):
            return body  # it is refused, as it stands
        return body if translated == document else json.dumps(translated).encode()

    def value(self, value: Any) -> Any:
        """Translate the texts in a document."""
        if isinstance(value, str):
            return self.reference(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: item if key in FREE else self.value(item) for key, item in value.items()}
        return value

    def learn(self, own: Any, mirror: Any) -> None:
        """Learn from an answer and the mirror's answer to the same request: documents, headers or texts."""
        if isinstance(own, str) and isinstance(mirror, str):
            ids, mirror_ids = MADE.findall(own), MADE.findall(mirror)
            if len(ids) == len(mirror_ids):
                for id, mirror_id in zip(ids, mirror_ids, strict=True):
                    if id != mirror_id:
                        self._made.setdefault(id, mirror_id)
        elif isinstance(own, list) and isinstance(mirror, list):
            for item, mirror_item in zip(own, mirror, strict=False):
                self.learn(item, mirror_item)
        elif isinstance(own, dict) and isinstance(mirror, dict):
            for key in own.keys() & mirror.keys():
                self.learn(own[key], mirror[key])

    def learn_opaque(self, own: str, mirror: str) -> None:
        """Learn a text that is only sent back whole: a cursor, a cookie, an ETag, an invitation."""
        if own and mirror and own != mirror:
            self._made.setdefault(own, mirror)
