"""Gang programs as the user names them: the command that starts each kind, and what `windtunnel run` makes of it."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from windtunnel.commands import cli
from windtunnel.commands.estimate import command as estimate
from windtunnel.commands.gang_options import gang_fields
from windtunnel.commands.run import command as run
from windtunnel.errors import WindtunnelError
from windtunnel.gang_programs import CASE, FORMAT, PYTHON, SentModel, case_members, default_command, sent_model
from windtunnel.model_sources import pack, source_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, content: bytes = b"", mode: int = 0o644) -> str:
    """Write a file and return its name."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content)
    Path(name).chmod(mode)
    return name


def fields(*words: str) -> dict[str, Any]:
    """Return what `windtunnel run` submits with these words, besides model and dataset."""
    params = run.make_context("run", list(words)).params
    given = [params.pop(name) for name in ("model", "dataset", "ranks", "program", "build", "communication")]
    return gang_fields(*given, **params)


def test_a_python_file_is_started_by_the_runner_of_mpi4py_only_where_ranks_use_mpi() -> None:
    name = written("Heat.PY")
    assert default_command(name, "mpi") == ["python", "-m", "mpi4py", "model.py"]
    assert default_command(name, "torch") == ["python", "model.py"]
    assert default_command("s3://bucket/heat.py", "none") == ["python", "model.py"]


@pytest.mark.parametrize("head", [b"\x7fELF\x02\x01", b"#!/bin/sh\n"])
def test_an_executable_is_started_by_its_name_in_the_working_directory(head: bytes) -> None:
    assert default_command(written("heat", head), "mpi") == ["./model"]


def test_a_folder_is_started_by_its_entry_an_executable_before_python() -> None:
    written("project/model.py")
    assert default_command("project", "none") == ["python", "model.py"]
    written("project/main.py")
    assert default_command("project", "mpi") == ["python", "-m", "mpi4py", "main.py"]
    written("project/run.sh")
    assert default_command("project", "none") == ["python", "main.py"], "it is not executable"
    written("project/run.sh", mode=0o755)
    assert default_command("project", "none") == ["./run.sh"]


@pytest.mark.parametrize("top", ["", "project/"])
def test_a_zip_is_started_by_its_entry_also_within_its_one_folder(top: str) -> None:
    with zipfile.ZipFile("project.zip", "w") as archive:
        archive.writestr(f"{top}main.py", "")
        archive.writestr(f"{top}data/main.py", "")
    assert default_command("project.zip", "none") == ["python", "main.py"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("heat.c", b"int main() {}", "neither Python"),
        ("project/heat.py", b"", "has neither main.py nor model.py"),
        ("", b"", "There is no file idm here"),
    ],
)
def test_where_the_entry_is_not_known_the_error_asks_for_a_command(name: str, content: bytes, message: str) -> None:
    model = Path(written(name, content)).parts[0] if name else "idm"
    with pytest.raises(WindtunnelError, match=message) as error:
        default_command(model, "mpi")
    assert "add --command" in str(error.value)


@pytest.mark.parametrize(("name", "compiler"), [("solver.c", "mpicc"), ("solver.CPP", "mpicxx")])
def test_a_source_file_is_compiled_for_mpi_unless_a_command_is_given(name: str, compiler: str) -> None:
    written(name, b"int main() {}")
    gang = {"size": 2, "communication": "mpi", "command": ["./solver"]}
    assert fields(name, "--ranks", "2")["gang"] == {**gang, "build": [compiler, "-O2", name, "-o", "solver", "-lm"]}
    assert fields(name, "--ranks", "2", "--command", "./solver")["gang"] == gang
    assert fields(name, "--ranks", "2", "--command", "./solver", "--build", "make")["gang"] == {
        **gang,
        "build": ["make"],
    }
    for words in (["--build", "make"], ["--communication", "none"]):
        with pytest.raises(WindtunnelError, match=r"add --command, such as --command \./solver"):
            fields(name, "--ranks", "2", *words)
    with pytest.raises(WindtunnelError, match="no compiler for Fortran"):
        fields(written("heat.f90", b"end"), "--ranks", "2")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["./solver"], True),
        (["mpicc", "solver.c", "-o", "solver"], True),
        (["sh", "-c", "mpicc ./solver.c -o m && ./m"], True),
        (["make", "solver"], True),
        (["sh", "-c", "F=solver.c; mpicc $F -o solver"], True),
        (["sh", "model"], False),
        (["sh", "-c", "mpicc solver.c -o model && ./model"], True),
    ],
)
def test_a_file_keeps_its_name_unless_a_command_has_only_the_one_that_it_would_be_given(
    words: list[str], named: bool
) -> None:
    written("solver.c", b"int main() {}")
    assert sent_model("solver.c", {"gang": {"command": words}}) == SentModel(FORMAT, packed=named)
    assert sent_model("solver.c", {"gang": {"command": ["x"], "build": words}}).packed is named
    for other in ("stored", written("heat.py"), "s3://bucket/solver.c"):
        assert not sent_model(other, {"gang": {"command": ["x"]}}).packed
    pack(Path("solver.c"), Path("project.zip"))
    assert not sent_model("project.zip", {"gang": {"command": words}}).packed, "it is an archive already"
    with pytest.raises(WindtunnelError, match=r"write --command 'python model\.py'"):
        sent_model(written("heat.py"), {"gang": {"command": ["python", "heat.py"]}})


