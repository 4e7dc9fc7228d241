"""Communication models: how the replicas of a gang find each other, a module for each."""

from collections.abc import Mapping

from core.domain.scheduling.communications import jax, mpi, none, packaged, tensorflow, torch, tpu
from core.domain.scheduling.communications.members import Communication
from core.domain.scheduling.launches import Gang

#: All of them, by their names.
COMMUNICATIONS: Mapping[str, Communication] = {
    "none": none.COMMUNICATION,
    mpi.NAME: mpi.COMMUNICATION,
    "torch": torch.COMMUNICATION,
    "tensorflow": tensorflow.COMMUNICATION,
    "jax": jax.COMMUNICATION,
    "tpu": tpu.COMMUNICATION,
    "packaged": packaged.COMMUNICATION,
}


def refusal_of_shape(gang: Gang) -> str | None:
    """Return why a gang cannot have its slices or slots; None: its communication model knows them."""
    model = COMMUNICATIONS[gang.communication]
    if gang.slices > 1 and not model.sliced:
        wrong, knowing = "slices", [name for name, model in COMMUNICATIONS.items() if model.sliced]
    elif gang.slots > 1 and not model.slotted:
        wrong, knowing = "slots", [name for name, model in COMMUNICATIONS.items() if model.slotted]
    else:
        return None
    names = " and ".join(f"`{name}`" for name in knowing)
    return f"`gang.{wrong}` are for {names}; with `{gang.communication}`, use a larger `size`."
