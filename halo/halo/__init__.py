"""Domain decomposition with overlap: blocks of a regular grid on the ranks of MPI, and the exchange of their halos.

This module and `halo.checkpoints` need no MPI, so that a decomposition can be planned and a checkpoint read where there
is none; `halo.fields` needs mpi4py. Programs in C include `halo.h`, which is in the folder `include()`.
"""

from pathlib import Path

from halo.decomposition import Decomposition, Edge, GridBlock, Region

__all__ = ["Decomposition", "Edge", "GridBlock", "Region", "include"]


def include() -> Path:
    """Return the folder of `halo.h`, for a C compiler's option ``-I``."""
    return Path(__file__).parent / "include"
