"""TorchScript format: a scripted or traced PyTorch module that `torch.jit.save` wrote, run on one thread."""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..simulators.base import Space
from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample
from .torch_module import RowFunction, loading_error, members_below_root, preload

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Members below the folder of every TorchScript archive (torch/csrc/jit/serialization/import.cpp).
CODE, DATA = "code/", "data.pkl"
SUFFIXES = (".pt",)
SIGNATURE = (
    "it has to be `forward(observation)` or `forward(observation, state: Optional[...] = None)`, which answers the"
    " action and the state; a module may also keep its state itself"
)


def recognise(sample: Sample) -> Recognition | None:
    """Recognise an archive of `torch.jit.save` by its code."""
    names = members_below_root(sample)
    if DATA in names and any(name.startswith(CODE) for name in names):
        return Recognition(Certainty.CONTENT)
    if sample.members is None and sample.suffix in SUFFIXES:
        return Recognition(
            Certainty.NAME, "The file is not an archive of PyTorch: save a module with `torch.jit.save`."
        )
    return None


def load(assignment: Assignment) -> LoadedModel:
    """Load the module for inference, and try it with zeros."""
    import torch

    try:
        module = torch.jit.load(io.BytesIO(assignment.source), map_location="cpu")
    except Exception as error:
        raise loading_error(error) from None
    module.eval()
    return TorchScriptModel(module, assignment)


class TorchScriptModel:
    """Calls a scripted module. The process is new for each scenario, so attributes may be the module's state."""

    def __init__(self, module: Any, assignment: Assignment) -> None:
        import torch

        self._optimized = torch.jit.optimized_execution
        stateful = _is_stateful(module)
        self._function = RowFunction(
            module,
            assignment.interface,
            _input_type(module, assignment.interface.observation),
            (None,) if stateful else (),
        )
        with self._optimized(False):
            output = self._function.try_zeros(assignment.batch)
        self._reset_state = getattr(module, "reset", None)
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"PyTorch {torch.__version__}",
            "output": output.type,
            "state": "fed back" if stateful else "none",
        }

    def reset(self, seed: int) -> None:
        self._function.reset(seed)
        if self._reset_state is not None:
            self._reset_state()

    def act(self, observations: "NDArray[Any]") -> bytes:
        with self._optimized(False):  # else the first calls, which are profiled, may round otherwise than later ones
            return self._function.act(observations)


def _is_stateful(module: Any) -> bool:
    """Return whether `forward` takes a state besides the observation; raise Misfit if it takes anything else."""
    arguments = module.forward.schema.arguments[1:]
    if not arguments or any(not argument.has_default_value() for argument in arguments[2:]):
        raise Misfit(f"the module's signature is {module.forward.schema}; {SIGNATURE}")
    if len(arguments) == 1:
        return False
    kind = str(arguments[1].type)
    if not kind.startswith("Optional["):
        if arguments[1].has_default_value():
            return False
        raise Misfit(f"the module's second input `{arguments[1].name}` is {kind}; {SIGNATURE}")
    return len(module.forward.schema.returns) == 1 and str(module.forward.schema.returns[0].type).startswith("Tuple[")


def _input_type(module: Any, space: Space) -> Any:
    """Return the type that observations are converted to: that of the module's first weights, for floats."""
    if not space.dtype.startswith("float"):
        return None
    weights = (tensor.dtype for tensor in module.parameters() if tensor.is_floating_point())
    return next(weights, None)


FORMAT = ModelFormat(
    title="TorchScript",
    description=(
        "A PyTorch module saved by `torch.jit.save`: its forward takes [n, *observation shape] and answers"
        " [n, *action shape], or the action and a state that is fed back."
    ),
    runtime="pytorch",
    environment="python",
    requirements=("torch>=1.10",),
    isolation="scenario",  # a module may keep values in its attributes
    suffixes=SUFFIXES,
    recognise=recognise,
    zip_contents="`code/` and `data.pkl` below one folder (`torch.jit.save`)",
    preload=preload,
    load=load,
)
