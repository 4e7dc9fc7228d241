"""Model formats: listed without their libraries, chosen by the certainty of their claims, contradictions refused."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import TooLarge, UnknownFormat
from core.services.uploads.models import check_size
from runtimes import catalogue, formats
from runtimes.dependencies.declaration import requirement_of
from runtimes.formats import decide
from runtimes.harness import models
from runtimes.harness.models import onnx
from runtimes.harness.models.base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
)
from runtimes.harness.simulators.base import Interface, Space
from scripts import formats as page
from scripts import lock
from tests.archives import zipped

#: Libraries of the formats' environments, which a server must not import.
LIBRARIES = {
    "onnxruntime",
    "ai_edge_litert",
    "tensorflow",
    "keras",
    "sklearn",
    "skops",
    "joblib",
    "xgboost",
    "lightgbm",
    "torch",
    "stable_baselines3",
    "sb3_contrib",
    "wasmtime",
    "fmpy",
    "jax",
    "lxml",
}
#: Every format of the package.
FORMATS = {
    "fmu",
    "jax",
    "frozen_graph",
    "gang_program",
    "package_case",
    "keras",
    "lightgbm",
    "native",
    "onnx",
    "program",
    "python",
    "savedmodel",
    "scikit_learn",
    "stable_baselines3",
    "tflite",
    "torch_export",
    "torchscript",
    "wasm",
    "xgboost",
}


def load(assignment: Assignment) -> LoadedModel:
    raise AssertionError("nothing is loaded here")


def format_with(
    claim: Recognition | None = None, suffixes: tuple[str, ...] = (), zip_contents: str = ""
) -> ModelFormat:
    return ModelFormat(
        title="",
        description="",
        runtime="r",
        environment="python",
        suffixes=suffixes,
        recognise=lambda sample: claim,
        zip_contents=zip_contents,
        load=load,
    )


CLAIMS = st.none() | st.builds(Recognition, st.sampled_from(Certainty), st.sampled_from(["", "Send something else."]))
SAMPLE = Sample(head=b"x", size=1)


@given(st.dictionaries(st.sampled_from("abcdef"), CLAIMS), st.randoms(use_true_random=False))
def test_the_format_of_the_most_certain_claim_gets_the_file_in_any_order_of_formats(
    claims: Mapping[str, Recognition | None], random: Random
) -> None:
    names = sorted(claims)
    random.shuffle(names)
    model_formats = {name: format_with(claims[name]) for name in names}
    positive_claims = {name: claim for name, claim in claims.items() if claim is not None}
    surest = [
        name
        for name, claim in positive_claims.items()
        if claim.certainty == max(claim.certainty for claim in positive_claims.values())
    ]
    accepting = [name for name in surest if not positive_claims[name].refusal]
    if len(accepting) == 1:
        assert decide(SAMPLE, model_formats) == accepting[0]
        return
    with pytest.raises(UnknownFormat) as error:
        decide(SAMPLE, model_formats)
    if accepting:
        assert all(name in str(error.value) for name in accepting) and "`format`" in str(error.value)
    elif surest:
        assert "Send something else." in str(error.value)


def test_a_suffix_is_more_certain_than_a_guess_and_less_certain_than_magic_bytes() -> None:
    text = format_with(Recognition(Certainty.GUESS), (".txt",))
    magic = format_with(Recognition(Certainty.CONTENT), (".bin",))
    named = format_with(None, (".csv", ".tsv"))
    for name in ("a.csv", "a.TSV"):
        sample = Sample(head=b"x", size=1, filename=name)
        assert decide(sample, {"text": text, "named": named}) == "named"
        assert decide(sample, {"text": text, "named": named, "magic": magic}) == "magic"


def test_the_suffix_of_a_zip_is_ignored_and_the_error_lists_the_contents_of_zip_formats() -> None:
    model_formats = {"named": format_with(None, (".zip",)), "model": format_with(None, zip_contents="a `graph.xml`")}
    with pytest.raises(UnknownFormat, match=r"no known format: model has a `graph\.xml`"):
        decide(Sample(head=b"PK\x03\x04", size=100, filename="a.zip", members=("readme",)), model_formats)


def test_a_format_that_refuses_the_content_wins_over_a_matching_suffix() -> None:
    model_formats = {
        "named": format_with(None, (".keras",)),
        "refusing": format_with(Recognition(Certainty.CONTENT, "HDF5 is not accepted: save it as .keras.")),
    }
    with pytest.raises(UnknownFormat, match="HDF5 is not accepted"):
        decide(Sample(head=b"\x89HDF", size=100, filename="a.keras"), model_formats)


def test_every_format_says_which_files_it_accepts_also_those_that_its_content_tells() -> None:
    accepted = {name: format.accepted_suffixes for name, format in formats.formats().items()}
    assert {".joblib", ".skops", ".pkl"} <= {*accepted["scikit_learn"]}
    assert ".txt" in accepted["lightgbm"] and ".json" in accepted["xgboost"] and ".zip" in accepted["stable_baselines3"]
    for name, format in formats.formats().items():
        assert accepted[name], name
        assert (".zip" in accepted[name]) == (format.unpacked or name == "stable_baselines3"), name


def test_the_error_about_an_unknown_file_lists_formats_and_suffixes(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"\x01\x02\x03\x04" + bytes(100))
    with pytest.raises(UnknownFormat) as error:
        formats.detect(path)
    for name, format in formats.formats().items():
        assert name in str(error.value) and all(suffix in str(error.value) for suffix in format.suffixes)


def test_a_file_of_no_format_has_the_default_format_unless_that_format_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"\x01\x02\x03\x04" + bytes(100))
    assert formats.detect(path, default="onnx") == "onnx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mine/model.py", "")
        archive.writestr("readme", "")
    with pytest.raises(UnknownFormat, match="lies in a folder"):
        formats.detect(path, default="python")


def test_any_file_may_be_a_gang_program_but_not_what_a_failed_download_left(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    for program in (b"#!/bin/sh\n", zipped({"heat.c": b"int main;", "Makefile": b""}), b"\x1f\x8b" + bytes(600)):
        path.write_bytes(program)
        with pytest.raises(UnknownFormat):
            formats.detect(path)
        assert formats.detect(path, default="gang_program") == "gang_program"
    path.write_bytes(b"import mpi4py\n")
    assert formats.detect(path, default="gang_program") == "python"
    path.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(UnknownFormat, match="a web page"):
        formats.detect(path, default="gang_program")


def test_a_gang_program_is_not_loaded_as_a_model() -> None:
    space = Space(dtype="float64", shape=(1,), names=("x",), units=("",), low=(0.0,), high=(1.0,))
    with pytest.raises(Misfit, match="submit it with a `gang`"):
        formats.formats()["gang_program"].load(Assignment(interface=Interface(observation=space, action=space)))


def test_python_is_recognised_although_its_head_ends_within_a_character(tmp_path: Path) -> None:
    for padding in range(4):
        path = tmp_path / "model"
        path.write_text("import numpy\n" + "#" * padding + "\N{ROCKET}" * formats.HEAD)
        assert formats.detect(path) == "python"


def test_servers_list_every_format_without_importing_model_libraries() -> None:
    program = (
        "import sys; from runtimes import catalogue, formats; catalogue.runtimes(); formats.suffixes();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert not LIBRARIES & set(output.split())


def test_every_format_of_the_package_belongs_to_a_runtime_and_has_an_environment() -> None:
    assert set(formats.formats()) == FORMATS
    for name, format in formats.formats().items():
        entry = catalogue.runtimes()[format.runtime].formats[name]
        assert entry.environment.name == format.environment and entry.isolation == format.isolation


@pytest.fixture
def formats_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A second folder of the package, for modules of a test."""
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    caches = (formats.formats, catalogue.runtimes)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def module(**changes: object) -> str:
    fields = {"title": "T", "description": "D.", "runtime": "r", "environment": "python", "packages": ()}
    arguments = ", ".join(f"{name}={value!r}" for name, value in (fields | changes).items())
    return f"from .base import ModelFormat\nFORMAT = ModelFormat(load=lambda assignment: None, {arguments})\n"


