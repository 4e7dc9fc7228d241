"""Answers of two runs of the same tests, one of them beside a mirror: equal, byte for byte, but for ids and times."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from pathlib import Path

import msgspec

from tests.mirror_words import MADE


class SentAnswer(msgspec.Struct, frozen=True):
    """An answer to a test, as it was recorded."""

    request: str
    status: str
    headers: list[tuple[str, str]]
    body: str


class RecordedTest(msgspec.Struct, frozen=True):
    """What a run recorded of a test; ``alike``: how many requests of the mirror ended with the status of the test's."""

    test: str
    outcome: str
    failure: str
    folder: str
    answers: list[SentAnswer]
    alike: int
    unlike: list[str]


@dataclass(frozen=True)
class MirrorException:
    """Answers that may be otherwise beside a mirror: a pattern of tests, one of requests, and why.

    The request ASSERTIONS stands for the test's own assertions: it fails beside a mirror.
    """

    test: str
    request: str
    reason: str

    def excuses(self, difference: "AnswerDifference") -> bool:
        """Return whether a difference is of this kind."""
        return bool(re.search(self.test, difference.test) and re.search(self.request, difference.request))


@dataclass(frozen=True)
class AnswerDifference:
    """An answer that a test got otherwise beside a mirror, with both texts from shortly before they part."""

    test: str
    request: str
    alone: str
    beside: str


ASSERTIONS = "its assertions"
#: How much is shown of two texts, before and after they part.
SHOWN = 120
#: What differs in any two runs, with what stands for it.
MOMENTS: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(r'(?<="eta":)[0-9.e-]+'), "<seconds>"),
    (re.compile(r'(?<="rate":)[0-9.e+-]+'), "<bytes a second>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"), "<time>"),
    (re.compile(r"\b01[0-9a-hjkmnp-tv-z]{23}\b"), "<begin of an id>"),
    (re.compile(r"\b1[0-9]{15}\b"), "<time>"),  # microseconds, by which streams of changes are resumed
    (re.compile(r'(?<=ETag: ")[0-9a-f]{32}(?=")'), "<tag>"),  # of ids, or of a file with times
    (re.compile(r"(?<=/\d{12}-)[0-9a-f]{12}\b"), "<object>"),  # of a report, in provenance
    (re.compile(r"\bwhsec_[A-Za-z0-9+/]{43}="), "<secret>"),
    (re.compile(r'(?<="challenge":")[\w-]{43}'), "<challenge>"),
]


def read(file: Path) -> dict[str, RecordedTest]:
    """Return what a run has recorded, by the id of the test."""
    decoder = msgspec.json.Decoder(RecordedTest)
    recorded = [decoder.decode(line) for line in file.read_bytes().splitlines()]
    return {test.test: test for test in recorded}


def comparable(test: RecordedTest) -> list[str]:
    """Return the answers of a test as texts: ids are numbered in the order in which they appear, times are replaced."""
    numbers: dict[str, str] = {}
    texts = []
    for answer in test.answers:
        length = str(len(answer.body.encode()))
        headers = "\n".join(
            f"{key}: {'<length>' if key == 'Content-Length' and value == length else value}"
            for key, value in answer.headers
        )
        text = f"{answer.request}\n{answer.status}\n{headers}\n\n{answer.body}"
        if test.folder:
            text = text.replace(test.folder, "<folder>")
        text = MADE.sub(lambda match: numbers.setdefault(match[0], f"<made {len(numbers)}>"), text)
        for pattern, word in MOMENTS:
            text = pattern.sub(word, text)
        texts.append(text)
    return texts


def differences(alone: Mapping[str, RecordedTest], beside: Mapping[str, RecordedTest]) -> Iterator[AnswerDifference]:
    """Yield what tests were answered otherwise beside a mirror; of a test that fails only there, that it does."""
    assert alone.keys() == beside.keys()
    for id, test in alone.items():
        mirrored = beside[id]
        if test.outcome != mirrored.outcome:
            yield AnswerDifference(id, ASSERTIONS, test.failure, mirrored.failure)
        pairs = zip_longest if test.outcome == mirrored.outcome else zip  # a test that fails asks no further
        for own, other in pairs(comparable(test), comparable(mirrored)):
            if own != other:
                own, other = own or "", other or ""
                common = takewhile(lambda two: two[0] == two[1], zip(own, other, strict=False))
                at = sum(1 for _ in common)
                shown = slice(max(0, at - SHOWN), at + SHOWN)
                yield AnswerDifference(id, (own or other).partition("\n")[0], own[shown], other[shown])