def test_the_format_of_a_program_is_named_unless_it_is_stored() -> None:
    gang = {"gang": {"command": ["x"]}}
    for program in (written("heat", b"#!"), Path("heat"), "s3://bucket/heat.zip"):
        assert sent_model(program, gang).format == FORMAT
        assert sent_model(program, gang, "wasi").format == "wasi", "the user's own counts"
        assert sent_model(program, {**gang, "format": "wasi"}).format == "wasi"
    for python in (written("heat.py"), "s3://bucket/heat.py"):
        assert sent_model(python, gang).format == PYTHON
    assert sent_model("heat-1d", gang).format is None


@pytest.mark.parametrize("submission", [{}, {"gang": {"size": 2}}, {"runtime": "package"}])
def test_a_folder_a_zip_or_a_file_that_describes_a_packaged_case_is_sent_as_one(submission: dict[str, Any]) -> None:
    written("beam/package.json", b'{"packages": ["calculix-ccx"], "command": ["ccx", "beam"]}')
    shutil.copy("beam/package.json", "beam.case")
    pack(Path("beam"), Path("beam.zip"))
    for case in ("beam", "beam.zip", "beam.case"):
        assert sent_model(case, submission) == SentModel(CASE, packed=False)
    written("page/package.json", b'{"name": "page", "dependencies": {}}')
    assert sent_model("page", submission) == SentModel(None, packed=False)


def test_a_packaged_case_and_a_program_of_a_dataset_need_the_number_of_ranks_alone() -> None:
    written("beam/package.json", b'{"packages": ["calculix-ccx"], "command": ["ccx", "beam"]}')
    sized = {"gang": {"size": 3}, "scenarios": {"range": [0, 1]}}
    assert fields("beam", "--ranks", "3") == fields("heat_stencil", "heat", "--ranks", "3") == sized
    commanded = fields("beam", "--ranks", "3", "--command", "ccx other")
    assert commanded["gang"]["command"] == ["ccx", "other"]


@pytest.mark.parametrize(
    "submission",
    [
        {},
        {"gang": {"size": 2}},
        {"gang": {"command": "solver"}},  # which the platform refuses
    ],
)
def test_a_model_that_is_not_the_program_of_a_gang_is_sent_as_it_is(submission: dict[str, Any]) -> None:
    assert sent_model(written("solver", b"#!"), submission) == SentModel(None, packed=False)


def test_a_gang_runs_one_task_unless_others_are_asked_for() -> None:
    name = written("heat.py")
    assert fields(name, "--ranks", "4") == {
        "gang": {"size": 4, "communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]},
        "scenarios": {"range": [0, 1]},
    }
    assert fields(name, "--ranks", "2", "--scenarios", "0-9")["scenarios"] == "0-9"
    assert fields(name, "--ranks", "2", "--sample", "3")["scenarios"] is None


def test_the_words_of_a_command_are_those_of_a_shell() -> None:
    words = (written("heat", b"#!"), "--ranks", "2", "--communication", "none", "--command", "sh -c 'echo \"a b\"'")
    assert fields(*words)["gang"] == {"size": 2, "communication": "none", "command": ["sh", "-c", 'echo "a b"']}
    for text, message in (("'", "is not a command line"), (" ", "is empty")):
        with pytest.raises(click.UsageError, match=message):
            fields("heat", "--ranks", "2", "--command", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("heat.py", "or run MODEL as a coupled program with --ranks N"),
        ("heat.py program --command ./model", "add --ranks N"),
        ("heat.py program --communication mpi", "add --ranks N"),
        ("heat.py --ranks 0", "0 is not in the range x>=1"),
        ("heat.py --ranks 2 --communication mpl", "'mpl' is not one of 'mpi', 'torch'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "estimate"])
def test_a_mistake_is_told_before_anything_is_sent(command: str, words: str, message: str) -> None:
    written("heat.py")
    refused = CliRunner().invoke(cli, [command, *words.split(), "--url", "http://127.0.0.1:9"])
    assert refused.exit_code == 2 and message in " ".join(refused.output.split())


def test_estimates_have_all_options_of_a_submission_that_runs_have() -> None:
    own = {"outputs", "as_json", "quiet", "detach", "watch"}  # of what is done with the simulation
    assert {option.name for option in run.params} - own == {option.name for option in estimate.params} - {"output"}


@pytest.mark.parametrize("ranks", [{}, {"ranks": 4}])
def test_a_case_that_the_platform_does_not_have_is_estimated_by_its_description(ranks: dict[str, int]) -> None:
    described = {"packages": ["calculix-ccx"], "command": ["ccx", "beam"], **ranks}
    written("beam/package.json", json.dumps(described).encode())
    gang = {"size": ranks.get("ranks", 1), "command": ["ccx", "beam"], "communication": "packaged"}
    assert case_members(source_of("beam"), {}) == {"runtime": "package", "gang": gang}
    assert case_members(source_of("beam"), {"gang": {"size": 3}})["gang"] == gang | {"size": 3}
    assert case_members(source_of(written("heat.py")), {}) == case_members(source_of("stored"), {}) == {}
