"""Model format detection from bytes, and unsafe zips, which are refused from their central directory alone."""

import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import BadArchive, UnknownFormat
from runtimes import archives
from runtimes.formats import detect
from tests.contracts import graphs


def zip_of(*names: str, content: bytes = b"x", method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for archives that contain a name twice
        with zipfile.ZipFile(file, "w", method) as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def zip_with_link() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo("model.py")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    return file.getvalue()


def zip_with_shared_data() -> bytes:
    """Return a zip whose second entry begins where the first entry begins."""
    raw = bytearray(zip_of("model.py", "weights"))
    second = raw.rindex(b"PK\x01\x02")
    struct.pack_into("<I", raw, second + 42, 0)
    return bytes(raw)


def zip_with_huge_directory() -> bytes:
    """Return a zip whose Zip64 end record announces 10**12 entries."""
    raw = bytearray(zip_of("model.py"))
    end_record = raw.rindex(b"PK\x05\x06")
    raw[end_record:end_record] = struct.pack(
        "<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**12, 10**12, 46, 0
    ) + struct.pack("<4sIQI", b"PK\x06\x07", 0, end_record, 1)
    struct.pack_into("<HH", raw, len(raw) - 14, 0xFFFF, 0xFFFF)
    return bytes(raw)


UNSAFE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a name that leaves the folder": (lambda: zip_of("model.py", "../evil.py"), "leads out of its folder"),
    "a name with .. in its middle": (lambda: zip_of("model.py", "a/../../b"), "leads out of its folder"),
    "an absolute name": (lambda: zip_of("/etc/cron.d/x"), "leads out of its folder"),
    "a name with a backslash": (lambda: zip_of("model.py", "..\\evil"), "leads out of its folder"),
    "a drive letter": (lambda: zip_of("c:/evil"), "leads out of its folder"),
    "an empty part of a name": (lambda: zip_of("a//b"), "leads out of its folder"),
    "a control character": (lambda: zip_of("model.py", "a\x1bb"), "control characters"),
    "a long name": (lambda: zip_of("model.py", "a" * 300), "too long"),
    "a link": (zip_with_link, "is a link or a device"),
    "a name that occurs twice": (lambda: zip_of("model.py", "Model.py"), "has both"),
    "a file that is also a folder": (lambda: zip_of("model.py", "model.py/x"), "as a file"),
    "a decompression bomb": (
        lambda: zip_of("model.py", content=bytes(32 << 20), method=zipfile.ZIP_DEFLATED),
        "more than 200 times its size",
    ),
    "data shared by two entries": (zip_with_shared_data, "shares its data"),
    "too many entries": (zip_with_huge_directory, "1,000,000,000,000 entries"),
    "a truncated archive": (lambda: zip_of("model.py", "weights")[:-30], "no directory at its end"),
    "a damaged directory": (lambda: zip_of("model.py").replace(b"PK\x01\x02", b"PK\x01\x03"), "damaged"),
}


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_an_unsafe_zip_is_refused_with_the_reason(unsafe: str, tmp_path: Path) -> None:
    build, message = UNSAFE[unsafe]
    path = tmp_path / "model.zip"
    path.write_bytes(build())
    with pytest.raises(BadArchive, match=message):
        detect(path, "model.zip")


def detected_format(tmp_path: Path, content: bytes, name: str | None = None) -> str:
    path = tmp_path / "model"
    path.write_bytes(content)
    return detect(path, name)


def test_every_format_is_detected_from_its_bytes_for_every_file_name(tmp_path: Path) -> None:
    for name in (None, "model", "model.bin", "model.tflite"):
        assert detected_format(tmp_path, graphs.onnx(), name) == "onnx"
        assert detected_format(tmp_path, zip_of("model.py", "weights.npz"), name) == "python"
        assert detected_format(tmp_path, zip_of("saved/saved_model.pb", "saved/variables/x"), name) == "savedmodel"
        assert detected_format(tmp_path, zip_of("config.json", "metadata.json", "model.weights.h5"), name) == "keras"
        assert detected_format(tmp_path, b"\x1c\0\0\0TFL3" + bytes(100), name) == "tflite"
    assert detected_format(tmp_path, graphs.python(), "policy.py") == "python"
    assert detected_format(tmp_path, graphs.python()) == "python"


