"""Tiny models, action = scale * observation + offset, in every format, written without the formats' libraries."""

import functools
import struct
import subprocess
import sys

FLOAT, BOOL = 1, 9


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


def onnx(
    width: int = 4,
    scale: float = 2.0,
    offset: float = 1.0,
    *,
    batch: int | None = None,
    ir_version: int = 8,
    opset: int = 17,
    domains: dict[str, int] | None = None,
) -> bytes:
    """Return an ONNX model with a free batch axis, or a fixed one; ``domains``: opsets besides ONNX's own."""
    graph = (
        _field(1, _node("Mul", ["observation", "scale"], "scaled"))
        + _field(1, _node("Add", ["scaled", "offset"], "action"))
        + _field(2, "line")
        + _field(5, _constant("scale", scale))
        + _field(5, _constant("offset", offset))
        + _field(11, _value("observation", width, batch))
        + _field(12, _value("action", width, batch))
    )
    others = b"".join(_field(8, _field(1, domain) + _field(2, version)) for domain, version in (domains or {}).items())
    return _field(1, ir_version) + _field(2, "tests") + _field(7, graph) + _field(8, _field(2, opset)) + others


def onnx_of(kind: str, inputs: list[str]) -> bytes:
    """Return an ONNX model of one node, with the observation as its first input."""
    graph = (
        _field(1, _node(kind, inputs, "action"))
        + _field(2, "node")
        + b"".join(_field(11, _value(name, 4, None)) for name in inputs)
        + _field(12, _value("action", 4, None))
    )
    return _field(1, 8) + _field(2, "tests") + _field(7, graph) + _field(8, _field(2, 17))


def onnx_dropout() -> bytes:
    """Return an ONNX model of a Dropout in training mode, without a seed."""
    training = _field(2, BOOL) + _field(8, "training") + _field(9, b"\x01")
    graph = (
        _field(1, _node("Dropout", ["observation", "ratio", "training"], "action"))
        + _field(2, "node")
        + _field(5, _field(2, FLOAT) + _field(8, "ratio") + _field(9, struct.pack("<f", 0.5)))
        + _field(5, training)
        + _field(11, _value("observation", 4, None))
        + _field(12, _value("action", 4, None))
    )
    return _field(1, 8) + _field(2, "tests") + _field(7, graph) + _field(8, _field(2, 17))


TFLITE_COMMON = """
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
"""
TFLITE = (
    TFLITE_COMMON
    + """
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
)
#: A counter in a resource variable, or random numbers without a seed.
STATEFUL_TFLITE = (
    TFLITE_COMMON
    + """
codes, options = s.BuiltinOperator, s.BuiltinOptions
def resource():
    o = s.VarHandleOptionsT()
    o.container, o.sharedName = "", "count"
    return o
graph = s.SubGraphT()
shape = tensor("shape", [2], 2)
shape.type = s.TensorType.INT32
handle = tensor("handle", [1], 0)
handle.type, handle.shapeSignature = s.TensorType.RESOURCE, None
graph.tensors = [tensor("observation", [1, width], 0), tensor("one", [1], 1), shape, handle,
                 tensor("read", [1], 0), tensor("counted", [1], 0), tensor("drawn", [1, width], 0),
                 tensor("action", [1, width], 0)]
for item in graph.tensors[4:6]:
    item.shapeSignature = None
graph.inputs, graph.outputs = [0], [7]
model = s.ModelT()
if sys.argv[5] == "counter":
    kinds = [codes.VAR_HANDLE, codes.READ_VARIABLE, codes.ADD, codes.ASSIGN_VARIABLE]
    graph.operators = [operator(0, [], [3], options.VarHandleOptions, resource()),
                       operator(1, [3], [4], options.ReadVariableOptions, s.ReadVariableOptionsT()),
                       operator(2, [4, 1], [5], options.AddOptions, s.AddOptionsT()),
                       operator(3, [3, 5], [], options.AssignVariableOptions, s.AssignVariableOptionsT()),
                       operator(2, [0, 5], [7], options.AddOptions, s.AddOptionsT())]
    # Run once: the variable begins with 1.
    first = s.SubGraphT()
    first.tensors = [graph.tensors[1], handle]
    first.inputs, first.outputs = [], []
    first.operators = [operator(0, [], [1], options.VarHandleOptions, resource()),
                       operator(3, [1, 0], [], options.AssignVariableOptions, s.AssignVariableOptionsT())]
    once = s.CallOnceOptionsT()
    once.initSubgraphIndex = 1
    kinds.append(codes.CALL_ONCE)
    graph.operators.insert(0, operator(4, [], [], options.CallOnceOptions, once))
    model.subgraphs = [graph, first]
elif sys.argv[5] in ("cycle", "constant", "variable"):
    # `kept` is read by the first operator and written by the last: memory, or a constant, that the next call reads.
    kept = tensor("kept", [1, width], 3 if sys.argv[5] == "constant" else 0)
    kept.isVariable = sys.argv[5] == "variable"
    graph.tensors = [tensor("observation", [1, width], 0), kept, tensor("sum", [1, width], 0),
                     tensor("action", [1, width], 0)]
    graph.inputs, graph.outputs = [0], [3]
    kinds = [codes.ADD]
    graph.operators = [operator(0, [1, 0], [2], options.AddOptions, s.AddOptionsT()),
                       operator(0, [2, 0], [3], options.AddOptions, s.AddOptionsT()),
                       operator(0, [2, 0], [1], options.AddOptions, s.AddOptionsT())]
    model.subgraphs = [graph]
else:
    kinds = [codes.RANDOM_UNIFORM, codes.ADD]
    graph.operators = [operator(0, [2], [6], options.RandomOptions, s.RandomOptionsT()),
                       operator(1, [0, 6], [7], options.AddOptions, s.AddOptionsT())]
    model.subgraphs = [graph]
model.version, model.operatorCodes = VERSION, [code(kind) for kind in kinds]
numbers = buffer([])
numbers.data = list(struct.pack("<2i", 1, width))
model.buffers = [buffer([]), buffer([1.0]), numbers, buffer([0.0] * width)]
for item in model.operatorCodes:
    item.deprecatedBuiltinCode = min(item.builtinCode, 127)
builder = flatbuffers.Builder(1024)
builder.Finish(model.Pack(builder), b"TFL3")
sys.stdout.buffer.write(bytes(builder.Output()))
"""
)


@functools.cache
def tflite(site: str, width: int = 4, scale: float = 2.0, offset: float = 1.0) -> bytes:
    """Return a TensorFlow Lite model, written with the schema of LiteRT's environment."""
    command = [sys.executable, "-S", "-c", TFLITE, site, str(width), str(scale), str(offset)]
    return subprocess.run(command, check=True, capture_output=True).stdout


@functools.cache
def stateful_tflite(site: str, kind: str) -> bytes:
    """Return a TensorFlow Lite model that counts its calls ("counter"), draws random numbers ("draws"), or reads what
    its last operator has written in the last call ("cycle", "constant", and "variable", which a reset clears).
    """
    command = [sys.executable, "-S", "-c", STATEFUL_TFLITE, site, "4", "0", "0", kind]
    return subprocess.run(command, check=True, capture_output=True).stdout
