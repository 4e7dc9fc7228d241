"""Fixtures of tests of the halo package."""

import pytest

from tests.mpi import Mpi, prepared_mpi


@pytest.fixture(scope="session")
def mpi() -> Mpi:
    """The MPI of the platform's gangs."""
    return prepared_mpi()
