"""Communication models: how the replicas of a gang find each other, a module for each."""

from collections.abc import Mapping

from core.domain.scheduling.communications import jax, mpi, none, packaged, tensorflow, torch, tpu
from core.domain.scheduling.communications.members import Communication

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
