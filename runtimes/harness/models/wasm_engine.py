"""Wasmtime's engine for models, limits of an instance, and the meaning of traps, for modules and components alike."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Bytes of memory of all rows of a batch together, of an instance's stack, and of a page.
MEMORY, STACK, PAGE_SIZE = 512 << 20, 1 << 20, 1 << 16
#: Fuel for an action, and for each other call. An instruction takes about one unit.
ACT_FUEL, START_FUEL = 400_000_000, 2_000_000_000
#: Elements of an instance's tables, its tables and its memories.
TABLE_ELEMENTS, TABLES = 1 << 20, 16
#: The most bytes of a reason that the model gives for an error.
LONGEST = 2000
PAGE = "docs/exporting.md#webassembly"
#: By the name of Wasmtime's code of a trap: Wasmtime's message, and what it means.
TRAPS: Mapping[str, tuple[str, str]] = {
    "OUT_OF_FUEL": ("all fuel consumed by WebAssembly", "it used its fuel"),
    "STACK_OVERFLOW": ("call stack exhausted", f"its stack is full (at most {STACK >> 20} MB)"),
    "MEMORY_OUT_OF_BOUNDS": ("out of bounds memory access", "it reads or writes beyond its memory"),
    "TABLE_OUT_OF_BOUNDS": ("undefined element: out of bounds table access", "it calls a function beyond its table"),
    "INDIRECT_CALL_TO_NULL": ("uninitialized element", "it calls a function pointer that is null"),
    "BAD_SIGNATURE": (
        "indirect call type mismatch",
        "it calls a function pointer with other parameters than the function has",
    ),
    "INTEGER_OVERFLOW": ("integer overflow", "an integer overflows in a division"),
    "INTEGER_DIVISION_BY_ZERO": ("integer divide by zero", "it divides an integer by zero"),
    "BAD_CONVERSION_TO_INTEGER": (
        "invalid conversion to integer",
        "it converts a number to an integer that does not have it",
    ),
    "UNREACHABLE": ("wasm `unreachable` instruction executed", "it aborts or panics (unreachable)"),
}


def row_memory(batch: int) -> int:
    """Return the bytes of memory that the instance of each row of a batch may have, in whole pages."""
    return MEMORY // batch // PAGE_SIZE * PAGE_SIZE


def engine(memory: int, *, parallel: bool = False) -> Any:
    """Return an engine whose programs compute the same numbers everywhere, within the sandbox's address space.

    By default, Wasmtime reserves 4 GB of addresses per memory, and finds faults by signals. Here it reserves
    ``memory`` bytes, the most that an instance may have, and instructions check bounds. Compiled code
    needs anonymous executable memory, which the sandbox allows. ``parallel``: it compiles on all processors.
    """
    import wasmtime
    from wasmtime import _ffi as ffi

    config = wasmtime.Config()
    config.consume_fuel = True
    config.parallel_compilation = parallel
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


def compiled(kind: Any, engine: Any, source: bytes, code: Path) -> Any:
    """Return a module or a component from its code, or from its source if that is of another engine or processor."""
    import wasmtime

    if code.is_file():
        with contextlib.suppress(wasmtime.WasmtimeError):
            return kind.deserialize_file(engine, str(code))
    return kind(engine, source)


def meaning(code: str) -> str | None:
    """Return what a trap means by the name of its code; None: the code is not in the table."""
    return TRAPS[code][1] if code in TRAPS else None


def out_of_fuel(name: str, fuel: int) -> str:
    """Return the error of a call that has used its fuel."""
    return f"{name} takes too long: it used its fuel of {fuel:,} instructions; compute less in it"


def one_line(error: object) -> str:
    """Return an error's text in one line of at most 500 characters."""
    return " ".join(str(error).split())[:500]
