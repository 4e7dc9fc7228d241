"""Kinds of file that are not a model of any format: how each is recognised, its name, and what to send instead.

`runtimes.formats` asks here when no format claims a file, so that a refusal names what was sent. Only the first bytes,
the file name and the names in a zip are read, as for formats. Libraries that detect types of files know a quarter of
these kinds (docs/decisions/0074).
"""

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from runtimes.harness.models.base import Sample
from runtimes.harness.models.elf import ElfHeader
from runtimes.harness.models.package_case import is_case
from runtimes.harness.models.scikit_learn import PICKLES, is_estimator
from runtimes.harness.models.xgboost import is_booster

#: Bytes of the inside of a gzip that are looked at; a tar has its magic bytes in the first 512.
INSIDE = 512
#: The beginning of PyTorch's files before 1.6: a pickle of a number.
TORCH_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
#: Machines of PE (Machine) and Mach-O (cputype) files.
PE_MACHINES = {0x14C: "x86", 0x1C0: "Arm", 0x8664: "x86-64", 0xAA64: "aarch64"}
MACH_MACHINES = {7: "x86", 12: "Arm", 0x01000007: "x86-64", 0x0100000C: "aarch64"}
#: First bytes of Mach-O files, and the byte order of their header.
MACH = {
    b"\xce\xfa\xed\xfe": "little",
    b"\xcf\xfa\xed\xfe": "little",
    b"\xfe\xed\xfa\xce": "big",
    b"\xfe\xed\xfa\xcf": "big",
}
#: The lowest major version of a Java class; a Mach-O file for several machines has their number in its place.
JAVA = 45

