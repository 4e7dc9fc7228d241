"""TensorFlow Lite graphs: which keep more than their variable tensors, and the seeds of their random operators."""

import hashlib
import importlib
import struct
from collections.abc import Iterator
from typing import Any

from .base import Misfit

#: Operators with a generator, seeded by their options, by the system if both seeds are 0.
RANDOM = ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL")
#: Operators that change a resource of the interpreter, which `reset_all_variables` does not reset.
WRITERS = ("ASSIGN_VARIABLE", "HASHTABLE_IMPORT")
#: The greatest number of an operator that has one byte in the schema, and of the seeds that stand in for the real ones.
ONE_BYTE, PLACEHOLDER = 127, 1
SEED = struct.Struct("<q")


def check_order(source: bytes) -> None:
    """Raise Misfit if an operator reads what a later one writes: it would get what the last call has left in memory,
    in whichever scenario that was.
    """
    try:
        names = sorted({_name(graph, index) for graph in _subgraphs(source) for index in _read_before_written(graph)})
    except (struct.error, IndexError, TypeError, AttributeError) as error:
        raise Misfit(f"the model's operators cannot be read: {str(error)[:300]}") from None
    if names:
        raise Misfit(
            f"the model cannot be reset between scenarios: its operators read {', '.join(names[:10])} before another"
            " operator writes it, and so get a value of the last call; make it an input and an output, or a variable"
        )


def has_variables(source: bytes) -> bool:
    """Whether a graph has variable tensors, whose values the interpreter keeps from one call to the next."""
    graphs = _subgraphs(source)
    return any(graph.Tensors(index).IsVariable() for graph in graphs for index in range(graph.TensorsLength()))


def _subgraphs(source: bytes) -> list[Any]:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(source, 0)
    return [model.Subgraphs(index) for index in range(model.SubgraphsLength())]


def _read_before_written(graph: Any) -> Iterator[int]:
    """Yield the tensors of a subgraph that an operator reads before the first operator that writes them."""
    operators = [graph.Operators(index) for index in range(graph.OperatorsLength())]
    written = {int(operator.Outputs(index)) for operator in operators for index in range(operator.OutputsLength())}
    known = {int(graph.Inputs(index)) for index in range(graph.InputsLength())}
    known |= {index for index in written if graph.Tensors(index).IsVariable()}
    for operator in operators:
        for place in range(operator.InputsLength()):
            index = int(operator.Inputs(place))
            if index in written and index not in known:
                yield index
        known |= {int(operator.Outputs(place)) for place in range(operator.OutputsLength())}


def _name(graph: Any, index: int) -> str:
    return str((graph.Tensors(index).Name() or b"?").decode(errors="replace"))[:100]


class StatefulGraph:
    """A model whose interpreter must be replaced before a scenario, and where its unseeded operators have their seeds.

    ``places``: byte offsets of pairs of seeds.
    """

    def __init__(self, source: bytes, places: list[tuple[int, int]]) -> None:
        self._source = bytearray(source)
        self._places = places

    @classmethod
    def of(cls, source: bytes) -> "StatefulGraph | None":
        """Read a model; None if a reset of its variable tensors is enough."""
        from ai_edge_litert import schema_py_generated as schema

        codes = schema.BuiltinOperator
        stateful = {getattr(codes, name) for name in (*RANDOM, *WRITERS)}
        random = {getattr(codes, name) for name in RANDOM}
        try:
            used = _codes(schema.Model.GetRootAs(source, 0))
            if not stateful & set(used):
                return None
            if not random & set(used):
                return cls(source, [])
            model = schema.ModelT.InitFromPackedBuf(source, 0)
            unseeded = []
            for number, graph in enumerate(model.subgraphs):
                for index, operator in enumerate(graph.operators):
                    if used[operator.opcodeIndex] in random:
                        options = operator.builtinOptions
                        if not isinstance(options, schema.RandomOptionsT):
                            options = operator.builtinOptions = schema.RandomOptionsT()
                            operator.builtinOptionsType = schema.BuiltinOptions.RandomOptions
                        if not (options.seed or options.seed2):
                            # A field with its default value is not stored, and could not be set in place.
                            options.seed = options.seed2 = PLACEHOLDER
                            unseeded.append((number, index))
            if not unseeded:
                return cls(source, [])
            packed = _pack(model)
            return cls(packed, [_places(schema, packed, *position) for position in unseeded])
        except (struct.error, IndexError, TypeError, AttributeError) as error:
            raise Misfit(f"the model's random operators cannot be seeded: {str(error)[:300]}") from None

    def seeded(self, seed: int) -> bytes:
        """Return the model with seeds for the operators that have none, each another."""
        for number, places in enumerate(self._places):
            digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
            for place, start in zip(places, (0, 4), strict=True):
                value = int.from_bytes(digest[start : start + 4], "little") & 0x7FFFFFFF
                SEED.pack_into(self._source, place, value or 1)
        return bytes(self._source)


def _codes(model: Any) -> list[int]:
    """Return the number of each operator that the model declares; old files have only one byte for it."""

    def number(code: Any) -> int:
        old, new = int(code.DeprecatedBuiltinCode()), int(code.BuiltinCode())
        return max(old, new) if old < ONE_BYTE else new

    return [number(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]


def _pack(model: Any) -> bytes:
    builder = importlib.import_module("flatbuffers").Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _places(schema: Any, packed: bytes, graph: int, operator: int) -> tuple[int, int]:
    """Return the byte offsets of an operator's two seeds."""
    options = schema.RandomOptions()
    table = schema.Model.GetRootAs(packed, 0).Subgraphs(graph).Operators(operator).BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    first, second = (int(options._tab.Pos + options._tab.Offset(slot)) for slot in (4, 6))  # the vtable's entries
    return first, second
