"""PyTorch modules: their libraries, and calls of a loaded module on one thread with rows of observations."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..simulators.base import Interface
from .base import Misfit, NoAction, Sample, Unreadable, action_bytes
from .tensors import Tensor, check_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A module's function: observations, then its state; answers the action, then the state.
Call = Callable[..., Any]
#: The most characters of an error of PyTorch that a refusal has: they end with the line of the module's code.
LONGEST = 700


def preload() -> None:
    """Import PyTorch, for one thread."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")  # TorchScript's own end, at each load
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)


def members_below_root(sample: Sample) -> frozenset[str]:
    """Return the names in a file that `torch` has saved, a zip with a single folder at its top, below that folder."""
    members = sample.members or ()
    roots = {name.partition("/")[0] for name in members}
    return frozenset(name.partition("/")[2] for name in members) if len(roots) == 1 else frozenset()


def loading_error(error: Exception) -> Misfit:
    """Return the refusal of a file that PyTorch does not load."""
    import torch

    return Unreadable(f"PyTorch {torch.__version__} does not load the model: {shortened(error)}")


def shortened(error: Exception) -> str:
    """Return the text of PyTorch's error without the frames of its C++ code, cut from the front if it is long."""
    text = str(error).partition("\nException raised from")[0].strip() or type(error).__name__
    return text if len(text) <= LONGEST else f"...{text[-LONGEST:]}"


class RowFunction:
    """Calls a module's function with rows of observations of ``dtype`` (of torch; None: as they are), and its state.

    ``states``: the number of values that are fed back; their values after a reset are ``initial``.
    """

    def __init__(self, call: Call, interface: Interface, dtype: Any, initial: tuple[Any, ...] = ()) -> None:
        import torch

        self._torch = torch
        self._call = call
        self._interface = interface
        self._dtype = dtype
        self._initial = self._values = initial

    def reset(self, seed: int) -> None:
        """Begin with the initial state, and seed PyTorch's generator."""
        self._torch.manual_seed(seed)
        self._values = self._initial

    def act(self, observations: "NDArray[Any]") -> bytes:
        """Map rows of observations to the bytes of actions."""
        answer = self.answer(observations)
        return action_bytes(answer.numpy(), len(observations), self._interface.action)

    def answer(self, observations: "NDArray[Any]") -> Any:
        """Map rows of observations to a tensor of actions; keep the state."""
        torch = self._torch
        with torch.inference_mode():
            rows = torch.from_numpy(observations.copy())  # the module may keep it
            if self._dtype is not None:
                rows = rows.to(self._dtype)
            answers = self._call(rows, *self._values)
        action, *values = answers if isinstance(answers, tuple | list) else (answers,)
        if self._values:
            if len(values) != len(self._values):
                raise NoAction(f"the model answered {len(values)} states, and takes {len(self._values)}")
            self._values = tuple(values)
        if not isinstance(action, torch.Tensor):
            raise NoAction(f"the model answered {type(action).__name__}, not a tensor")
        return action.detach().cpu()

    def try_zeros(self, batch: int) -> Tensor:
        """Call the function once with zeros, and check its answer; return the answer's type. Raise Misfit."""
        import numpy as np

        space = self._interface.observation
        zeros = np.zeros((batch, *space.shape), space.dtype)
        try:
            answer = self.answer(zeros)
        except NoAction as error:
            raise Misfit(f"{error} (tried with zeros)") from None
        except Exception as error:
            raise Misfit(
                f"the model does not take observations of {space.dtype}{list(zeros.shape)}: {shortened(error)}"
            ) from None
        tensor = Tensor("output", str(answer.dtype).removeprefix("torch."), tuple(answer.shape))
        check_output(tensor, self._interface.action, batch)
        return tensor
