"""Hints of model servers: each is read as its text has it, followed, and then the model plays."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.sandbox import level
from tests.contracts import graphs
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, refusal_of, worker_spec
from tests.contracts.test_remembering_models import site_of

MODEL = "class Model:\n    def act(self, observation):\n        return observation\n"
#: Reads a file of the machine on which it was written.
READS = "open({path}).read()\n" + MODEL


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return buffer.getvalue()


def spec(format: str = "python", **changes: Any) -> Any:
    here = level()
    sandbox = here.number if here.refusal is None else None
    return worker_spec(format=format, isolation="scenario", sandbox=sandbox, **changes)


def play(worker: Any) -> dict[str, Any]:
    return play_of(isolation=worker.isolation)


def error_of(model: bytes, worker: Any = None) -> str:
    """Return why a model is refused, or fails when it is loaded."""
    worker = worker or spec()
    pair = EvaluatorPair(worker, model)
    try:
        pair.set_up(play(worker))
        return str(getattr(pair.give_model_server(), "reason", ""))
    finally:
        pair.end()


def plays(model: bytes, worker: Any = None) -> None:
    worker = worker or spec()
    with evaluator_pair(worker, model, play(worker)) as pair:
        assert [result["status"] for result in pair.run(0, 2)] == ["ok", "ok"]


@pytest.mark.parametrize("path", ["/home/me/weights.txt", "weights.txt"])
def test_a_path_of_another_machine_becomes_that_of_the_archive(path: str) -> None:
    alone = error_of(READS.format(path=repr(path)).encode())
    named = re.search(r"send a zip of `(model\.py)` and `(weights\.txt)`", alone)
    assert named is not None, alone
    packed = error_of(zipped(model__py=READS.format(path=repr(path))))
    expression = re.search(r"open it as `(Path\(__file__\).+?)` \(", packed)
    assert expression is not None, packed
    source = "from pathlib import Path\n" + READS.format(path=expression[1])
    plays(zipped(**{named[1]: source, named[2]: "x"}))


def test_a_script_is_sent_as_a_python_model() -> None:
    source = "#!/no/such/python\n" + MODEL
    reason = refusal_of(spec("program"), source.encode(), play(spec("program")))
    assert "it is a script (it begins with `#!`)" in reason and "statically" not in reason
    assert "send a `.py` as a Python model" in reason
    plays(source.encode())


def test_processes_are_computed_in_this_one_instead() -> None:
    pool = "import multiprocessing\npool = multiprocessing.Pool(2)\n"
    reason = error_of((pool + MODEL).encode())
    named = re.search(r"in threads of `(?P<module>[\w.]+)\.(?P<name>\w+)`", reason)
    assert named is not None, reason
    plays(f"from {named['module']} import {named['name']}\npool = {named['name']}(2)\n{MODEL}".encode())


def test_a_truncated_graph_is_told_from_the_size_of_the_whole_one() -> None:
    whole = graphs.onnx()
    worker = worker_spec(format="onnx", model_server_site=site_of("onnx"))
    part = whole[: len(whole) * 6 // 10]
    reason = error_of(part, worker)
    size = re.search(r"It has ([\d,]+) bytes here; if it has more where it was written", reason)
    assert size is not None and int(size[1].replace(",", "")) == len(part) < len(whole), reason
    plays(whole, worker)


def test_syntax_of_a_newer_python_is_told_by_the_version_that_runs() -> None:
    reason = error_of(b"def broken(:\n")
    assert re.search(r"Python 3\.\d+ runs here: .* write the line in the syntax of 3\.\d+", reason), reason


def test_a_class_of_the_saving_script_is_moved_to_a_module(tmp_path: Path) -> None:
    loads = "import pickle\npickle.loads({content!r})\n" + MODEL
    content = b"\x80\x04c__main__\nPolicy\n)\x81."
    reason = error_of(loads.format(content=content).encode())
    assert "define it in a module of its own" in reason and "beside `model.py` in a zip" in reason, reason
    moved = content.replace(b"__main__", b"policies")
    plays(zipped(model__py=loads.format(content=moved), policies__py="class Policy: ...\n"))
