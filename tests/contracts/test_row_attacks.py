"""Row attacks: what a model does to the memory and pipes of its rows changes nothing but its own results."""

import json
from pathlib import Path

import pytest

from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"
#: A model that attacks once in each process, when it is first asked for the actions of many worlds.
HOSTILE = """
import builtins, fcntl, gc, os, threading
import numpy as np
def descriptors():
    for descriptor in range(3, 64):
        try:
            os.fstat(descriptor)
            yield descriptor
        except OSError:
            pass
def attempt(call):
    try:
        call()
    except OSError:
        pass
def forever(act):
    def work():
        while True:
            act()
    threading.Thread(target=work, daemon=True).start()
def found(kind):
    return next((item for item in gc.get_objects() if type(item).__name__ == kind), None)
def attack(memory, asked, answered):
    {attack}
class Model:
    def act(self, observation):
        if found("RowServer") is not None and not hasattr(builtins, "attacked"):
            builtins.attacked = True
            attack(*found("ModelServer")._rows_shared)
        return np.full(4, 0.25, np.float32)
"""
#: What is done, by the name that docs/sandbox.md has.
ATTACKS = {
    "truncate the memory": "[attempt(lambda: os.ftruncate(one, 0)) for one in descriptors()]",
    "extend the memory": "[attempt(lambda: os.ftruncate(one, 1 << 20)) for one in descriptors()]",
    "seal the memory": "[attempt(lambda: fcntl.fcntl(one, 1033, 8)) for one in descriptors()]",
    "empty the memory": "forever(lambda: memory.answers.__setitem__(slice(None), bytes(len(memory.answers))))",
    "answer before the request": "os.write(answered, b'x')",
    "answer with the last request's numbers": (
        "old = bytes(memory.numbers); forever(lambda: memory.answered_numbers.__setitem__(slice(None), old))"
    ),
    "change the answer after the check": (
        "answers = [np.full(memory.rows * 4, value, np.float32).tobytes() for value in (0.25, np.nan)];"
        " forever(lambda: [memory.actions.__setitem__(slice(None), answer) for answer in answers])"
    ),
    "write a neighbour's row": (
        "memory.actions[:] = np.full(memory.rows * 4, 9, np.float32).tobytes(); memory.kinds[:] = bytes(memory.rows)"
    ),
    "fault in a neighbour's row": "forever(lambda: memory.faults.__setitem__(slice(None), bytes([7] * memory.rows)))",
    "ring without end": "os.set_blocking(answered, True); forever(lambda: os.write(answered, b'x' * 64))",
    "never ring": "os.dup(answered); os.dup2(os.open(os.devnull, os.O_WRONLY), answered)",
    "read the evaluator's rings": "os.set_blocking(asked, True); forever(lambda: os.read(asked, 1))",
    "close the pipes": "os.close(answered); os.close(asked)",
}
#: Those after which the worlds' requests are not answered, or not in time.
SILENT = {"never ring", "read the evaluator's rings"}
TASKS = 100


@pytest.fixture(params=["without a sandbox", "sandboxed"])
def sandbox(request: pytest.FixtureRequest) -> int | None:
    """The level of the sandbox of both processes."""
    from runtimes.harness.sandbox import level

    return level().number if request.param == "sandboxed" else None


def played(attack: str, sandbox: int | None) -> tuple[list[dict[str, object]], EvaluatorPair]:
    model = HOSTILE.replace("{attack}", ATTACKS[attack])
    play = play_of(worlds=16, deadline=2.0 if attack in SILENT else 60.0)
    with evaluator_pair(worker_spec(sandbox=sandbox), model, play) as pair:
        lines = pair.run_lines(0, TASKS)
        assert pair.evaluator.process.how is None, "the evaluator works on"
        assert "AttributeError" not in pair.output(), "the attack has found what it attacks"
    return [json.loads(line) for line in lines.splitlines()], pair


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_its_rows_leaves_every_task_with_a_result_of_the_model(attack: str, sandbox: int | None) -> None:
    results, pair = played(attack, sandbox)
    assert [result["task"] for result in results] == list(range(TASKS))
    values = {result["metrics"]["value"] for result in results if result["status"] == "ok"}  # type: ignore[index]
    assert {result["status"] for result in results} <= {"ok", "invalid"}
    # 1 is the sum of the model's action; the rest is what the model itself has written in its place.
    assert values <= {1.0, 36.0, 0.0}, "what was checked is what was applied"
    if attack in {"truncate the memory", "extend the memory", "seal the memory"}:
        assert values == {1.0} and not pair.needs
    if attack in SILENT:
        assert values == {1.0} and set(pair.needs) == {"timed_out"}


def test_the_document_lists_these_attacks() -> None:
    section = DOCUMENT.read_text().partition("## Memory of rows")[2].partition("\n## ")[0]
    assert [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:] == list(ATTACKS)