def test_a_module_that_is_put_into_the_package_is_a_format(formats_folder: Path) -> None:
    (formats_folder / "table.py").write_text(module(suffixes=(".table",), max_size=10))
    (formats_folder / "shared.py").write_text("NOTHING = 0\n")
    assert set(formats.formats()) == FORMATS | {"table"}
    assert catalogue.runtime("r").formats["table"].environment.name == "python"
    assert ".table" in formats.suffixes() and "table (.table)" in formats.listed()
    path = formats_folder / "sent"
    path.write_bytes(b"table")
    check_size("table", 10, path, largest_unpacked=1 << 20)
    with pytest.raises(TooLarge, match="11 bytes; a file of the format table has at most 10"):
        check_size("table", 11, path, largest_unpacked=1 << 20)


def test_the_most_bytes_of_a_format_are_those_of_a_file_and_not_of_an_archive(tmp_path: Path) -> None:
    (tmp_path / "sent").write_bytes(zipped({"policy.onnx": b"graph"}))
    check_size("onnx", onnx.MAX_SIZE + 1, tmp_path / "sent", largest_unpacked=1 << 20)
    (tmp_path / "sent").write_bytes(b"graph")
    with pytest.raises(TooLarge, match="a file of the format onnx has at most"):
        check_size("onnx", onnx.MAX_SIZE + 1, tmp_path / "sent", largest_unpacked=1 << 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "nowhere"}, r"nowhere has no nowhere.lock: run `python -m scripts.lock nowhere`"),
        ({"runtime": "onnx", "baselines": {"car_street": "idm"}}, "has a baseline for car_street already"),
    ],
)
def test_a_format_that_contradicts_the_others_is_an_error(
    changes: dict[str, object], message: str, formats_folder: Path
) -> None:
    (formats_folder / "table.py").write_text(module(**changes))
    with pytest.raises(ValueError, match=message):
        catalogue.runtimes()


