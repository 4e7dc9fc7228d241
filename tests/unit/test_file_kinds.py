"""Kinds of file that are not a model: each is named with the next step, and none takes a file from a format."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from common.errors import UnknownFormat
from core.services.uploads.shipped_models import shipped
from runtimes import file_kinds, formats
from runtimes.formats import detect, sample_of
from runtimes.harness.models.base import Sample
from tests.contracts import graphs

BASELINES = sorted(shipped().values())


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, weights=np.zeros(3), bias=np.zeros(1))
    return file.getvalue()


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("policy.onnx"))
    return file.getvalue()


def safetensors() -> bytes:
    """A file as its specification has it: the header's length (u64, little-endian), JSON, bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


def mat(version: str) -> bytes:
    """The header of "MAT-File Format": 116 bytes of text, a subsystem offset, a version, and the order of bytes."""
    text = f"MATLAB {version} MAT-file, Platform: GLNXA64, Created on: Mon Nov 23 18:00:00 2026"
    header = text.encode().ljust(116) + bytes(8) + (b"\x00\x01" if version == "5.0" else b"\x00\x02") + b"IM"
    return header + (bytes(384) + b"\x89HDF\r\n\x1a\n" if version == "7.3" else b"\x0f\0\0\0") + bytes(600)


def pe(machine: int, characteristics: int) -> bytes:
    """The headers of "PE Format": the offset of the signature at 0x3c, then machine, ..., characteristics."""
    coff = struct.pack("<HHIIIHH", machine, 3, 0, 0, 0, 240, characteristics)
    return b"MZ".ljust(60, b"\0") + struct.pack("<I", 128) + bytes(64) + b"PE\0\0" + coff


def elf(kind: int, machine: int) -> bytes:
    """The header of the System V ABI: identification, then e_type and e_machine."""
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", kind, machine) + bytes(44)


def mach_o(machine: int) -> bytes:
    """The header of mach-o/loader.h: MH_MAGIC_64, cputype, cpusubtype, filetype."""
    return struct.pack("<IIII", 0xFEEDFACF, machine, 0, 6) + bytes(16)


def core_ml() -> bytes:
    """The start of Model.proto: specificationVersion 4, a description whose first field is the input `x`."""
    return b"\x08\x04\x12\x07\x0a\x05\x0a\x03obs" + bytes(20)


def notebook() -> bytes:
    cell = {"cell_type": "code", "source": ["import numpy as np\n"]}
    return json.dumps({"cells": [cell], "nbformat": 4, "nbformat_minor": 5}).encode()


def class_file() -> bytes:
    """The header of the Java Virtual Machine Specification, chapter 4: magic, minor and major version."""
    return struct.pack(">IHH", 0xCAFEBABE, 0, 65) + bytes(20)


TORCH_LEGACY = pickle.dumps(0x1950A86A20F9469CFC6C, 2)  # torch/serialization.py: MAGIC_NUMBER, protocol 2
R_DATA = b"X\n\0\0\0\x03\0\x04\x03\x01\0\x03\x05\0" + bytes(50)  # R Internals, 1.8: the format, then versions

