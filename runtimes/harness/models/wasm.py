"""WebAssembly format: a core module or a component, run by Wasmtime."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from . import wasm_component, wasm_engine, wasm_module
from .base import CODE, Assignment, Certainty, Misfit, ModelFormat, Recognition, Sample, action_bytes, importer
from .native import CallFailed, model_description
from .wasm_component import ComponentRow
from .wasm_engine import PAGE
from .wasm_module import ModuleRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: First bytes of a core module and of a component (Core Specification, 5.5.16; Component Model, Binary.md).
CORE, COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"

#: Name of the file in its folder.
FILE = "model.wasm"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a core module and a component."""
    if sample.head.startswith((CORE, COMPONENT)):
        return Recognition(Certainty.CONTENT)
    if sample.head.startswith(b"\0asm"):
        return Recognition(
            Certainty.CONTENT,
            "This is WebAssembly of another version. Build a core module (clang --target=wasm32, Rust's"
            f" wasm32-unknown-unknown or wasm32-wasip1) or a component (wasm32-wasip2, componentize-py) ({PAGE}).",
        )
    if sample.suffix == ".wat":
        return Recognition(Certainty.NAME, "This is WebAssembly as text. Translate it with `wat2wasm`, and send that.")
    return None


def compile_code(source: bytes) -> bytes:
    """Return the code of a module or a component for this processor and rows of one; wrong files raise."""
    import wasmtime
    import wasmtime.component as components

    engine = wasm_engine.engine(wasm_engine.row_memory(1), parallel=True)
    kind: Any = components.Component if source.startswith(COMPONENT) else wasmtime.Module
    return bytes(kind(engine, source).serialize())


class WasmModel:
    """Calls a module's or a component's functions. Each row has an instance of its own, a new one in every scenario."""

    def __init__(self, assignment: Assignment) -> None:
        """Compile the file unless that was done, check what it imports and exports, create an instance for each row."""
        self._space = assignment.interface.action
        self._rows, imports = _rows(assignment)
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"Wasmtime {version('wasmtime')}",
            "imports": ", ".join(imports) or "none",
            "memory": wasm_engine.row_memory(assignment.batch),
            "fuel": wasm_engine.ACT_FUEL,
        }
        try:
            self.reset(0)
        except CallFailed as error:
            raise Misfit(str(error)) from None

    def reset(self, seed: int) -> None:
        for index, row in enumerate(self._rows):
            row.reset((seed + index) & (2**64 - 1))

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np  # the server reads formats without it

        rows = np.ascontiguousarray(observations.reshape(len(observations), -1), np.float64)
        answers = [row.act(observed.tobytes()) for row, observed in zip(self._rows, rows, strict=True)]
        actions = np.frombuffer(b"".join(answers), np.float64).reshape(len(rows), -1)
        with np.errstate(over="ignore"):  # what is too large for the type is infinite, which is not an action
            return action_bytes(actions, len(rows), self._space)


def _rows(assignment: Assignment) -> tuple[Sequence[ComponentRow | ModuleRow], Sequence[str]]:
    """Return an instance of the file for each row of a batch, and the names of what it imports."""
    interface = assignment.interface
    assert assignment.files is not None, "the format places its file"
    source = (assignment.files / FILE).read_bytes()
    code = assignment.files / CODE
    memory = wasm_engine.row_memory(assignment.batch)
    engine = wasm_engine.engine(memory)
    description = json.dumps(model_description(replace(assignment, files=None)), allow_nan=False)
    sizes = (math.prod(interface.observation.shape), math.prod(interface.action.shape))
    if source.startswith(COMPONENT):
        component = wasm_component.compiled(engine, source, code)
        rows = [ComponentRow(engine, component, description, sizes[1], memory) for _ in range(assignment.batch)]
        return rows, sorted(component.imports)
    if not source.startswith(CORE):
        raise Misfit(f"the file is not a WebAssembly module of version 1 or a component; build one of them ({PAGE})")
    module = wasm_module.compiled(engine, source, code)
    modules = [ModuleRow(engine, module, description, sizes, memory) for _ in range(assignment.batch)]
    return modules, sorted({needed.name for needed in module.imports})


FORMAT = ModelFormat(
    title="WebAssembly",
    description=(
        "A core module (.wasm) that exports its memory and the functions of windtunnel_model.h: windtunnel_create,"
        " windtunnel_reset and windtunnel_act; or a component that exports create, reset and act of"
        " windtunnel-model.wit. It imports nothing but WASI preview 1 or 0.2, which has no files, network or"
        " clock and seeded random numbers."
    ),
    runtime="wasm",
    environment="wasm",
    packages=("wasmtime",),
    suffixes=(".wasm",),
    recognise=recognise,
    placed=FILE,
    compile=compile_code,
    preload=importer("wasmtime.component"),
    forkable=True,
    load=WasmModel,
)