def test_two_formats_cannot_require_different_packages_in_the_same_environment(formats_folder: Path) -> None:
    (formats_folder / "table.py").write_text(module(environment="litert", packages=("pandas",)))
    with pytest.raises(ValueError, match="the environment litert has other packages"):
        lock.packages()


PYTORCH = {
    "torchscript": ("p/data.pkl", "p/code/__torch__.py", "p/constants.pkl"),
    "torch_export": ("p/archive_format", "p/models/model.json", "p/data/weights/w"),
    "torch_export of an earlier version": ("version", "serialized_exported_program.json"),
    "stable_baselines3": ("data", "policy.pth", "pytorch_variables.pth"),
}


@pytest.mark.parametrize("name", PYTORCH)
def test_files_of_pytorch_are_recognised_by_the_names_in_them_whatever_their_own_is(name: str) -> None:
    for filename in ("", "model.zip", "model.pt", "model.pt2"):
        sample = Sample(head=b"PK\x03\x04", size=100, filename=filename, members=PYTORCH[name])
        assert decide(sample, formats.formats()) == name.partition(" ")[0]


@pytest.mark.parametrize(("filename", "save"), [("p.pt", "torch.jit.save"), ("p.pt2", "torch.export.save")])
def test_a_file_with_the_suffix_of_pytorch_that_is_no_archive_is_refused_with_the_next_step(
    filename: str, save: str
) -> None:
    with pytest.raises(UnknownFormat, match=f"not an archive of PyTorch: save a .* with `{save}`"):
        decide(Sample(head=b"\x80\x02\x8a\x0a", size=100, filename=filename), formats.formats())


def test_the_requirements_of_formats_are_names_with_versions() -> None:
    for name, format in formats.formats().items():
        for line in format.requirements:
            assert requirement_of(line, name).specifier


def test_the_table_of_formats_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert text == page.page(text), "run `python -m scripts.formats`"
    assert all(f"| {name} |" in text for name in formats.formats())


def test_a_dataset_for_measurements_lowers_the_isolation_of_models_but_not_of_programs() -> None:
    formats_of = {name: runtime.formats for name, runtime in catalogue.runtimes().items()}
    python, onnx, program = formats_of["python"]["python"], formats_of["onnx"]["onnx"], formats_of["native"]["program"]
    for dataset, expected in (("launch", "launch"), ("scenario", "scenario"), (None, "scenario")):
        assert python.isolation_on(dataset) == expected
        assert program.isolation_on(dataset) == "scenario", "they are started for each scenario"
        assert onnx.isolation_on(dataset) == "launch"
