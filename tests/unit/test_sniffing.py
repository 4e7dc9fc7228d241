"""A model's format is detected from its bytes; a zip that is not to be unpacked is refused by its directory alone."""

import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from errors import BadArchive, UnknownFormat
from runtimes import archives
from runtimes.formats import detect
from tests.contracts import graphs


def packed(*names: str, content: bytes = b"x", method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names given twice are wanted here
        with zipfile.ZipFile(file, "w", method) as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def link() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo("model.py")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    return file.getvalue()


def overlapping() -> bytes:
    """Let the second entry begin where the first does."""
    raw = bytearray(packed("model.py", "weights"))
    second = raw.rindex(b"PK\x01\x02")
    struct.pack_into("<I", raw, second + 42, 0)
    return bytes(raw)


def many() -> bytes:
    """Announce more entries than anybody has."""
    raw = bytearray(packed("model.py"))
    at = raw.rindex(b"PK\x05\x06")
    raw[at:at] = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**12, 10**12, 46, 0) + struct.pack(
        "<4sIQI", b"PK\x06\x07", 0, at, 1
    )
    struct.pack_into("<HH", raw, len(raw) - 14, 0xFFFF, 0xFFFF)
    return bytes(raw)


UNSAFE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a name that leads upwards": (lambda: packed("model.py", "../evil.py"), "leads out of its folder"),
    "a name that leads upwards inside": (lambda: packed("model.py", "a/../../b"), "leads out of its folder"),
    "an absolute name": (lambda: packed("/etc/cron.d/x"), "leads out of its folder"),
    "a name for Windows": (lambda: packed("model.py", "..\\evil"), "leads out of its folder"),
    "a drive": (lambda: packed("c:/evil"), "leads out of its folder"),
    "an empty part": (lambda: packed("a//b"), "leads out of its folder"),
    "a control character": (lambda: packed("model.py", "a\x1bb"), "control characters"),
    "a long name": (lambda: packed("model.py", "a" * 300), "too long"),
    "a link": (link, "is a link or a device"),
    "a name given twice": (lambda: packed("model.py", "Model.py"), "has both"),
    "a file that is a folder, too": (lambda: packed("model.py", "model.py/x"), "as a file"),
    "a bomb": (
        lambda: packed("model.py", content=bytes(32 << 20), method=zipfile.ZIP_DEFLATED),
        "more than 200 times its size",
    ),
    "data that is shared": (overlapping, "shares its data"),
    "too many entries": (many, "1,000,000,000,000 entries"),
    "a cut": (lambda: packed("model.py", "weights")[:-30], "no directory at its end"),
    "a damaged directory": (lambda: packed("model.py").replace(b"PK\x01\x02", b"PK\x01\x03"), "damaged"),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_a_zip_that_is_not_to_be_unpacked_is_refused_with_the_reason(what: str, tmp_path: Path) -> None:
    make, words = UNSAFE[what]
    path = tmp_path / "model.zip"
    path.write_bytes(make())
    with pytest.raises(BadArchive, match=words):
        detect(path, "model.zip")


def told(tmp_path: Path, content: bytes, name: str | None = None) -> str:
    path = tmp_path / "model"
    path.write_bytes(content)
    return detect(path, name)


def test_every_format_is_told_by_its_bytes_whatever_the_file_is_called(tmp_path: Path) -> None:
    for name in (None, "model", "model.bin", "model.tflite"):
        assert told(tmp_path, graphs.onnx(), name) == "onnx"
        assert told(tmp_path, packed("model.py", "weights.npz"), name) == "python"
        assert told(tmp_path, packed("saved/saved_model.pb", "saved/variables/x"), name) == "savedmodel"
        assert told(tmp_path, packed("config.json", "metadata.json", "model.weights.h5"), name) == "keras"
        assert told(tmp_path, b"\x1c\0\0\0TFL3" + bytes(100), name) == "tflite"
    assert told(tmp_path, graphs.python(), "policy.py") == "python"
    assert told(tmp_path, graphs.python()) == "python"


@pytest.mark.parametrize(
    "content", [b"\x7fELF" + bytes(100), b"\x89PNG\r\n\x1a\n", packed("readme"), b"\0", b"\xff" * 2000]
)
def test_what_is_none_of_them_is_none_of_them(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnknownFormat):
        told(tmp_path, content)


def test_a_zip_with_a_model_of_the_owners_and_a_graph_it_uses_is_the_owners(tmp_path: Path) -> None:
    assert told(tmp_path, packed("model.py", "graph/saved_model.pb")) == "python"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (packed("mine/model.py", "mine/weights.npz"), "`mine/model.py` lies in a folder"),
        (packed("policy.onnx"), "python has `model.py` at its top; savedmodel has a `saved_model.pb`"),
        (b"\x7fELF" + bytes(100), "cannot be determined from its bytes"),
    ],
)
def test_what_is_none_of_them_is_told_what_is_missing(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat) as refusal:
        told(tmp_path, content)
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", ["car_street.onnx", "car_street.tflite", "car_street.keras", "idm.py"])
def test_the_shipped_models_are_told(name: str, tmp_path: Path) -> None:
    path = Path("runtimes/baselines/car_street") / name
    assert detect(path) == {".py": "python"}.get(path.suffix, path.suffix[1:])


def test_a_directory_with_large_sizes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("model.py", "w", force_zip64=True) as file:
        file.write(b"class Model: ...")
    assert archives.names(path) == ["model.py"]
