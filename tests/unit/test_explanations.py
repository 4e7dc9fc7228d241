"""Explanations: an exception, or how a process ended, becomes a sentence that names the limit and its page."""

import errno
import itertools
import multiprocessing
import os
import pickle
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from runtimes.harness.model_server import explanations, package_hints
from runtimes.harness.model_server.explanations import Surroundings, explain, explain_end
from runtimes.harness.model_server.fault_texts import describe_error
from runtimes.harness.python_process import ending
from runtimes.harness.sandbox import Confinement

CONFINED = Surroundings(memory=1 << 30, open_files=64, packages=lambda: ["msgspec", "numpy"])
UNCONFINED = Surroundings(memory=None, packages=lambda: [])


def raised(action: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as error:
        action()
    return error.value


def fail(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


def recurse() -> object:
    return recurse()


def library() -> None:
    """Raise as a library does that hides what happened."""
    try:
        raise MemoryError
    except MemoryError:
        raise ValueError("the tree cannot be grown")  # noqa: B904


def probing() -> None:
    """Raise after something was looked for in vain."""
    try:
        open("/etc/none/of/this")
    except FileNotFoundError:
        raise ValueError("no idea")  # noqa: B904


#: A pickle of an object whose class was defined in the script that wrote it.
OF_MAIN = b"\x80\x04c__main__\nPolicy\n)\x81."


def later(module: Any) -> object:
    """Use what only a later Python has."""
    return module.of_a_later_python


def pool() -> object:
    """Start processes where semaphores cannot be made, as in a sandbox."""
    refused = FileNotFoundError(errno.ENOENT, "No such file or directory")
    with patch("_multiprocessing.SemLock", side_effect=refused):
        return multiprocessing.Pool(2)


#: What a model does, and a part of the sentence.
EXCEPTIONS: list[tuple[Callable[[], object], str]] = [
    (fail(MemoryError()), "at most 1,024 MB of memory"),
    (fail(RuntimeError("std::bad_alloc")), "at most 1,024 MB of memory"),
    (fail(RuntimeError("Failed to allocate memory for requested buffer of size 8")), "at most 1,024 MB"),
    (library, "at most 1,024 MB of memory"),
    (lambda: __import__("nothing_of_this_name"), "packages that are there: msgspec, numpy"),
    (recurse, "use a loop"),
    (fail(RuntimeError("can't start new thread")), f"at most {Confinement().processes} threads"),
    (fail(OSError(errno.EMFILE, "Too many open files", "x")), "at most 64 open files"),
    (fail(OSError(errno.ENOSPC, "No space left on device")), "64 MB and 1,000 files"),
    (fail(OSError(errno.EFBIG, "File too large")), "A file that a model writes has at most 64 MB"),
    (fail(OSError(errno.EROFS, "Read-only file system", "/x")), "Only the temporary folder can be written"),
    (fail(OSError("x.so: failed to map segment from shared object")), "are not run or mapped as code"),
    (fail(ImportError("x.so: failed to map segment from shared object")), "are not run or mapped as code"),
    (lambda: open("/home/me/weights.npz"), "send a zip of `model.py` and `weights.npz`"),
    (lambda: open("weights.npz"), "send a zip of `model.py` and `weights.npz`"),
    (lambda: pickle.loads(OF_MAIN), "The pickle names `Policy` of the module"),
    (fail(SyntaxError("invalid syntax")), "write the line in the syntax of"),
    (lambda: later(itertools), "its library has no such name"),
    (lambda: exec("from typing import OfALaterPython"), "its library has no such name"),
    (pool, "in threads of `concurrent.futures.ThreadPoolExecutor`"),
    (fail(PermissionError(errno.EACCES, "Permission denied", "/x")), "writes to the temporary folder only"),
    (fail(PermissionError(errno.EPERM, "Operation not permitted")), "The sandbox refuses sockets, new processes"),
    (fail(socket.gaierror(-3, "Temporary failure in name resolution")), "no network and no sockets"),
]


@pytest.mark.parametrize(("action", "sentence"), EXCEPTIONS, ids=[row[1][:40] for row in EXCEPTIONS])
def test_an_exception_at_a_limit_names_the_limit_and_its_page(action: Callable[[], object], sentence: str) -> None:
    text = explain(raised(action), CONFINED)
    assert sentence in text
    assert re.fullmatch(r".*\(docs/[\w-]+\.md#[\w-]+\)\.", text)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no idea"),
        KeyError("x"),
        RuntimeError("no weights found"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        SystemExit(1),
    ],
)
def test_an_exception_of_the_models_own_has_no_sentence(error: BaseException) -> None:
    assert explain(raised(fail(error)), CONFINED) == ""


def test_what_was_looked_for_in_vain_does_not_explain_another_exception() -> None:
    assert explain(raised(probing), CONFINED) == ""


def test_without_a_sandbox_no_limits_and_rules_are_named_that_are_not_in_force() -> None:
    for error in (OSError(errno.ENOSPC, "x"), PermissionError(errno.EPERM, "x"), FileNotFoundError(2, "x", "/etc/x")):
        assert explain(raised(fail(error)), UNCONFINED) == ""
    assert "The machine had no memory left" in explain(MemoryError(), UNCONFINED)
    assert "packages" not in explain(raised(lambda: __import__("nothing_of_this_name")), UNCONFINED).split(":")[0]


def test_a_long_text_does_not_push_the_sentence_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = describe_error(raised(fail(MemoryError("x" * 5000))), Surroundings.here)
    assert len(text) == 2000 and text.endswith("(docs/sandbox.md#limits).")
    assert "MemoryError" in capsys.readouterr().err


def test_an_exception_without_a_text_is_not_followed_by_an_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe_error(raised(fail(MemoryError())), Surroundings.here).startswith("MemoryError. ")
    assert describe_error(raised(fail(ValueError())), Surroundings.here) == "ValueError"


@pytest.mark.parametrize("name", explanations.SIGNALS)
def test_the_end_of_a_process_by_a_signal_is_explained_also_behind_a_sandbox(name: str) -> None:
    number = signal.Signals[name]
    for code in (-number, 128 + number):
        text = explain_end(ending(code))
        assert text.startswith(f"killed by {name}: ") and explanations.SIGNALS[name] in text
        assert text.endswith("(docs/sandbox.md#how-a-process-ends)")


def test_a_kill_for_memory_names_the_option_that_gives_more() -> None:
    text = explain_end(ending(-signal.SIGKILL, kills_before=0, kills_after=1))
    assert "their control group was out of memory" in text and "`placement.memory`" in text
    assert "by the model itself" in explain_end(ending(-signal.SIGKILL))
    assert "ended the process" in explain_end(ending(3))
    assert explain_end("it was not there") == "it was not there (docs/sandbox.md#how-a-process-ends)"


def test_the_pages_of_the_sandbox_have_the_headings_that_explanations_name() -> None:
    headings = re.findall(r"^#+ (.*)$", Path("docs/sandbox.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for page in (explanations.LIMITS, explanations.RULES, explanations.ENDS):
        file, _, anchor = page.partition("#")
        assert file == "docs/sandbox.md" and anchor in anchors
    for page in (explanations.FILES, package_hints.PAGE):
        assert os.path.isfile(page.partition("#")[0])
