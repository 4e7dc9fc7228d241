"""ONNX format: a graph in a file or an archive, run by onnxruntime on one thread, with recurrent state fed back."""

import copy
import mmap
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    NoAction,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
    importer,
)
from .recurrence import METADATA, RecurrentValues, declared_states
from .signature import described, signature_of
from .tensors import Tensor, check_input, check_output, input_shape

if TYPE_CHECKING:
    from .base import Array

TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{
        f"tensor({name})": name
        for name in ("float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    },
}
#: Parts of the names of random operators. A session creates their generators, and seeds those of nodes without a seed;
#: Dropout, which is random in training mode, draws from a generator of the process. Nothing else outlives a run: the
#: operators of ONNX are functions, and a loop's state ends with the run.
RANDOM_OPERATORS = (b"Random", b"Multinomial", b"Bernoulli", b"Dropout")
#: The most bytes of one protobuf message.
MAX_SIZE = (2 << 30) - 1
#: The newest IR version and opset, and the oldest opset, that the environment's onnxruntime runs.
NEWEST_IR, NEWEST_OPSET, OLDEST_OPSET = 13, 26, 7
SUFFIXES = (".onnx",)
#: The graph of an archive with several graphs at its top.
GRAPH = "model.onnx"
#: What onnxruntime says about versions that it does not know, and about weights that are in another file.
NEWER_IR = re.compile(r"Unsupported model IR version: (?P<found>\d+), max supported IR version: (?P<newest>\d+)")
NEWER_OPSET = re.compile(
    r"Opset (?P<found>\d+) is under development.*support for domain (?P<domain>\S+) is till opset (?P<newest>\d+)"
)
EXTERNAL_DATA = re.compile(r"external (data|initializer)|model_path must not be empty", re.IGNORECASE)
#: Keys (field number and wire type) of the fields that follow ir_version in a ModelProto (onnx.proto3).
KEYS = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42})


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a ModelProto, and an archive with one at its top.

    A ModelProto begins with ir_version (field 1, a small varint), followed by another field.
    """
    if sample.members is not None:
        return Recognition(Certainty.CONTENT) if any(_is_graph(name) for name in sample.members) else None
    head = sample.head
    # IR version 1 precedes the first release; a SavedModel's message begins like it.
    starts = len(head) > 8 and head[0] == 0x08 and 2 <= head[1] <= 32 and head[2] in KEYS
    return Recognition(Certainty.CONTENT) if starts else None


def _is_graph(name: str) -> bool:
    """Whether a file of an archive is a graph at its top."""
    return "/" not in name and name.lower().endswith(SUFFIXES)


def load(assignment: Assignment) -> LoadedModel:
    """Create a session of the graph, find observation, action and state, and try it with zeros."""
    if assignment.files is None:
        return OnnxModel(assignment.source, _draws(assignment.source), assignment)
    graph = _graph_of(assignment.files)
    try:
        with open(graph, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            draws = _draws(content)
    except ValueError:
        raise Misfit(f"the archive's `{graph.name}` is empty") from None
    return OnnxModel(str(graph), draws, assignment)


def _graph_of(folder: Path) -> Path:
    """Return the graph of an archive: its only one, or `model.onnx`. The other files may be its weights."""
    graphs = sorted(path for path in folder.iterdir() if _is_graph(path.name))
    if len(graphs) > 1:
        named = [path for path in graphs if path.name == GRAPH]
        if not named:
            names = ", ".join(path.name for path in graphs[:10])
            raise Misfit(f"the archive has {len(graphs)} graphs at its top ({names}); name the one to run `{GRAPH}`")
        graphs = named
    if not graphs:
        raise Misfit("the archive has no .onnx file at its top; pack the folder that it lies in")
    return graphs[0]


def _draws(content: bytes | mmap.mmap) -> bool:
    """Whether a graph may draw random numbers."""
    return any(content.find(name) >= 0 for name in RANDOM_OPERATORS)


def _session(source: bytes | str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Unreadable(
            f"onnxruntime {ort.__version__} does not load the model: {loading_error(str(error))}"
        ) from None


def loading_error(text: str) -> str:
    """Return onnxruntime's error for people, with what to export instead if the cause is known."""
    if found := NEWER_IR.search(text):
        return (
            f"its IR version is {found['found']}; at most {found['newest']} is supported. Write it with"
            f" onnx.helper.make_model(graph, ir_version={found['newest']}), or set model.ir_version ="
            f" {found['newest']} and save it again"
        )
    if found := NEWER_OPSET.search(text):
        domain, newest = found["domain"], found["newest"]
        export = f"opset_version={newest} (torch.onnx.export) or target_opset={newest} (skl2onnx)"
        if domain != "ai.onnx":
            export = f'target_opset={{"": {NEWEST_OPSET}, "{domain}": {newest}}} (skl2onnx)'
        return f"its opset of {domain} is {found['found']}; at most {newest} is supported. Export it with {export}"
    if EXTERNAL_DATA.search(text):
        return (
            "its weights are in another file. Send a zip with both, at its top and under their names; or export one"
            ' file: torch.onnx.export(..., external_data=False), or onnx.save(onnx.load("model.onnx"), "one_file.onnx")'
        )
    return text.partition("] : ")[2].partition(" : ")[2][:500] or text[:500]


