"""Models that are zips themselves: packed again with their folder, by a file manager, they are what they were."""

import io
import zipfile

import pytest

from runtimes.formats import formats
from runtimes.harness.models.wrapped_zip import unwrapped

KERAS = {"config.json": b"{}", "metadata.json": b"{}", "model.weights.h5": b"weights" * 100}
TORCHSCRIPT = {"policy/data.pkl": b"x", "policy/constants.pkl": b"y", "policy/code/a.py": b"z", "policy/version": b"3"}
AGENT = {"data": b"{}", "policy.pth": b"PK", "pytorch_variables.pth": b"PK"}


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def compressed(files: dict[str, bytes], folder: str) -> bytes:
    """Pack as macOS does."""
    inside = {f"{folder}{name}": content for name, content in files.items()}
    return zip_of(
        {**({folder: b""} if folder else {}), **inside, f"__MACOSX/{folder}._x": b"x", f"{folder}.DS_Store": b""}
    )


@pytest.mark.parametrize(
    ("format", "files", "folder"),
    [
        ("keras", KERAS, "policy/"),
        ("stable_baselines3", AGENT, "agent/"),
        ("scikit_learn", {"schema.json": b"{}", "1.npy": b"x"}, "estimator/"),
        ("torchscript", TORCHSCRIPT, ""),
        ("torchscript", TORCHSCRIPT, "downloaded/"),
    ],
)
def test_a_zip_that_was_unpacked_and_compressed_again_has_the_files_that_the_library_reads(
    format: str, files: dict[str, bytes], folder: str
) -> None:
    source = unwrapped(compressed(files, folder), formats()[format])
    with zipfile.ZipFile(io.BytesIO(source)) as archive:
        assert {name: archive.read(name) for name in archive.namelist() if name in files} == files
        assert not [name for name in archive.namelist() if "__MACOSX" in name]
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize("source", [b"", b"PK\x03\x04 and nothing else", b"\x89HDF\r\n", zip_of({"notes/readme": b""})])
def test_what_is_not_such_a_zip_stays_what_it_is(source: bytes) -> None:
    assert unwrapped(source, formats()["keras"]) is source


def test_the_zip_of_the_library_itself_is_not_packed_again() -> None:
    source = zip_of(KERAS)
    assert unwrapped(source, formats()["keras"]) is source
