"""MPI for tests: that of the platform's gangs, with as many ranks as a test wants on this machine."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS

#: Folder that has the package, and seconds that ranks may take on a busy machine.
PACKAGE, PATIENCE = Path(__file__).parents[1] / "halo", 120
#: Settings of MPICH: TCP as its network, which is not used here, and no reading of another rank's memory.
SETTINGS = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "UCX_LOG_LEVEL": "fatal",
}


@dataclass(frozen=True)
class Mpi:
    """An MPI in a folder of packages."""

    site: Path

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of a program that uses it."""
        paths = {"PYTHONPATH": f"{self.site}:{PACKAGE}", "LD_LIBRARY_PATH": f"{self.site}/lib"}
        return os.environ | SETTINGS | paths | {"PATH": f"{self.site}/bin:{os.environ['PATH']}"}

    def run(self, ranks: int, *command: str | Path) -> str:
        """Run a program on so many ranks; return what it has printed."""
        ended = subprocess.run(
            ["mpiexec", "-n", str(ranks), *command],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, ended.stdout[-5000:]
        return ended.stdout

    def python(self, ranks: int, *command: str | Path) -> str:
        """Run a program in Python, to which warnings are errors."""
        return self.run(ranks, sys.executable, "-W", "error", "-m", "mpi4py", *command)

    def compiled(self, source: Path, program: Path) -> Path:
        """Compile a program in C that uses `halo.h`; warnings are errors."""
        options = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
        command = ["mpicc", *options, f"-I{PACKAGE}/halo/include", "-o", program, source]
        built = subprocess.run(command, env=self.environ, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        return program


def prepared_mpi() -> Mpi:
    """Return the MPI of the platform's gangs; it is installed once per machine."""
    return Mpi(environments.prepare(catalogue.communications()["mpi"], ENVIRONMENTS, lambda message, fraction: None))
