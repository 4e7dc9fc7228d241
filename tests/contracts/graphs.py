"""Tiny models, action = scale * observation + offset, in every format, written without the formats' libraries."""

import functools
import struct
import subprocess
import sys

FLOAT = 1


def python(width: int = 4, scale: float = 2.0, offset: float = 1.0) -> bytes:
    """Return the source of a Python model."""
    return (
        "class Model:\n"
        "    def act(self, observation):\n"
        f"        assert observation.shape == ({width},), observation.shape\n"
        f"        return {scale} * observation + {offset}\n"
    ).encode()


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def _field(number: int, value: int | bytes | str) -> bytes:
    """Encode one field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _value(name: str, width: int, batch: int | None) -> bytes:
    first = _field(2, "n") if batch is None else _field(1, batch)
    shape = _field(1, first) + _field(1, _field(1, width))
    return _field(1, name) + _field(2, _field(1, _field(1, FLOAT) + _field(2, shape)))


def _constant(name: str, value: float) -> bytes:
    return _field(1, 1) + _field(2, FLOAT) + _field(8, name) + _field(9, struct.pack("<f", value))


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    return b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(4, kind)


def onnx(width: int = 4, scale: float = 2.0, offset: float = 1.0, *, batch: int | None = None) -> bytes:
    """Return an ONNX model with a free batch axis, or a fixed one."""
    graph = (
        _field(1, _node("Mul", ["observation", "scale"], "scaled"))
        + _field(1, _node("Add", ["scaled", "offset"], "action"))
        + _field(2, "line")
        + _field(5, _constant("scale", scale))
        + _field(5, _constant("offset", offset))
        + _field(11, _value("observation", width, batch))
        + _field(12, _value("action", width, batch))
    )
    return _field(1, 8) + _field(2, "tests") + _field(7, graph) + _field(8, _field(2, 17))


def onnx_of(kind: str, inputs: list[str]) -> bytes:
    """Return an ONNX model of one node, with the observation as its first input."""
    graph = (
        _field(1, _node(kind, inputs, "action"))
        + _field(2, "node")
        + b"".join(_field(11, _value(name, 4, None)) for name in inputs)
        + _field(12, _value("action", 4, None))
    )
    return _field(1, 8) + _field(2, "tests") + _field(7, graph) + _field(8, _field(2, 17))


TFLITE = """
import importlib.util, struct, sys
site, width, scale, offset = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
sys.path.insert(0, site)
spec = importlib.util.spec_from_file_location("schema", site + "/ai_edge_litert/schema_py_generated.py")
s = importlib.util.module_from_spec(spec)
spec.loader.exec_module(s)
import flatbuffers
MUL, ADD, VERSION = 18, 0, 3
def tensor(name, shape, buffer):
    t = s.TensorT()
    t.name, t.shape, t.buffer, t.type = name, shape, buffer, 0
    t.shapeSignature = [-1, *shape[1:]] if buffer == 0 else None
    return t
def buffer(values):
    b = s.BufferT()
    b.data = list(struct.pack("<%df" % len(values), *values)) if values else None
    return b
def code(number):
    c = s.OperatorCodeT()
    c.builtinCode = c.deprecatedBuiltinCode = number
    c.version = 1
    return c
def operator(index, inputs, outputs, kind, options):
    o = s.OperatorT()
    o.opcodeIndex, o.inputs, o.outputs, o.builtinOptionsType, o.builtinOptions = index, inputs, outputs, kind, options
    return o
graph = s.SubGraphT()
graph.tensors = [tensor("observation", [1, width], 0), tensor("scale", [1], 1), tensor("scaled", [1, width], 0),
                 tensor("offset", [1], 2), tensor("action", [1, width], 0)]
graph.inputs, graph.outputs = [0], [4]
graph.operators = [operator(0, [0, 1], [2], s.BuiltinOptions.MulOptions, s.MulOptionsT()),
                   operator(1, [2, 3], [4], s.BuiltinOptions.AddOptions, s.AddOptionsT())]
model = s.ModelT()
model.version, model.operatorCodes, model.subgraphs = VERSION, [code(MUL), code(ADD)], [graph]
model.buffers = [buffer([]), buffer([scale]), buffer([offset])]
builder = flatbuffers.Builder(1024)
builder.Finish(model.Pack(builder), b"TFL3")
sys.stdout.buffer.write(bytes(builder.Output()))
"""


@functools.cache
def tflite(site: str, width: int = 4, scale: float = 2.0, offset: float = 1.0) -> bytes:
    """Return a TensorFlow Lite model, written with the schema of LiteRT's environment."""
    command = [sys.executable, "-S", "-c", TFLITE, site, str(width), str(scale), str(offset)]
    return subprocess.run(command, check=True, capture_output=True).stdout
