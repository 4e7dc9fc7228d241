"""WebAssembly format: a core module with the functions of `runtimes/native/windtunnel_model.h`, run by Wasmtime."""

import json
import math
import struct
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample, action_bytes
from .native import CallFailed, model_description
from .wasi import MODULE, Exit, Wasi

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: First bytes of a core module and of a component (Core Specification, 5.5.16; Component Model, Binary.md).
CORE, COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"
#: Parameters and results of each function of the header: pointers and sizes are i32, a seed is i64.
FUNCTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "windtunnel_create": (("i32",), ("i32",)),
    "windtunnel_reset": (("i32", "i64"), ()),
    "windtunnel_act": (("i32", "i32", "i32", "i32", "i32"), ("i32",)),
    "windtunnel_error": (("i32",), ("i32",)),
    "windtunnel_allocate": (("i32",), ("i32",)),
    "malloc": (("i32",), ("i32",)),
}
REQUIRED = ("windtunnel_create", "windtunnel_reset", "windtunnel_act")
#: Functions that give room for a number of bytes; without them, the memory grows by pages for what the host writes.
ALLOCATORS = ("windtunnel_allocate", "malloc")
#: Runs a reactor's constructors (WASI application ABI).
INITIALIZE, COMMAND = "_initialize", "_start"
#: Bytes of memory of all rows of a batch together, of an instance's stack, and of a page.
MEMORY, STACK, PAGE_SIZE = 512 << 20, 1 << 20, 1 << 16
#: Fuel for an action, and for each other call. An instruction takes about one unit.
ACT_FUEL, START_FUEL = 400_000_000, 2_000_000_000
#: Elements of a module's tables, its tables and its memories.
TABLE_ELEMENTS, TABLES = 1 << 20, 16
#: The most bytes of a text of `windtunnel_error`.
LONGEST = 2000
PAGE = "docs/exporting.md#webassembly"
#: What a trap means, by the name of Wasmtime's code.
TRAPS: Mapping[str, str] = {
    "STACK_OVERFLOW": f"its stack is full (at most {STACK >> 20} MB)",
    "MEMORY_OUT_OF_BOUNDS": "it reads or writes beyond its memory",
    "TABLE_OUT_OF_BOUNDS": "it calls a function beyond its table",
    "INDIRECT_CALL_TO_NULL": "it calls a function pointer that is null",
    "BAD_SIGNATURE": "it calls a function pointer with other parameters than the function has",
    "INTEGER_OVERFLOW": "an integer overflows in a division",
    "INTEGER_DIVISION_BY_ZERO": "it divides an integer by zero",
    "BAD_CONVERSION_TO_INTEGER": "it converts a number to an integer that does not have it",
    "UNREACHABLE": "it aborts or panics (unreachable)",
}


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a core module; a component is refused."""
    if sample.head.startswith(CORE):
        return Recognition(Certainty.CONTENT)
    if sample.head.startswith(b"\0asm"):
        what = "a WebAssembly component" if sample.head.startswith(COMPONENT) else "WebAssembly of another version"
        return Recognition(
            Certainty.CONTENT,
            f"This is {what}. Build a core module (clang --target=wasm32, Rust's wasm32-unknown-unknown or"
            f" wasm32-wasip1) that exports the functions of `windtunnel_model.h` ({PAGE}).",
        )
    if sample.suffix == ".wat":
        return Recognition(Certainty.NAME, "This is WebAssembly as text. Translate it with `wat2wasm`, and send that.")
    return None


def preload() -> None:
    """Import Wasmtime."""
    import wasmtime  # noqa: F401


def load(assignment: Assignment) -> LoadedModel:
    """Compile the module, check what it imports and exports, and create an instance for each row of a batch."""
    return WasmModel(assignment)


def _engine(memory: int) -> Any:
    """Return an engine whose modules compute the same numbers everywhere, within the sandbox's address space.

    By default, Wasmtime reserves 4 GB of addresses per memory, and finds faults by signals. Here it reserves
    ``memory`` bytes, the most that an instance may have, and instructions check bounds. Compiled code
    needs anonymous executable memory, which the sandbox allows.
    """
    import wasmtime
    from wasmtime import _ffi as ffi

    config = wasmtime.Config()
    config.consume_fuel = True
    config.parallel_compilation = False
    config.max_wasm_stack = STACK
    config.wasm_threads = False
    config.shared_memory = False
    config.wasm_memory64 = False
    config.wasm_relaxed_simd_deterministic = True
    pointer = config.ptr()
    ffi.wasmtime_config_cranelift_nan_canonicalization_set(pointer, True)
    ffi.wasmtime_config_signals_based_traps_set(pointer, False)
    ffi.wasmtime_config_memory_init_cow_set(pointer, False)
    ffi.wasmtime_config_memory_reservation_set(pointer, memory)  # so that growth never copies it
    ffi.wasmtime_config_memory_guard_size_set(pointer, 0)
    ffi.wasmtime_config_memory_reservation_for_growth_set(pointer, 0)
    return wasmtime.Engine(config)


def _compiled(engine: Any, source: bytes) -> Any:
    """Compile a module and check its exports and imports; raise Misfit with the first that does not fit."""
    import wasmtime

    if not source.startswith(CORE):
        raise Misfit(f"the file is not a WebAssembly module of version 1; build a core module ({PAGE})")
    try:
        module = wasmtime.Module(engine, source)
    except wasmtime.WasmtimeError as error:
        raise Misfit(
            f"Wasmtime {version('wasmtime')} does not compile the module: {' '.join(str(error).split())[:500]}"
        ) from None
    exports = {export.name: export.type for export in module.exports}
    missing = [name for name in REQUIRED if name not in exports]
    if COMMAND in exports and missing:
        raise Misfit(f"the module is a program with `_start`; build a reactor (clang: -mexec-model=reactor) ({PAGE})")
    if missing:
        raise Misfit(
            f"the module does not export {', '.join(missing)} of `windtunnel_model.h`; in C include the header, in Rust"
            f' write `#[no_mangle] pub extern "C"` ({PAGE})'
        )
    if not isinstance(exports.get("memory"), wasmtime.MemoryType):
        raise Misfit(f"the module does not export its memory under the name `memory` ({PAGE})")
    for name, (parameters, results) in FUNCTIONS.items():
        if (kind := exports.get(name)) is not None and _signature(kind) != (parameters, results):
            raise Misfit(
                f"the module's {name} is {_shown(_signature(kind))}; `windtunnel_model.h` declares it as"
                f" {_shown((parameters, results))}, with pointers and sizes of 32 bits"
            )
    for needed in module.imports:
        if needed.module != MODULE or not isinstance(needed.type, wasmtime.FuncType):
            raise Misfit(
                f"the module imports {needed.module}.{needed.name}; only functions of {MODULE} are provided. Build it"
                f" without JavaScript (no wasm-bindgen, no Emscripten glue), and with its own memory ({PAGE})"
            )
    return module


def _signature(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    if not hasattr(kind, "params"):
        return None
    return tuple(map(str, kind.params)), tuple(map(str, kind.results))


def _shown(signature: tuple[tuple[str, ...], tuple[str, ...]] | None) -> str:
    if signature is None:
        return "not a function"
    parameters, results = signature
    return f"({', '.join(parameters)}) -> {', '.join(results) or 'nothing'}"


class WasmModel:
    """Calls a module's functions. Each row has an instance of its own, a new one in every scenario."""

    def __init__(self, assignment: Assignment) -> None:

        memory = MEMORY // assignment.batch // PAGE_SIZE * PAGE_SIZE
        engine = _engine(memory)
        module = _compiled(engine, assignment.source)
        self._space = assignment.interface.action
        sizes = (math.prod(assignment.interface.observation.shape), math.prod(self._space.shape))
        description = json.dumps(model_description(assignment), allow_nan=False).encode() + b"\0"
        self._rows = [_Row(engine, module, description, sizes, memory) for _ in range(assignment.batch)]
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"Wasmtime {version('wasmtime')}",
            "imports": ", ".join(sorted({needed.name for needed in module.imports})) or "none",
            "memory": memory,
            "fuel": ACT_FUEL,
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