#: How a model of each format is made from what the sender of a file of another kind has.
TORCH: dict[str, str] = {
    "onnx": "export the module with `torch.onnx.export` as ONNX",
    "torch_export": "save the program of `torch.export.export` with `torch.export.save`",
    "torchscript": "save the scripted or traced module with `torch.jit.save`",
}
MATLAB: dict[str, str] = {"onnx": "export the network with MATLAB's `exportONNXNetwork` as ONNX"}
SKLEARN: dict[str, str] = {
    "scikit_learn": "save the estimator with `skops.io.dump` or `joblib.dump`",
    "onnx": "convert it with skl2onnx to ONNX",
}
OBJECTS: dict[str, str] = {
    "onnx": "export a network as ONNX (PyTorch: `torch.onnx.export`)",
    "scikit_learn": "save a fitted estimator of scikit-learn with `skops.io.dump` or `joblib.dump`",
    "python": "put the numbers into a zip with a `model.py` that loads them with numpy",
}
WEIGHTS: dict[str, str] = {
    "onnx": "export the network that these weights belong to as ONNX",
    "python": "send a zip of this file and a `model.py` that computes the actions with it",
}
CONVERTED: dict[str, str] = {"onnx": "send the ONNX model that it was made from, or convert it to ONNX"}
CODE: dict[str, str] = {
    "onnx": "export the network in it as ONNX",
    "python": "write the policy in Python, as a class `Model` with `act(self, observation)`",
    "native": "build a shared library for Linux with the functions of `windtunnel_model.h`",
    "program": "build a program for Linux that answers lines of JSON",
}
ARCHIVE: dict[str, str] = {
    "python": "send the model's file itself, or a zip with `model.py` at its top",
    "savedmodel": "send a zip of a SavedModel",
}
TEXT: dict[str, str] = {
    "python": "send Python with a class `Model`, or a zip of this file and a `model.py` that reads it"
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileKind:
    """A kind of file. ``name`` continues "This is"; ``ways`` are what to do instead, by the format that results.

    ``sure``: recognised by magic bytes or by names in a zip, not by text that may be something else. ``never``: such a
    file is not a model whatever its suffix is, because a download, a checkout or an editor made it.
    """

    name: str
    recognise: Callable[[Sample], bool]
    ways: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""
    sure: bool = True
    never: bool = False

    def refusal(self, formats: Collection[str]) -> str:
        """Return what the file is and what to do, with the ways that lead to a format of these names."""
        ways = [way for format, way in self.ways.items() if format in formats]
        sentence = self.advice or " or ".join(ways)
        return f"This is {self.name}." + (f" {sentence[0].upper()}{sentence[1:]}." if sentence else "")


def kind_of(sample: Sample) -> FileKind | None:
    """Return the kind of a file, None if it is of no known kind."""
    if sample.head.startswith((b"\x7fELF", b"MZ", *MACH, b"\xca\xfe\xba\xbe")):
        return _program(sample)
    return next((kind for kind in KINDS if kind.recognise(sample)), None)


# -- how kinds are recognised


def _begins(*magic: bytes) -> Callable[[Sample], bool]:
    return lambda sample: sample.head.startswith(magic)


def _has(*names: str) -> Callable[[Sample], bool]:
    """Recognise a zip that has all these names."""
    return lambda sample: sample.members is not None and set(names) <= set(sample.members)


def _has_below(*parts: str) -> Callable[[Sample], bool]:
    """Recognise a zip that has each part, a file or a folder, at its top or in the one folder at its top."""

    def recognise(sample: Sample) -> bool:
        names = [name for member in sample.members or () for name in (member, member.partition("/")[2])]
        return all(
            any(name == part or (part.endswith("/") and name.startswith(part)) for name in names) for part in parts
        )

    return recognise


def _any(*tests: Callable[[Sample], bool]) -> Callable[[Sample], bool]:
    return lambda sample: any(test(sample) for test in tests)


def _text(sample: Sample) -> str:
    """Return the beginning of a text without byte order mark and white space; empty if it is not text."""
    if sample.members is not None or b"\0" in sample.head:
        return ""
    return sample.head.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")


def _text_begins(*beginnings: str) -> Callable[[Sample], bool]:
    return lambda sample: _text(sample).lower().startswith(beginnings)


def _xml(element: str) -> Callable[[Sample], bool]:
    """Recognise XML whose root element, in the first bytes, is this."""

    def recognise(sample: Sample) -> bool:
        text = _text(sample)
        return text.startswith("<") and any(f"<{element}{end}" in text for end in " >\r\n\t")

    return recognise


def _unzipped(sample: Sample) -> bytes:
    """Return the first bytes of a gzip's content, as far as its head reveals them."""
    if not sample.head.startswith(b"\x1f\x8b\x08"):
        return b""
    try:
        return zlib.decompressobj(wbits=31).decompress(sample.head, INSIDE)
    except zlib.error:
        return b""


def _is_r(sample: Sample) -> bool:
    """Recognise R's serialization, which `saveRDS` and `save` compress with gzip (R Internals, section 1.8)."""
    content = _unzipped(sample) or sample.head
    return content.startswith((b"RDX2\n", b"RDX3\n", b"RDA2\n", b"RDA3\n", b"X\n\0\0\0", b"A\n2\n", b"A\n3\n"))


def _is_tar(sample: Sample) -> bool:
    return sample.head[257:262] == b"ustar" or _unzipped(sample)[257:262] == b"ustar"


def _is_safetensors(sample: Sample) -> bool:
    length = int.from_bytes(sample.head[:8], "little")
    return sample.head[8:9] == b"{" and 2 <= length <= sample.size - 8


def _is_core_ml(sample: Sample) -> bool:
    """Recognise a Model message: specificationVersion, then the description, whose first field is an input."""
    head = sample.head
    return len(head) > 5 and head[0] == 0x08 and head[1] < 32 and head[2] == 0x12 and 0x0A in head[4:7]


def _is_npz(sample: Sample) -> bool:
    return bool(sample.members) and all(name.endswith(".npy") for name in sample.members or ())


def _is_notebook(sample: Sample) -> bool:
    text = _text(sample)
    return text.startswith("{") and ('"cells"' in text[:40] or (sample.suffix == ".ipynb" and '"nbformat' in text))


def _is_caffe(sample: Sample) -> bool:
    text = _text(sample)
    return sample.suffix in {".caffemodel", ".prototxt"} or ("layer {" in text and "bottom:" in text)


def _is_json(sample: Sample) -> bool:
    written = sample.suffix == ".json" or _text(sample).startswith(("{", "["))
    return written and not is_booster(sample) and not is_case(sample)


def _is_yaml(sample: Sample) -> bool:
    return _text(sample).startswith(("%YAML", "---\n", "---\r\n")) or sample.suffix in {".yml", ".yaml"}


def _program(sample: Sample) -> FileKind | None:
    """Name a compiled program or library with the machine that it is for; not a shared library for Linux, a model."""
    head = sample.head
    if (elf := ElfHeader.of(head)) is not None:
        if elf.is_library or elf.is_program:
            return None
        return FileKind(name=f"an object file for Linux on {elf.machine_name} (ELF)", recognise=bool, ways=CODE)
    if head.startswith(b"MZ"):
        start = _number(head, 60, 4, "little")
        if head[start : start + 4] != b"PE\0\0":
            return None
        library = _number(head, start + 22, 2, "little") & 0x2000
        machine = PE_MACHINES.get(_number(head, start + 4, 2, "little"), "another machine")
        return FileKind(
            name=f"a {'DLL' if library else 'program'} for Windows on {machine} (PE)", recognise=bool, ways=CODE
        )
    if head.startswith(b"\xca\xfe\xba\xbe"):
        if _number(head, 4, 4, "big") >= JAVA:
            return FileKind(name="a Java class", recognise=bool, ways=CODE)
        return FileKind(name="a program or library for macOS on several machines (Mach-O)", recognise=bool, ways=CODE)
    machine = MACH_MACHINES.get(_number(head, 4, 4, MACH[head[:4]]), "another machine")
    return FileKind(name=f"a program or library for macOS on {machine} (Mach-O)", recognise=bool, ways=CODE)


def _number(data: bytes, offset: int, size: int, order: str) -> int:
    return int.from_bytes(data[offset : offset + size], "little" if order == "little" else "big")


# -- the table

_TORCH_ZIP = _has_below("data.pkl")


def _compressed(name: str, recognise: Callable[[Sample], bool], program: str) -> FileKind:
    """Return a kind of file with one file in it, which this program unpacks."""
    return FileKind(name=name, recognise=recognise, advice=f"unpack it with `{program}`, then send what is in it")


#: Every kind but programs; the first that recognises a file names it, so special kinds stand before general ones.
KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="an empty file", recognise=lambda sample: sample.size == 0, advice="check the file's path", never=True
    ),
    FileKind(
        name="a file whose beginning is zero bytes: a copy or a download of it did not end",
        recognise=lambda sample: len(sample.head) >= 512 and not any(sample.head),
        advice="send the file again from where it is whole",
        never=True,
    ),
    FileKind(
        name="a Git LFS pointer, not the file itself",
        recognise=_text_begins("version https://git-lfs.github.com/spec/"),
        advice="run `git lfs pull`, then send the file again",
        never=True,
    ),
    FileKind(
        name="a web page: the download was not the file",
        recognise=_text_begins("<!doctype html", "<html"),
        advice="open the address in a browser and download the file itself (on GitHub and Hugging Face, the raw file)",
        never=True,
    ),
    # MATLAB and Simulink: "MAT-File Format" of MathWorks; version 7.3 is HDF5 behind the same header
    FileKind(name="a MATLAB .mat file of version 7.3 (HDF5)", recognise=_begins(b"MATLAB 7.3 MAT-file"), ways=MATLAB),
    FileKind(name="a MATLAB .mat file", recognise=_begins(b"MATLAB 5.0 MAT-file"), ways=MATLAB),
    FileKind(name="a Simulink model (.slx)", recognise=_has_below("simulink/"), ways=MATLAB | CODE),
    FileKind(
        name="a Simulink model (.mdl)",
        recognise=_text_begins("# mathworks opc text package", "model {"),
        ways=MATLAB | CODE,
        sure=False,
    ),
    # PyTorch
    FileKind(
        name="a PyTorch state_dict or pickled module (.pt), which has no graph",
        recognise=_any(_TORCH_ZIP, _begins(TORCH_LEGACY)),
        ways=TORCH,
    ),
    FileKind(name="a safetensors file: weights without a graph", recognise=_is_safetensors, ways=WEIGHTS),
    FileKind(name="a GGUF file of a language model", recognise=_begins(b"GGUF"), ways={"onnx": CODE["onnx"]}),
    # pickles and tables
    FileKind(name="a Python pickle", recognise=lambda s: _begins(*PICKLES)(s) and not is_estimator(s), ways=OBJECTS),
    FileKind(name="a NumPy array (.npy)", recognise=_begins(b"\x93NUMPY"), ways=WEIGHTS),
    FileKind(name="an archive of NumPy arrays (.npz)", recognise=_is_npz, ways=WEIGHTS),
    # other engines; TensorRT's magic bytes are those that trtexec writes
    FileKind(
        name="a Core ML package",
        recognise=_any(_has_below("com.apple.CoreML/"), _has_below("Data/com.apple.CoreML/")),
        ways=CONVERTED,
    ),
    FileKind(name="a Core ML model", recognise=_is_core_ml, ways=CONVERTED, sure=False),
    FileKind(
        name="a TensorRT engine, which is for one kind of GPU", recognise=_begins(b"ftrt", b"ptrt"), ways=CONVERTED
    ),
    FileKind(name="the graph of an OpenVINO model, without its weights (.bin)", recognise=_xml("net"), ways=CONVERTED),
    FileKind(name="a PMML model", recognise=_xml("PMML"), ways=SKLEARN),
    FileKind(name="a Caffe model", recognise=_is_caffe, ways=CONVERTED, sure=False),
    FileKind(name="an R object (.rds, .RData)", recognise=_is_r, ways=CODE),
    # programs
    FileKind(name="a Java archive", recognise=_has("META-INF/MANIFEST.MF"), ways=CODE),
    # archives
    FileKind(name="a tar archive", recognise=_is_tar, ways=ARCHIVE),
    _compressed("a gzip file", lambda sample: _begins(b"\x1f\x8b")(sample) and not is_estimator(sample), "gunzip"),
    FileKind(name="a 7z archive", recognise=_begins(b"7z\xbc\xaf\x27\x1c"), ways=ARCHIVE),
    FileKind(name="a RAR archive", recognise=_begins(b"Rar!\x1a\x07"), ways=ARCHIVE),
    _compressed("an xz file", _begins(b"\xfd7zXZ\0"), "unxz"),
    _compressed("a bzip2 file", _begins(b"BZh"), "bunzip2"),
    _compressed("a Zstandard file", _begins(b"\x28\xb5\x2f\xfd"), "unzstd"),
    # documents
    FileKind(name="a PDF document", recognise=_begins(b"%PDF-"), advice="send the model's file", never=True),
    FileKind(name="a PNG picture", recognise=_begins(b"\x89PNG\r\n\x1a\n"), advice="send the model's file", never=True),
    FileKind(name="a JPEG picture", recognise=_begins(b"\xff\xd8\xff"), advice="send the model's file", never=True),
    FileKind(
        name="a Jupyter notebook",
        recognise=_is_notebook,
        ways={"python": "export it as a script (`jupyter nbconvert --to script`) with a class `Model` that has `act`"},
        never=True,
    ),
    FileKind(name="JSON", recognise=_is_json, ways=TEXT, sure=False),
    FileKind(name="YAML", recognise=_is_yaml, ways=TEXT, sure=False),
)
