"""WASI 0.2 for components, with the rules of `wasi`: no files, no network, time that calls advance, seeded numbers.

Interfaces and functions: github.com/WebAssembly/WASI, tag v0.2.6, wasip2. What a component imports is defined from its
own types, so that one implementation is enough for all versions 0.2.x.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from .base import Misfit
from .wasi import OUTPUT, TICK, System
from .wasm_engine import PAGE

#: Versions of an interface that are provided.
INTERFACE = re.compile(r"wasi:(?P<name>[a-z0-9-]+/[a-z0-9-]+)@0\.2\.\d+")
#: The answer of a function for files or sockets, by the name of the case of its error.
NOT_AVAILABLE = ("unsupported", "not-supported")
#: The most random bytes of a call, and the greatest time of a clock.
RANDOM_BYTES, LATEST = 1 << 20, 2**64 - 1
#: Bytes that a stream takes at once.
STREAM_BYTES = 1 << 16


class WasiComponent(System):
    """WASI 0.2 of an instance. ``ended``: how the component has ended its program; empty: it has not."""

    def __init__(self) -> None:
        super().__init__()
        self._resources: dict[str, int] = {}

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.ended = ""
        #: When a timer is due, by the timer's number; other pollables are ready at once.
        self._due: dict[int, int] = {}
        self._timers = 0

    def define(self, linker: Any, imports: Mapping[str, Any], engine: Any) -> None:
        """Define what a component imports. Raises Misfit with the first import that is not of WASI 0.2."""
        import wasmtime.component as components

        functions = dict(self._functions())
        with linker.root() as root:
            for name, item in imports.items():
                interface = INTERFACE.fullmatch(name)
                if interface is None or not isinstance(item.ty, components.ComponentInstanceType):
                    raise Misfit(
                        f"the component imports {name}; only interfaces of WASI 0.2 are provided, and imports of"
                        f" preview 1 in its modules are adapted when it is built ({PAGE})"
                    )
                with root.add_instance(name) as instance:
                    for member, export in item.ty.exports(engine).items():
                        function = functions.get(f"{interface['name']}#{member}")
                        self._define(instance, f"{name}#{member}", member, export.ty, function)

    def _define(self, instance: Any, path: str, name: str, kind: Any, function: Callable[..., Any] | None) -> None:
        import wasmtime.component as components

        if isinstance(kind, components.ResourceType):
            number = self._resource(name)
            instance.add_resource(name, components.ResourceType.host(number), self._dropped)
        elif isinstance(kind, components.FuncType):
            result = kind.result
            instance.add_func(name, partial(_answer, function or partial(_refuse, path, result), result))

    def _resource(self, name: str) -> int:
        """Return the number of a type of resources."""
        return self._resources.setdefault(name, len(self._resources))

    def _new(self, name: str, number: int = 0) -> Any:
        """Return a new resource of a type."""
        from wasmtime.component import ResourceHost

        return ResourceHost.own(number, self._resource(name))

    def _dropped(self, store: Any, number: int) -> None:
        self._due.pop(number, None)  # numbers of timers begin with 1; other resources have 0

    def _functions(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield the functions by the names of their interface and their own; the first argument is the store."""
        functions: Mapping[str, Callable[..., Any]] = {
            "cli/environment#get-environment": _nothing,
            "cli/environment#get-arguments": _nothing,
            "cli/environment#initial-cwd": _none,
            "cli/exit#exit": lambda store, status: self._exit(0 if status.tag == "ok" else 1),
            "cli/exit#exit-with-code": lambda store, code: self._exit(code),
            "cli/stdin#get-stdin": lambda store: self._new("input-stream"),
            "cli/stdout#get-stdout": lambda store: self._new("output-stream"),
            "cli/stderr#get-stderr": lambda store: self._new("output-stream"),
            "cli/terminal-stdin#get-terminal-stdin": _none,
            "cli/terminal-stdout#get-terminal-stdout": _none,
            "cli/terminal-stderr#get-terminal-stderr": _none,
            "clocks/monotonic-clock#now": lambda store: self.look_at_clock(),
            "clocks/monotonic-clock#resolution": lambda store: TICK,
            "clocks/monotonic-clock#subscribe-instant": lambda store, instant: self._timer(instant),
            "clocks/monotonic-clock#subscribe-duration": lambda store, span: self._timer(self.time + span),
            "clocks/wall-clock#now": lambda store: _datetime(self.look_at_clock()),
            "clocks/wall-clock#resolution": lambda store: _datetime(TICK),
            "filesystem/preopens#get-directories": _nothing,
            "filesystem/types#filesystem-error-code": _none,
            "random/random#get-random-bytes": self._random_bytes,
            "random/random#get-random-u64": lambda store: self.random.getrandbits(64),
            "random/insecure#get-insecure-random-bytes": self._random_bytes,
            "random/insecure#get-insecure-random-u64": lambda store: self.random.getrandbits(64),
            "random/insecure-seed#insecure-seed": lambda store: (
                self.random.getrandbits(64),
                self.random.getrandbits(64),
            ),
            "sockets/instance-network#instance-network": lambda store: self._new("network"),
        }
        yield from functions.items()
        yield from self._streams()

    def _streams(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        yield "io/error#[method]error.to-debug-string", lambda store, error: "an error of a stream"
        yield "io/poll#[method]pollable.ready", lambda store, pollable: self._due_at(pollable) <= self.time
        yield "io/poll#[method]pollable.block", lambda store, pollable: self._wait([pollable])
        yield "io/poll#poll", self._poll
        for name in ("read", "blocking-read", "skip", "blocking-skip"):
            yield f"io/streams#[method]input-stream.{name}", _closed
        for kind in ("input", "output"):
            yield f"io/streams#[method]{kind}-stream.subscribe", lambda store, stream: self._new("pollable")
        yield "io/streams#[method]output-stream.check-write", lambda store, stream: _ok(STREAM_BYTES)
        for name in ("write", "blocking-write-and-flush"):
            yield f"io/streams#[method]output-stream.{name}", self._write
        for name in ("write-zeroes", "blocking-write-zeroes-and-flush"):
            yield f"io/streams#[method]output-stream.{name}", self._write_zeroes
        for name in ("flush", "blocking-flush"):
            yield f"io/streams#[method]output-stream.{name}", lambda store, stream: _ok()
        for name in ("splice", "blocking-splice"):
            yield f"io/streams#[method]output-stream.{name}", _closed

    def _exit(self, code: int) -> None:
        self.ended = f"it exited with code {code}"
        raise _trap(self.ended)

    def _random_bytes(self, store: Any, length: int) -> bytes:
        if length > RANDOM_BYTES:
            raise _trap(f"it asks for {length} random bytes in a call, of at most {RANDOM_BYTES}")
        return self.random.randbytes(length)

    def _write(self, store: Any, stream: Any, contents: bytes) -> Any:
        self.print(contents)
        return _ok()

    def _write_zeroes(self, store: Any, stream: Any, length: int) -> Any:
        self.print(bytes(min(length, OUTPUT)))
        return _ok()

    def _timer(self, due: int) -> Any:
        self._timers += 1
        self._due[self._timers] = min(due, LATEST)
        return self._new("pollable", self._timers)

    def _due_at(self, pollable: int) -> int:
        return self._due.get(pollable, 0)

    def _wait(self, pollables: list[int]) -> None:
        """Let the time pass until the first of these is ready; nothing is waited for."""
        self.time = max(self.time, min(map(self._due_at, pollables)))

    def _poll(self, store: Any, pollables: list[int]) -> list[int]:
        if not pollables:
            raise _trap("it polls an empty list")
        self._wait(pollables)
        return [index for index, pollable in enumerate(pollables) if self._due_at(pollable) <= self.time]


def _answer(function: Callable[..., Any], kind: Any, store: Any, *arguments: Any) -> Any:
    """Call a function of the host with numbers for resources, and return its result as Wasmtime takes it."""
    return _case(kind, function(store, *(_number(argument, store) for argument in arguments)))


def _number(argument: Any, store: Any) -> Any:
    """Return the number of a resource, those of a list of resources, or another argument as it is."""
    from wasmtime.component import ResourceAny

    if isinstance(argument, list):
        return [_number(member, store) for member in argument]
    return argument.to_host(store).rep if isinstance(argument, ResourceAny) else argument


def _case(kind: Any, value: Any) -> Any:
    """Return a case of a result or variant as Wasmtime takes it: the payload alone if no other case has its type."""
    from wasmtime.component import Variant

    if not isinstance(value, Variant):
        return value
    payload_kind = dict(kind._cases())[value.tag]
    payload = None if payload_kind is None else _case(payload_kind, value.payload)
    return Variant(value.tag, payload) if kind._tagged() else payload


def _refuse(path: str, kind: Any, store: Any, *arguments: Any) -> Any:
    """Answer that a function is not available, with its own error if it has one for that."""
    from wasmtime.component import EnumType, ResultType, Variant

    if isinstance(kind, ResultType) and isinstance(kind.err, EnumType):
        if cases := [case for case in NOT_AVAILABLE if case in kind.err.names]:
            return Variant("err", cases[0])
    raise _trap(f"it calls {path}, which is not available to models")


def _trap(reason: str) -> Exception:
    from wasmtime import WasmtimeError

    error: Exception = WasmtimeError(reason)
    return error


def _ok(value: Any = None) -> Any:
    from wasmtime.component import Variant

    return Variant("ok", value)


def _closed(store: Any, *arguments: Any) -> Any:
    from wasmtime.component import Variant

    return Variant("err", Variant("closed"))


def _nothing(store: Any) -> list[Any]:
    return []


def _none(store: Any, *arguments: Any) -> None:
    return None


def _datetime(nanoseconds: int) -> Any:
    from wasmtime.component import Record

    datetime = Record()
    datetime.seconds, datetime.nanoseconds = divmod(nanoseconds, 10**9)
    return datetime
