"""Packaged simulators in their sandbox: the root is their packages, and this machine is not to be seen in it."""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runtimes.harness import sandbox
from runtimes.harness.gang.gang_task import FOLDER, GangEnd, GangTask, LaunchedProgram, LocalGangSpec
from runtimes.harness.gang.sandboxed_task import SandboxedTask
from runtimes.harness.runner.captured_output import CapturedOutput
from tests.package_trees import PROGRAMS, make_tree
from workers.warm_runners import HARNESS, base_interpreter

pytestmark = pytest.mark.skipif(sandbox.level().number < 3, reason="there are no namespaces here")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of a few programs, as packages would be unpacked."""
    root = tmp_path_factory.mktemp("tree") / "root"
    make_tree(root)
    return root


class CaseHere:
    """Runs a shell's script in the tree, as a case of one rank."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._model = root, folder / "model"
        self._model.mkdir()
        folder.chmod(0o755)
        self.progress: list[float] = []

    def run(
        self, script: str, params: object = None, files: Sequence[tuple[str, str]] = (), **members: object
    ) -> GangEnd:
        for name, text in files:
            (self._model / name).write_text(text)
        spec = LocalGangSpec(
            python=base_interpreter(),
            harness=str(HARNESS),
            packages=[],
            programs=[LaunchedProgram(launcher=(), environ={})],
            command=["sh", "-c", script],
            hosts=["ranks"],
            ranks=1,
            memory=256 << 20,
            name="model",
            level=3,
            root=str(self._root),
            **members,  # type: ignore[arg-type]
        )
        model = str(self._model)
        scenario = {"index": 4, "seed": 11, "params": params or {}}
        task = GangTask(gang=spec, confinement=spec.confinement([model]), model=model, scenario=scenario, folder=FOLDER)
        local, remote = socket.socketpair()
        with local, remote, SandboxedTask(task, CapturedOutput()) as sandboxed:
            message = sandboxed.listen(local, time.monotonic() + 60, lambda _: None, self.progress.append)
            assert message, sandboxed.ending
            sandboxed.delivered.close()
            return GangEnd.of(message)

    def lines(self, script: str, **members: object) -> list[str]:
        """Return what a script prints."""
        return list(self.run(script, **members).ranks[0].lines)  # type: ignore[arg-type]


@pytest.fixture
def here(root: Path, tmp_path: Path) -> Iterator[CaseHere]:
    yield CaseHere(root, tmp_path)


def test_a_case_runs_with_the_files_of_its_packages_and_not_of_this_machine(here: CaseHere) -> None:
    lines = here.lines("cat /etc/of-the-tree; echo; ls /usr/bin")
    assert lines == ["tree", *sorted(PROGRAMS)]
    lines = here.lines("ls -d /home /root /opt /srv /var 2>/dev/null; ls /etc")
    assert lines == ["group", "hosts", "nsswitch.conf", "of-the-tree", "passwd"]


def test_a_case_has_one_user_and_its_hosts(here: CaseHere) -> None:
    lines = here.lines("cat /etc/passwd /etc/hosts")
    assert lines[0].startswith("ranks:x:")
    assert "127.0.0.1 ranks" in lines


@pytest.mark.parametrize(
    "attack",
    [
        "touch /usr/bin/x",
        "touch /etc/x",
        "echo root > /etc/passwd",
        "cat /windtunnel/etc/shadow",
        "ls /windtunnel/root",
        "ls /.accounts && touch /.accounts/x",
        "cat /proc/1/environ",
        "cat /dev/mem",
        "ls /sys/kernel",
    ],
)
def test_from_inside_nothing_of_the_tree_or_of_this_machine_can_be_changed_or_read(here: CaseHere, attack: str) -> None:
    end = here.run(f"{attack} && echo succeeded")
    assert end.ranks[0].exit != 0
    assert "succeeded" not in end.ranks[0].lines


def test_templates_get_the_parameters_of_the_task(here: CaseHere) -> None:
    text = "t={{temperature}} s={{seed}} n={{ ranks }} name={{name}}\n"
    params = {"temperature": 1.5, "name": "melt"}
    end = here.run("cat in.melt", params, [("in.melt", text)], templates=["in.melt"])
    assert end.ranks[0].lines == ["t=1.5 s=11 n=1 name=melt"]


def test_a_template_without_its_parameter_says_which(here: CaseHere) -> None:
    end = here.run("cat in.melt", {}, [("in.melt", "{{pressure}}")], templates=["in.melt"])
    assert end.problem == "in.melt has {{pressure}}, and the task has no parameter pressure"
    assert not end.ranks


def test_metrics_and_progress_are_read_from_the_log(here: CaseHere) -> None:
    script = "echo step 1 of 4; echo T = 1.5D-1; echo T = 2.5D-1; sleep 0.6; echo step 2 of 4; sleep 0.6; echo word x"
    rules = {
        "progress": r"^step (\d+) of (\d+)",
        "metrics": {"temperature": r"^T = (\S+)", "word": r"^word (\w)", "no": "n()"},
    }
    end = here.run(script, rules=rules)
    assert json.loads(end.ranks[0].result or "") == {"temperature": 0.25, "word": "x", "no": None}
    assert here.progress == [0.25, 0.5]


def test_lines_of_json_are_progress_of_any_gang_and_not_its_result(here: CaseHere) -> None:
    end = here.run("""echo '{"value": 1}'; echo '{"progress": 0.75}'; sleep 0.6""")
    assert here.progress == [0.75]
    assert end.ranks[0].result == '{"value": 1}'