class _Row:
    """A module's instance for one row of a batch. ``sizes``: numbers of an observation and of an action."""

    def __init__(self, engine: Any, module: Any, description: bytes, sizes: tuple[int, int], memory: int) -> None:
        import wasmtime

        self._engine, self._module, self._description = engine, module, description
        self._sizes, self._memory_limit = sizes, memory
        self._wasi = Wasi()
        self._linker = wasmtime.Linker(engine)
        for needed in module.imports:
            function = self._wasi.function(needed.name)
            self._linker.define_func(MODULE, needed.name, needed.type, function, access_caller=True)
        self._memory: Any = None
        self._no_action = struct.pack("<d", math.nan) * sizes[1]

    def reset(self, seed: int) -> None:
        """Begin a scenario with a new instance, so that nothing is left of the last one."""
        import wasmtime

        self._memory = None
        self._wasi.begin(seed)
        self._store = store = wasmtime.Store(self._engine)
        store.set_limits(self._memory_limit, TABLE_ELEMENTS, 1, TABLES, TABLES)
        store.set_fuel(START_FUEL)
        try:
            instance = self._linker.instantiate(store, self._module)
        except wasmtime.Trap as trap:
            raise self._failed("the start of the module", trap, START_FUEL) from None
        except wasmtime.WasmtimeError as error:
            raise CallFailed(
                f"the module cannot be started: {' '.join(str(error).split())[:500]} (its memory may have"
                f" {self._memory_limit >> 20} MB)"
            ) from None
        self._exports = instance.exports(store)
        self._memory = self._exports["memory"]
        if INITIALIZE in self._exports:
            self._call(INITIALIZE)
        self._free = range(0)  # of the pages that were added for the host
        description = self._room(len(self._description))
        observed, acted = (self._room(8 * count) for count in self._sizes)
        self._memory.write(store, self._description, description)
        self._model = self._call("windtunnel_create", description)
        if self._model == 0:
            raise CallFailed(f"windtunnel_create returned NULL{self._reason()}")
        self._call("windtunnel_reset", self._model, seed - (seed >> 63 << 64))
        self._arguments = (self._model, observed, self._sizes[0], acted, self._sizes[1])

    def act(self, observation: bytes) -> bytes:
        """Return the doubles that the module writes for an observation; those that it does not write are NaN."""
        observed, acted = self._arguments[1], self._arguments[3]
        self._memory.write(self._store, observation, observed)
        self._memory.write(self._store, self._no_action, acted)
        code = self._call("windtunnel_act", *self._arguments, fuel=ACT_FUEL)
        if code != 0:
            raise CallFailed(f"windtunnel_act returned {code}{self._reason()}")
        return bytes(self._memory.read(self._store, acted, acted + len(self._no_action)))

    def _room(self, size: int) -> int:
        """Return the address of a number of bytes that the module leaves alone, a multiple of 8."""
        for name in ALLOCATORS:
            if name in self._exports:
                address = self._call(name, size + 7) & 0xFFFFFFFF
                end = self._memory.data_len(self._store)
                if address == 0 or address + size + 7 > end:
                    raise CallFailed(f"the module's {name} gave no room for {size} bytes")
                return int(address + 7 & ~7)
        if size > len(self._free):
            pages = -(-size // PAGE_SIZE)
            start = self._grow(pages)
            self._free = range(start, start + pages * PAGE_SIZE)
        address, self._free = self._free.start, self._free[size + 7 & ~7 :]
        return address

    def _grow(self, pages: int) -> int:
        import wasmtime

        try:
            return int(self._memory.grow(self._store, pages)) * PAGE_SIZE
        except wasmtime.WasmtimeError:
            raise CallFailed(
                f"the module's memory cannot grow by {pages} pages for its observations; export"
                f" {' or '.join(ALLOCATORS)}, or declare a larger maximum ({PAGE})"
            ) from None

    def _call(self, name: str, *arguments: int, fuel: int = START_FUEL) -> Any:
        import wasmtime

        self._store.set_fuel(fuel)
        try:
            return self._exports[name](self._store, *arguments)
        except wasmtime.Trap as trap:
            raise self._failed(name, trap, fuel) from None
        except Exit as end:
            raise CallFailed(f"{name} ended the program: {end}") from None

    def _failed(self, name: str, trap: Any, fuel: int) -> CallFailed:
        """Return the error of a trap, with the innermost of the module's own functions that has a name."""
        code = getattr(trap.trap_code, "name", "")
        if code == "OUT_OF_FUEL":
            return CallFailed(f"{name} takes too long: it used its fuel of {fuel:,} instructions; compute less in it")
        reason = TRAPS.get(code, trap.message.splitlines()[0][:500])
        inner = next((frame.func_name for frame in trap.frames if frame.func_name), None)
        where = f" in {inner}" if inner not in (None, name) else ""
        if code == "UNREACHABLE" and self._memory is not None:
            used = self._memory.data_len(self._store) >> 20
            reason += f"; its memory has {used} MB of at most {self._memory_limit >> 20} MB"
        return CallFailed(f"{name} trapped{where}: {reason}")

    def _reason(self) -> str:
        """Return the text of `windtunnel_error`, if it is exported."""
        if "windtunnel_error" not in self._exports:
            return ""
        address = self._call("windtunnel_error", self._model) & 0xFFFFFFFF
        if not 0 < address < (end := self._memory.data_len(self._store)):
            return ""
        text = bytes(self._memory.read(self._store, address, min(end, address + LONGEST)))
        return f": {text.partition(bytes(1))[0].decode(errors='replace')}"


FORMAT = ModelFormat(
    title="WebAssembly",
    description=(
        "A core module (.wasm) that exports its memory and the functions of windtunnel_model.h: windtunnel_create,"
        " windtunnel_reset and windtunnel_act. It imports nothing but WASI preview 1, which has no files, network or"
        " clock and seeded random numbers."
    ),
    runtime="wasm",
    environment="wasm",
    packages=("wasmtime",),
    suffixes=(".wasm",),
    recognise=recognise,
    preload=preload,
    load=load,
)
