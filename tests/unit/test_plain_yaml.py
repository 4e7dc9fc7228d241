"""The loader of YAML from strangers: plain values only, and a bounded cost whatever the file has."""

import time

import pytest

from common import plain_yaml
from common.plain_yaml import LARGEST, BadYaml, load

#: Seconds of processor time that a file may take, on a slow machine.
#: Seconds of the processor, on a slow and busy one; what is not linear in the file takes minutes.
LONGEST = 10.0


def test_values_are_texts_lists_mappings_and_null() -> None:
    text = b"""
    app: server.app:app
    version: 1.20
    date: 2026-13-45
    yes: [true, 1e400, 0x10, 190:20:30, "null", ~]
    none:
    tagged: !!python/object:os.system {a: !!int 1}
    """
    assert load(text) == {
        "app": "server.app:app",
        "version": "1.20",
        "date": "2026-13-45",
        "yes": ["true", "1e400", "0x10", "190:20:30", "null", None],
        "none": None,
        "tagged": {"a": "1"},
    }
    assert load("") is None


def merge_keys(levels: int, width: int) -> str:
    """Return an OpenEnv description that costs ``width ** levels``: each mapping merges the one before many times."""
    lines = ["a0: &a0 {x: 1}"]
    for number in range(1, levels):
        lines.append(f"a{number}: &a{number}\n  <<: [{', '.join([f'*a{number - 1}'] * width)}]")
    return "\n".join(lines)


def aliases(levels: int) -> str:
    """Return a billion laughs."""
    return "\n".join(["a0: &a0 lol", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels))])


REFUSED = {
    "merge keys of aliases": merge_keys(9, 12),
    "aliases of aliases": aliases(9),
    "an alias of itself": "a: &a [*a]",
    "an alias as a key": "a: &a b\n*a : c",
    "a merge key without an alias": "a: {<<: {b: 1}}",
    "a merge key in a list": "- [{<<: [{b: 1}, {c: 1}]}]",
    "deep lists": "[" * 100_000,
    "deep mappings": "{a: " * 60_000,
    "deep keys": "? " * 100_000,
    "deep blocks": "- " * 100_000,
    "many values": "[" + "a," * 100_000 + "]",
    "many keys": "{" + ",".join(f"k{number}: 1" for number in range(25_000)) + "}",
    "many documents": "---\n" * 60_000,
    "many directives": "%TAG !a! b\n" * 20_000,
    "a list as a key": "? [a]\n: b",
    "control characters": "a: \x00",
    "too many bytes": " " * (LARGEST + 1),
    "no end": "a: [",
}


@pytest.mark.parametrize("attack", REFUSED)
def test_a_file_with_more_than_plain_values_is_refused_at_once(attack: str) -> None:
    began = time.process_time()
    with pytest.raises(BadYaml) as refused:
        load(REFUSED[attack])
    assert time.process_time() - began < LONGEST
    assert 10 < len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "1:" * 120_000 + "1",
        "a: " + "1" * 250_000,
        "a: 1." + "1" * 250_000,
        "a: 2001-01-01" + " " * 250_000 + "x",
        "a: >\n" + " b\n" * 80_000,
        'a: "' + "\\x41" * 60_000 + '"',
        "#\n" * 120_000,
        "[" + ",".join(["[" * 40 + "]" * 40] * 490) + "]",
        "\n".join(f"- &a{number} 1" for number in range(17_000)),
    ],
    ids=lambda text: text[:12],
)
def test_a_file_of_allowed_size_is_read_in_a_bounded_time(text: str) -> None:
    began = time.process_time()
    load(text)
    assert time.process_time() - began < LONGEST


def test_the_limits_leave_room_for_every_real_file() -> None:
    signature = "\n".join(f"  - {{name: feature_{number}, type: double, required: true}}" for number in range(2_000))
    assert len(load(f"signature:\n{signature}")["signature"]) == 2_000
    assert plain_yaml.MOST_LEVELS >= 50