@pytest.mark.parametrize(
    "content", [b"\x7fELF" + bytes(100), b"\x89PNG\r\n\x1a\n", zip_of("readme"), b"\0", b"\xff" * 2000]
)
def test_a_file_of_no_known_format_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnknownFormat):
        detected_format(tmp_path, content)


def test_a_zip_with_a_python_model_and_a_graph_that_it_uses_is_of_format_python(tmp_path: Path) -> None:
    assert detected_format(tmp_path, zip_of("model.py", "graph/saved_model.pb")) == "python"


def test_a_zip_with_a_graph_at_its_top_is_of_format_onnx(tmp_path: Path) -> None:
    assert detected_format(tmp_path, zip_of("policy.onnx", "policy.onnx.data")) == "onnx"
    assert detected_format(tmp_path, zip_of("model.py", "policy.onnx")) == "python"


#: Names that make a zip a model of a format, and that are at the top of the archive, or in its only folder.
ARCHIVES = {
    "python": ("model.py", "weights.npz"),
    "onnx": ("policy.onnx", "policy.onnx.data"),
    "native": ("model.so", "table.bin"),
    "program": ("program.json", "bin/policy"),
    "fmu": ("modelDescription.xml", "binaries/x86_64-linux/model.so"),
    "savedmodel": ("saved_model.pb", "variables/variables.index"),
    "keras": ("config.json", "metadata.json", "model.weights.h5"),
    "scikit_learn": ("schema.json", "1.npy"),
    "stable_baselines3": ("data", "policy.pth", "pytorch_variables.pth"),
    "torchscript": ("archive/data.pkl", "archive/code/a.py", "archive/constants.pkl"),
}


@pytest.mark.parametrize("format", ARCHIVES)
def test_the_one_folder_of_a_zip_is_entered_as_macos_packs_it(format: str, tmp_path: Path) -> None:
    names = ARCHIVES[format]
    plain = zip_of(*names)
    folder = "" if format == "torchscript" else "my policy/"
    compressed = zip_of(
        *([folder] if folder else ()),
        *(folder + name for name in names),
        f"{folder}.DS_Store",
        f"__MACOSX/{folder}._{names[0].rpartition('/')[2]}",
    )
    for content in (plain, compressed):
        assert detected_format(tmp_path, content, "policy.zip") == format


def test_a_folder_beside_other_files_is_not_entered(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        detected_format(tmp_path, zip_of("mine/policy.onnx", "readme"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zip_of("mine/model.py", "weights.npz"), "`mine/model.py` lies in a folder of the archive, beside other files"),
        (
            zip_of("exported/policy.onnx", "readme"),
            "python has `model.py` at its top; savedmodel has a `saved_model.pb`",
        ),
        (b"\x01\x02\x03\x04" + bytes(100), "cannot be determined from its bytes"),
    ],
)
def test_the_error_for_an_unknown_format_names_the_missing_files(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat) as error:
        detected_format(tmp_path, content)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["car_street.onnx", "car_street.tflite", "car_street.keras", "idm.py"])
def test_the_formats_of_the_shipped_models_are_detected(name: str, tmp_path: Path) -> None:
    path = Path("runtimes/harness/simulators/sumo/baselines") / name
    assert detect(path) == {".py": "python"}.get(path.suffix, path.suffix[1:])


def test_a_zip64_directory_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("model.py", "w", force_zip64=True) as file:
        file.write(b"class Model: ...")
    assert archives.names(path) == ["model.py"]
