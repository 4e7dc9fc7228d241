"""PyTorch export format: a program that `torch.export.save` wrote (.pt2), run on one thread."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample
from .recurrence import RecurrentState, checked_state, state_shape
from .signature import Signature, described
from .tensors import Tensor, check_input, check_output, input_shape
from .torch_module import RowFunction, loading_error, members_below_root
from .torch_module import preload as preload_torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Members below the folder of an archive of `torch.export.save`: of version 2.8 and later, and in a zip of earlier ones
#: (torch/export/pt2_archive/constants.py).
ARCHIVE, MODELS, EARLIER = "archive_format", "models/", "serialized_exported_program.json"
SUFFIXES = (".pt2",)


def recognise(sample: Sample) -> Recognition | None:
    """Recognise an archive of `torch.export.save` by its members."""
    names = members_below_root(sample)
    recent = ARCHIVE in names and any(name.startswith(MODELS) for name in names)
    if recent or EARLIER in (sample.members or ()):
        return Recognition(Certainty.CONTENT)
    if sample.members is None and sample.suffix in SUFFIXES:
        return Recognition(
            Certainty.NAME, "The file is not an archive of PyTorch: save a program with `torch.export.save`."
        )
    return None


def preload() -> None:
    """Import PyTorch, and what it imports only when a first program is loaded: that takes seconds."""
    preload_torch()
    import torch

    file = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Identity(), (torch.zeros(1),)), file)
    file.seek(0)
    torch.export.load(file).module()(torch.zeros(1))


def load(assignment: Assignment) -> LoadedModel:
    """Load the program, check its inputs and outputs, and try it with zeros."""
    import torch

    try:
        program = torch.export.load(io.BytesIO(assignment.source))
        module = program.module()
    except Exception as error:
        raise loading_error(error) from None
    return ExportedModel(program, module, assignment)


class ExportedModel:
    """Calls a program's module; of several inputs, the first is the observation, and the others are its state."""

    def __init__(self, program: Any, module: Any, assignment: Assignment) -> None:
        import torch

        signature, inputs, outputs = _signature(program)
        interface, batch = assignment.interface, assignment.batch
        check_input(signature.observation, interface.observation, batch)
        check_output(signature.action, interface.action, batch)
        initial = tuple(
            torch.zeros(state_shape(state, signature.observation, batch), dtype=getattr(torch, state.input.dtype))
            for state in signature.states
        )
        shape = (batch, *input_shape(signature.observation, interface.observation))
        self._shape = shape if shape != (batch, *interface.observation.shape) else None
        dtype = getattr(torch, signature.observation.dtype)
        self._function = RowFunction(self._shaped(module), interface, dtype, initial)
        self._buffers = {name: tensor.clone() for name, tensor in module.named_buffers()}
        self._module = module
        self._function.try_zeros(batch)
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"PyTorch {torch.__version__}",
            **described(signature, inputs, outputs),
        }

    def _shaped(self, module: Any) -> Any:
        if self._shape is None:
            return module
        return lambda rows, *states: module(rows.reshape(self._shape), *states)

    def reset(self, seed: int) -> None:
        import torch

        self._function.reset(seed)
        with torch.no_grad():  # the trial with zeros may have changed them
            for name, tensor in self._module.named_buffers():
                tensor.copy_(self._buffers[name])

    def act(self, observations: "NDArray[Any]") -> bytes:
        return self._function.act(observations)


def _signature(program: Any) -> tuple[Signature, Sequence[Tensor], Sequence[Tensor]]:
    """Return the program's signature by position; raise Misfit if its states are not answered in their order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [_tensor(name, values) for name in program.graph_signature.user_inputs]
    outputs = [_tensor(name, values) for name in program.graph_signature.user_outputs]
    if not inputs or not outputs:
        raise Misfit(f"the program has no {'output' if inputs else 'input'}")
    if len(inputs) > 1 and len(outputs) != len(inputs):
        raise Misfit(
            f"the program has {len(inputs)} inputs and {len(outputs)} outputs; export `forward(observation, *state)`,"
            " which answers `(action, *state)`"
        )
    pairs = zip(inputs[1:], outputs[1:], strict=True) if len(inputs) > 1 else ()
    states = tuple(checked_state(RecurrentState(before, after)) for before, after in pairs)
    return Signature(inputs[0], outputs[0], states), inputs, outputs


def _tensor(name: Any, values: Mapping[str, Any]) -> Tensor:
    value = values.get(name) if isinstance(name, str) else None
    if value is None or not hasattr(value, "dtype"):
        raise Misfit(f"the program's input or output {name} is not a tensor; export a module that takes tensors alone")
    sizes = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Tensor(name, str(value.dtype).removeprefix("torch."), sizes)


FORMAT = ModelFormat(
    title="PyTorch export",
    description=(
        "A program that `torch.export.save` wrote (.pt2): it takes [n, *observation shape] and answers"
        " [n, *action shape]; further inputs are its state, and further outputs the state for the next call."
    ),
    runtime="pytorch",
    environment="python",
    requirements=("torch>=2.5",),
    isolation="scenario",  # the file may contain pickled objects, which are code
    suffixes=SUFFIXES,
    recognise=recognise,
    zip_contents=f"`{ARCHIVE}` and `{MODELS}` below one folder (`torch.export.save`)",
    preload=preload,
    load=load,
)