#: File name, content, and the beginning of the sentence that names it.
FILES: list[tuple[str, Callable[[], bytes], str]] = [
    ("net.mat", lambda: mat("5.0"), "This is a MATLAB .mat file. Export"),
    ("net.mat", lambda: mat("7.3"), "This is a MATLAB .mat file of version 7.3"),
    ("car.slx", lambda: zipped("[Content_Types].xml", "simulink/blockdiagram.xml"), "This is a Simulink model (.slx)"),
    ("car.mdl", lambda: b'Model {\n  Name "car"\n}', "This is a Simulink model (.mdl)"),
    ("car.mdl", lambda: b"# MathWorks OPC Text Package\nModel {\n", "This is a Simulink model (.mdl)"),
    *(
        ("p.pkl", (lambda protocol=protocol: pickle.dumps({"w": 1.0}, protocol)), "This is a Python pickle")
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ),
    ("w.npy", npy, "This is a NumPy array"),
    ("w.npz", npz, "This is an archive of NumPy arrays"),
    ("p.pt", lambda: zipped("p/data.pkl", "p/data/0", "p/version"), "This is a PyTorch state_dict or pickled module"),
    ("p.pth", lambda: TORCH_LEGACY, "This is a PyTorch state_dict or pickled module"),
    ("w.safetensors", safetensors, "This is a safetensors file"),
    ("m.gguf", lambda: b"GGUF\x03\0\0\0" + bytes(20), "This is a GGUF file"),
    ("m.zip", lambda: zipped("m.mlpackage/Manifest.json", "m.mlpackage/Data/com.apple.CoreML/m.mlmodel"), "Core ML"),
    ("m.xml", lambda: b'<?xml version="1.0"?>\n<net name="m" version="11">', "This is the graph of an OpenVINO model"),
    ("m.engine", lambda: b"ftrt" + bytes(60), "This is a TensorRT engine"),
    ("m.prototxt", lambda: b'name: "m"\nlayer {\n  bottom: "data"\n}', "This is a Caffe model"),
    ("m.caffemodel", lambda: b"\x0a\x01m\xa2\x06" + bytes(9), "This is a Caffe model"),
    ("m.pmml", lambda: b'<?xml version="1.0"?>\n<PMML xmlns="http://www.dmg.org/PMML-4_4">', "This is a PMML model"),
    ("m.rds", lambda: gzip.compress(R_DATA), "This is an R object"),
    ("m.RData", lambda: gzip.compress(b"RDX3\n" + R_DATA), "This is an R object"),
    ("m.tar", tar, "This is a tar archive"),
    ("m.tar.gz", lambda: gzip.compress(tar()), "This is a tar archive"),
    ("m.gz", lambda: gzip.compress(b"x" * 100), "This is a gzip file. Unpack it"),
    ("m.bz2", lambda: bz2.compress(b"x"), "This is a bzip2 file"),
    ("m.xz", lambda: lzma.compress(b"x"), "This is an xz file"),
    ("m.7z", lambda: b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(24), "This is a 7z archive"),  # 7zFormat.txt
    ("m.rar", lambda: b"Rar!\x1a\x07\x01\0" + bytes(24), "This is a RAR archive"),  # RAR 5.0 archive format
    ("m.zst", lambda: b"\x28\xb5\x2f\xfd\x04\x58" + bytes(9), "This is a Zstandard file"),  # RFC 8878, 3.1.1
    ("m.o", lambda: elf(1, 62), "This is an object file for Linux on x86_64 (ELF)"),
    ("m.dll", lambda: pe(0x8664, 0x2022), "This is a DLL for Windows on x86-64 (PE)"),
    ("m.exe", lambda: pe(0xAA64, 0x22), "This is a program for Windows on aarch64 (PE)"),
    ("m.dylib", lambda: mach_o(0x0100000C), "This is a program or library for macOS on aarch64"),
    ("m.dylib", lambda: b"\xca\xfe\xba\xbe\0\0\0\x02" + bytes(40), "for macOS on several machines"),
    ("M.class", class_file, "This is a Java class"),
    ("m.jar", lambda: zipped("META-INF/MANIFEST.MF", "M.class"), "This is a Java archive"),
    ("m", lambda: b"%PDF-1.7\n", "This is a PDF document"),
    ("m", lambda: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "This is a PNG picture"),
    ("m", lambda: b"\xff\xd8\xff\xe0\0\x10JFIF", "This is a JPEG picture"),
    ("m", lambda: b"\xef\xbb\xbf<!DOCTYPE html>\n<title>Sign in</title>", "This is a web page: the download was not"),
    ("m", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "This is a Git LFS pointer"),
    ("m.ipynb", notebook, "This is a Jupyter notebook"),
    ("m.json", lambda: b'{"weights": [1.0]}', "This is JSON"),
    ("m.yaml", lambda: b"weights: [1.0]\n", "This is YAML"),
    ("m", lambda: b"", "This is an empty file"),
    ("m.onnx", lambda: bytes(4096), "This is a file whose beginning is zero bytes"),
]


