"""Signature of a graph: which of its inputs and outputs are observation, action and recurrent state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .base import Misfit
from .recurrence import PAIRING, DeclaredState, RecurrentState, names_of, states_of
from .tensors import Tensor

#: Names of the observation's input and of the action's output, the most telling first.
OBSERVATIONS, ACTIONS = ("observation", "obs", "input"), ("action", "actions")
#: The most characters of a description, which a model server sends in one frame with the others.
LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Signature:
    """Which input is the observation, which output is the action, and what is fed back."""

    observation: Tensor
    action: Tensor
    states: tuple[RecurrentState, ...] = ()


def signature_of(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], declared: Mapping[str, DeclaredState] | None = None
) -> Signature:
    """Find observation, action and state; raise Misfit with the inputs that are neither.

    The only input is the observation, whatever its name. Pairs of the metadata come before those by name.
    """
    if not inputs or not outputs:
        raise Misfit(f"the model has no {'output' if inputs else 'input'}")
    states = tuple(states_of(inputs, outputs, declared or {}))
    paired = {state.input.name for state in states}
    observation = _observation([tensor for tensor in inputs if tensor.name not in paired], states)
    fed_back = {state.output.name for state in states}
    answers = [tensor for tensor in outputs if tensor.name not in fed_back]
    if not answers:
        raise Misfit(f"all outputs of the model are states ({names_of(outputs)}); it needs one more, the action")
    return Signature(observation, _named(answers, ACTIONS) or answers[0], states)


def _observation(candidates: Sequence[Tensor], states: Sequence[RecurrentState]) -> Tensor:
    observation = _named(candidates, OBSERVATIONS) or (candidates[0] if len(candidates) == 1 else None)
    if observation is None:
        besides = f" besides its state ({', '.join(state.input.name for state in states)})" if states else ""
        found = f"{len(candidates)} inputs ({names_of(candidates)})" if candidates else "no input"
        raise Misfit(f"the model has {found}{besides}; name the input of the observation {' or '.join(OBSERVATIONS)}")
    for tensor in candidates:
        if tensor is not observation:
            raise Misfit(
                f"the model's input {tensor.name} {tensor.type} is neither the observation ({observation.name}) nor a"
                f" state that an output is paired with; if it is a state, {PAIRING}; otherwise export the model"
                " without it"
            )
    return observation


def _named(tensors: Sequence[Tensor], names: Sequence[str]) -> Tensor | None:
    by_name = {tensor.name: tensor for tensor in tensors}
    return next((by_name[name] for name in names if name in by_name), None)


def described(signature: Signature, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, str]:
    """Describe a signature for people: its inputs and outputs, and what is fed back."""
    return {
        "inputs": _listed(map(str, inputs)),
        "outputs": _listed(map(str, outputs)),
        "observation": signature.observation.name[:LONGEST],
        "action": signature.action.name[:LONGEST],
        "state": _listed(f"{state.input.name} from {state.output.name}" for state in signature.states) or "none",
    }


def _listed(texts: Iterable[str]) -> str:
    text = ", ".join(texts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
