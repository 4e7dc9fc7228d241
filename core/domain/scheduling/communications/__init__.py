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


def refusal_of_slices(gang: Gang) -> str | None:
    """Return why a gang cannot have its slices; None: it has one, or its communication model knows them."""
    if gang.slices == 1 or COMMUNICATIONS[gang.communication].sliced:
        return None
    sliced = " and ".join(f"`{name}`" for name, model in COMMUNICATIONS.items() if model.sliced)
    return f"`gang.slices` are for {sliced}; with `{gang.communication}`, use a larger `size`."
