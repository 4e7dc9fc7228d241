"""Core modules of WebAssembly as models: the functions of `runtimes/native/windtunnel_model.h`, and their calls."""

import math
import struct
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import wasm_engine
from .base import Misfit, Unreadable
from .native import CallFailed
from .wasi import MODULE, Exit, Wasi
from .wasm_engine import (
    ACT_FUEL,
    LONGEST,
    PAGE,
    PAGE_SIZE,
    START_FUEL,
    TABLE_ELEMENTS,
    TABLES,
    meaning,
    one_line,
    out_of_fuel,
)

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


def compiled(engine: Any, source: bytes, code: Path) -> Any:
    """Return a module, compiled unless ``code`` is there; raise Misfit with the first part that does not fit."""
    import wasmtime

    try:
        module = wasm_engine.compiled(wasmtime.Module, engine, source, code)
    except wasmtime.WasmtimeError as error:
        raise Unreadable(f"Wasmtime {version('wasmtime')} does not compile the module: {one_line(error)}") from None
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


class ModuleRow:
    """A core module's instance for one row of a batch. ``sizes``: numbers of an observation and of an action."""

    def __init__(self, engine: Any, module: Any, description: str, sizes: tuple[int, int], memory: int) -> None:
        import wasmtime

        self._engine, self._module, self._description = engine, module, description.encode() + b"\0"
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
                f"the module cannot be started: {one_line(error)} (its memory may have {self._memory_limit >> 20} MB)"
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
            return CallFailed(out_of_fuel(name, fuel))
        reason = meaning(code) or trap.message.splitlines()[0][:500]
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
