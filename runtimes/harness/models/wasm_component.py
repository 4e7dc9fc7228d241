"""Components of WebAssembly as models: the functions of `runtimes/native/windtunnel-model.wit`, and their calls."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import wasm_engine
from .base import Misfit, NoAction, Unreadable
from .native import CallFailed
from .wasi_preview2 import WasiComponent
from .wasm_engine import (
    ACT_FUEL,
    LONGEST,
    PAGE,
    START_FUEL,
    TABLE_ELEMENTS,
    TABLES,
    TRAPS,
    meaning,
    one_line,
    out_of_fuel,
)

#: Types that the functions of the world may have, by name; the first is that of the WIT file.
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "create": ("func(string) -> result<_, string>", "func(string)"),
    "reset": ("func(u64)", "func(u64) -> result<_, string>"),
    "act": ("func(list<f64>) -> result<list<f64>, string>", "func(list<f64>) -> list<f64>"),
}
REQUIRED = "act"
#: Instances of a component: those of its core modules too, of which an interpreter has dozens.
INSTANCES = 1000
#: A function's name in the trace of a trap, of which the first is the innermost.
FRAME = re.compile(r"^ *\d+: +0x[0-9a-f]+ - (?:.*!)?(?P<name>\S.*)$", re.MULTILINE)
CAUSE = "Caused by:"


@dataclass(frozen=True, slots=True)
class CompiledComponent:
    """A component, what it imports by name, and the name of the exported interface with its functions, if there is one.

    ``functions``: those of the world that it exports.
    """

    component: Any
    imports: Mapping[str, Any]
    interface: str | None
    functions: frozenset[str]


def compiled(engine: Any, source: bytes, code: Path) -> CompiledComponent:
    """Return a component, compiled unless ``code`` is there; raise Misfit with the first export that does not fit."""
    import wasmtime
    import wasmtime.component as components

    try:
        component = wasm_engine.compiled(components.Component, engine, source, code)
    except wasmtime.WasmtimeError as error:
        raise Unreadable(f"Wasmtime {version('wasmtime')} does not compile the component: {one_line(error)}") from None
    exports = {name: item.ty for name, item in component.type.exports(engine).items()}
    interface = None
    if REQUIRED not in exports:
        for name, kind in exports.items():
            members = kind.exports(engine) if isinstance(kind, components.ComponentInstanceType) else {}
            if REQUIRED in members:
                interface, exports = name, {member: item.ty for member, item in members.items()}
                break
        else:
            raise Misfit(
                f"the component does not export {REQUIRED} of `windtunnel-model.wit`, but"
                f" {', '.join(sorted(exports)) or 'nothing'}; build it for the world `model` ({PAGE})"
            )
    functions = frozenset(FUNCTIONS.keys() & exports.keys())
    for name in sorted(functions):
        if (shown := wit(exports[name])) not in FUNCTIONS[name]:
            raise Misfit(
                f"the component's {name} is {shown}; `windtunnel-model.wit` declares it as {FUNCTIONS[name][0]}"
            )
    return CompiledComponent(component, component.type.imports(engine), interface, functions)


def wit(kind: Any) -> str:
    """Return a type as WIT has it, without the names of parameters; types that a model does not need by their kind."""
    import wasmtime.component as components

    if isinstance(kind, components.FuncType):
        result = "" if kind.result is None else f" -> {wit(kind.result)}"
        return f"func({', '.join(wit(parameter) for _, parameter in kind.params)}){result}"
    if isinstance(kind, components.ListType):
        return f"list<{wit(kind.element)}>"
    if isinstance(kind, components.ResultType):
        ok = "_" if kind.ok is None else wit(kind.ok)
        return f"result<{ok}>" if kind.err is None else f"result<{ok}, {wit(kind.err)}>"
    return type(kind).__name__.removesuffix("Type").lower()


class ComponentRow:
    """A component's instance for one row of a batch. ``size``: numbers of an action."""

    def __init__(self, engine: Any, component: CompiledComponent, description: str, size: int, memory: int) -> None:
        import wasmtime.component as components

        self._engine, self._component, self._description = engine, component, description
        self._size, self._memory_limit = size, memory
        self._wasi = WasiComponent()
        self._linker = components.Linker(engine)
        self._wasi.define(self._linker, component.imports, engine)

    def reset(self, seed: int) -> None:
        """Begin a scenario with a new instance, so that nothing is left of the last one."""
        import wasmtime

        self._wasi.begin(seed)
        self._store = store = wasmtime.Store(self._engine)
        store.set_limits(self._memory_limit, TABLE_ELEMENTS, INSTANCES, TABLES, TABLES)
        store.set_fuel(START_FUEL)
        try:
            instance = self._linker.instantiate(store, self._component.component)
        except wasmtime.WasmtimeError as error:
            raise self._failed("the start of the component", error, START_FUEL) from None
        self._functions = {name: self._function(instance, name) for name in self._component.functions}
        if "create" in self._functions:
            self._call("create", self._description)
        if "reset" in self._functions:
            self._call("reset", seed)

    def _function(self, instance: Any, name: str) -> Any:
        interface = self._component.interface
        outer = None if interface is None else instance.get_export_index(self._store, interface)
        return instance.get_func(self._store, instance.get_export_index(self._store, name, outer))

    def act(self, observation: bytes) -> bytes:
        """Return the doubles that the component returns for those of an observation."""
        import numpy as np  # the server reads formats without it

        action = self._call(REQUIRED, np.frombuffer(observation, np.float64).tolist(), fuel=ACT_FUEL)
        if len(action) != self._size:
            raise NoAction(f"act returned {len(action)} numbers; an action has {self._size}")
        return np.array(action, np.float64).tobytes()

    def _call(self, name: str, argument: Any, fuel: int = START_FUEL) -> Any:
        """Call a function; an error that it returns, as a text, is raised."""
        import wasmtime

        self._store.set_fuel(fuel)
        try:
            answer = self._functions[name](self._store, argument)
        except wasmtime.WasmtimeError as error:
            raise self._failed(name, error, fuel) from None
        if isinstance(answer, str):
            raise CallFailed(f"{name} failed: {answer[:LONGEST]}")
        return answer

    def _failed(self, name: str, error: Exception, fuel: int) -> CallFailed:
        """Return the error of a call, with the innermost of the component's own functions that has a name."""
        if self._wasi.ended:
            return CallFailed(f"{name} ended the program: {self._wasi.ended}")
        trace, _, cause = str(error).rpartition(CAUSE)
        cause = cause.strip().removeprefix("wasm trap: ")
        code = next((code for code, (message, _) in TRAPS.items() if message == cause), "")
        if code == "OUT_OF_FUEL":
            return CallFailed(out_of_fuel(name, fuel))
        frame = FRAME.search(trace)
        where = f" in {frame['name']}" if frame is not None and frame["name"] not in (name, "<wasm function>") else ""
        reason = meaning(code) or one_line(cause)
        if code == "UNREACHABLE" or (not code and "memory" in reason):
            reason += f"; its memory may have {self._memory_limit >> 20} MB"
        return CallFailed(f"{name} trapped{where}: {reason}")