@pytest.mark.parametrize(("name", "content", "message"), FILES, ids=[f"{row[0]} {row[2][8:40]}" for row in FILES])
def test_a_file_that_is_no_model_is_named_with_the_next_step(
    name: str, content: Callable[[], bytes], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "sent"
    path.write_bytes(content())
    with pytest.raises(UnknownFormat) as error:
        detect(path, name)
    text = str(error.value)
    assert message in text
    named, _, rest = text.partition(" Formats: ")
    assert named.startswith("This is ") and named.count(". ") >= 1, "it says what the file is, and what to do"
    assert all(format in rest for format in formats.formats())


#: Files that only their names tell.
BY_NAME = {"m.caffemodel", "m.yaml"}
BY_BYTES = [row for row in FILES if row[0] not in BY_NAME]


@pytest.mark.parametrize(("name", "content", "message"), BY_BYTES, ids=[f"{row[0]} {row[2][8:40]}" for row in BY_BYTES])
def test_every_kind_that_has_magic_bytes_is_named_without_a_file_name(
    name: str, content: Callable[[], bytes], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "sent"
    path.write_bytes(content())
    kind = file_kinds.kind_of(sample_of(path))
    assert kind is not None and message.removeprefix("This is ").split(". ")[0] in f"{kind.name}."


def test_every_kind_of_the_table_is_among_the_tested_files() -> None:
    tested = {kind.name for kind in map(kind_of_row, FILES) if kind is not None}
    assert {kind.name for kind in file_kinds.KINDS} - tested <= {"a Core ML model"}


def kind_of_row(row: tuple[str, Callable[[], bytes], str]) -> file_kinds.FileKind | None:
    content = row[1]()
    members = None
    if content.startswith(formats.ZIP):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = tuple(archive.namelist())
    sample = Sample(head=content[: formats.HEAD], size=len(content), filename=row[0], members=members)
    return file_kinds.kind_of(sample)


def claimed_files() -> list[tuple[str, bytes]]:
    """Files that formats claim: the baselines, and models of the tests."""
    files = [(path.name, path.read_bytes()) for path in BASELINES]
    files += [("m.onnx", graphs.onnx()), ("m.onnx", graphs.onnx_dropout()), ("m.py", graphs.python())]
    estimator = b"\x80\x04\x95\xa5\x02\0\0\0\0\0\0\x8c\x1asklearn.linear_model._base\x94"
    files += [("m.pkl", estimator), ("m", gzip.compress(estimator)), ("m.joblib", zlib.compress(estimator))]
    files += [("m.skops", zipped("schema.json", "1.npy"))]
    files += [("m.json", b'{"learner":{"attributes":{}}}'), ("m.txt", b"tree\nversion=v4\nnum_class=1\n")]
    files += [("m.ubj", b"{L\0\0\0\0\0\0\0\x07learner{")]  # XGBoost's UBJSON: keys have i64 sizes
    files += [("m.wasm", b"\0asm\x01\0\0\0"), ("m.wasm", b"\0asm\x0d\0\x01\0")]  # modules and components
    files += [("m.fmu", zipped("modelDescription.xml", "binaries/x86_64-linux/m.so"))]
    serialized = (
        struct.pack("<I", 60) + bytes(280) + b"ML\xefR\rStableHLO_v1.15.0\0"
    )  # jax/_src/export/serialization.py
    files += [("m.jax", serialized)]
    files += [("m.so", elf(3, 62)), ("m.zip", zipped("model.so", "weights.bin"))]
    files += [("m.zip", zipped("model.py", "weights.npz")), ("m.zip", zipped("saved/saved_model.pb"))]
    files += [("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(90)), ("m.pb", b"\x0a\x10\x0a\x01x\x12\x0bPlaceholder")]
    return [*files, ("m.keras", zipped("config.json", "metadata.json", "model.weights.h5"))]


@pytest.mark.parametrize(("name", "content"), claimed_files())
def test_no_kind_claims_a_file_that_a_format_claims(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sent"
    path.write_bytes(content)
    for filename in (name, "model"):
        sample = sample_of(path, filename)
        assert file_kinds.kind_of(sample) is None
        assert detect(path, filename) in formats.formats()


@pytest.mark.parametrize("name", ["policy.onnx", "policy.py", "policy.tflite"])
def test_a_download_that_went_wrong_is_named_whatever_its_suffix_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sent"
    for content in (b"<html><script>import x</script>", b"version https://git-lfs.github.com/spec/v1\n", b""):
        path.write_bytes(content)
        with pytest.raises(UnknownFormat, match="This is"):
            detect(path, name)


def test_a_suffix_that_a_format_claims_wins_over_every_other_kind(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    path.write_bytes(npy())
    assert detect(path, "policy.onnx") == "onnx"


def test_a_named_runtime_does_not_make_a_model_of_a_file_that_is_surely_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    path.write_bytes(mat("5.0"))
    with pytest.raises(UnknownFormat, match="This is a MATLAB"):
        detect(path, "net.mat", default="onnx")
    path.write_bytes(b'{"speed": 3}')  # text may be anything
    assert detect(path, "m.json", default="onnx") == "onnx"


def test_the_advice_names_formats_that_exist_only() -> None:
    kind = file_kinds.FileKind(name="x", recognise=bool, ways={"onnx": "make ONNX", "torchscript": "trace it"})
    assert kind.refusal({"onnx": 1}) == "This is x. Make ONNX."
    assert kind.refusal({"onnx": 1, "torchscript": 2}) == "This is x. Make ONNX or trace it."
    assert kind.refusal({}) == "This is x."


def test_a_core_ml_model_is_named_where_no_format_claims_it() -> None:
    kind = file_kinds.kind_of(Sample(head=core_ml(), size=100, filename="m.mlmodel"))
    assert kind is not None and kind.name == "a Core ML model"