class OnnxModel:
    """Runs a session. Its operators keep nothing but random generators, so these and the state that is fed back are
    reset.

    ``source``: the graph's bytes, or its path, beside which its weights may be. ``draws``: it may draw random numbers.
    """

    def __init__(self, source: bytes | str, draws: bool, assignment: Assignment) -> None:
        import numpy as np
        import onnxruntime as ort

        session = _session(source)
        self._random_source = source if draws else None
        interface, batch = assignment.interface, assignment.batch
        inputs, outputs = [[_tensor(node) for node in nodes] for nodes in (session.get_inputs(), session.get_outputs())]
        declared = session.get_modelmeta().custom_metadata_map.get(METADATA)
        signature = signature_of(inputs, outputs, declared_states(declared) if declared else None)
        observation, action = signature.observation, signature.action
        check_input(observation, interface.observation, batch)
        check_output(action, interface.action, batch)
        self._run = session.run
        self._set_seed = ort.set_seed
        self._input_name = observation.name
        self._input_type = np.dtype(observation.dtype)
        self._input_shape = input_shape(observation, interface.observation)
        seen = (batch, *interface.observation.shape)
        given = (np.dtype(interface.observation.dtype), interface.observation.shape)
        self._converts = (self._input_type, self._input_shape) != given
        self._output_names = [action.name, *(state.output.name for state in signature.states)]
        self._values = RecurrentValues(signature.states, observation, batch) if signature.states else None
        any_number = bool(observation.shape and action.shape) and observation.sizes[0] is action.sizes[0] is None
        self.joins = any_number and (self._values is None or self._values.joins)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"onnxruntime {ort.__version__}",
            **described(signature, inputs, outputs),
        }
        self._try(np.zeros(seen, interface.observation.dtype))

    def _try(self, observations: "Array") -> None:
        """Run it once, because declared shapes may be unknown and may be wrong."""
        try:
            self.act(observations)
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            raise Misfit(f"onnxruntime cannot run the model (tried with zeros): {loading_error(str(error))}") from None

    def reset(self, seed: int) -> None:
        if self._values is not None:
            self._values.reset()
        if self._random_source is not None:
            self._set_seed(seed & 0x7FFFFFFF)
            self._run = _session(self._random_source).run

    def act(self, observations: "Array") -> bytes:
        count = len(observations)
        if self._converts:
            observations = self._as_input(observations)
        if self._values is None:
            (answer,) = self._run(self._output_names, {self._input_name: observations})
        else:
            inputs = {self._input_name: observations, **self._values.inputs}
            answer, *outputs = self._run(self._output_names, inputs)
            self._values.keep(outputs)
        return action_bytes(answer, count, self._space)

    def row(self) -> "OnnxModel | None":
        """Return a model of the same session; None if it draws random numbers, whose generators are the session's."""
        if self._random_source is not None:
            return None
        row = copy.copy(self)
        row._values = self._values.of_another_row() if self._values is not None else None
        return row

    def act_together(self, rows: "Sequence[OnnxModel]", observations: "Array") -> bytes:
        """Return the actions of rows by one call of the session."""
        if self._converts:
            observations = self._as_input(observations)
        values = [row._values for row in rows if row._values is not None]
        states = self._values.join_rows(values) if self._values is not None else {}
        answer, *outputs = self._run(self._output_names, {self._input_name: observations, **states})
        actions = action_bytes(answer, len(rows), self._space)
        if self._values is not None:
            self._values.divide(values, outputs)
        return actions

    def _as_input(self, observations: "Array") -> "Array":
        return observations.astype(self._input_type, copy=False).reshape(len(observations), *self._input_shape)


def _tensor(node: Any) -> Tensor:
    return Tensor(node.name, TYPES.get(node.type, str(node.type)), tuple(node.shape))


FORMAT = ModelFormat(
    title="ONNX",
    description=(
        "A .onnx file, or a zip or tar with one and the files of its weights, with an input (observation) and an output"
        " (action), both with a leading batch axis; a recurrent state is a pair of an input and an output, such as h_in"
        " and h_out."
        f" Opset {OLDEST_OPSET} to {NEWEST_OPSET}, IR version up to {NEWEST_IR}."
    ),
    runtime="onnx",
    environment="onnx",
    packages=("onnxruntime",),
    suffixes=SUFFIXES,
    recognise=recognise,
    zip_contents="a .onnx file at its top",
    unpacked=True,
    max_size=MAX_SIZE,
    preload=importer("onnxruntime"),
    forkable=True,
    load=load,
    baselines={"car_street": "car_street.onnx"},
)
