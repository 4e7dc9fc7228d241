"""Images with an MPI and an ssh server, built like the MPI operator's own: its base image and an MPI.

They follow its Dockerfiles and use the files that these copy, but this machine's packages, and no Docker.
"""

import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from runtimes.images import build, layers
from tests.cached import image
from tests.cluster.tools import tool
from tests.image_archives import unpack

ROOT = Path(__file__).parents[2]
PORT = 2222
SSHD = "usr/sbin/sshd"
#: What `setcap CAP_NET_BIND_SERVICE=+eip` writes: of the second version, effective, permitted and inheritable.
BIND_CAPABILITY = b"\1\0\0\2" + 2 * (1 << 10).to_bytes(4, "little") + bytes(8)
#: Parts of an environment that do not belong to the MPI.
NOT_MPI = shutil.ignore_patterns("python*", "activate*", "deactivate*", "pydoc*", "include", "lib64", "*.cfg")
SSH = f"""Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    Port {PORT}
"""
USERS = "sshd:x:100:65534::/run/sshd:/bin/false\nmpiuser:x:1000:1000::/home/mpiuser:/bin/sh\n"


def write(implementation: str, folder: Path) -> tuple[str, Path]:
    """Write an image of `openmpi` or `mpich`, with Python and mpi4py; return its name and archive."""
    root = folder / implementation
    unpack(image("python").archive, root)
    environment = Path(tool(implementation)).parents[1]
    _copy_base_image(root)
    shutil.copytree(environment, root / "usr", symlinks=True, dirs_exist_ok=True, ignore=NOT_MPI)
    _install_python(root, environment)
    config: dict[str, Any] = {
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/home/mpiuser",
    }
    if implementation == "mpich":
        shutil.copyfile(_source() / "entrypoint.sh", root / "entrypoint.sh")
        (root / "entrypoint.sh").chmod(0o755)
        config["Entrypoint"] = ["/entrypoint.sh"]
    written_layers = [layers.write(root, root.with_suffix(".layer"), packed=False), _ssh_server_layer(root, folder)]
    manifest, configured = layers.manifest(written_layers, config, build.MACHINES[platform.machine()])
    reference = f"windtunnel.local/{implementation}:{written_layers[0].digest[:12]}"
    archive = folder / f"{implementation}.tar"
    layers.archive(archive, reference, written_layers, manifest, configured)
    shutil.rmtree(root)
    return reference, archive


def _source() -> Path:
    return tool("source", "mpi-operator", "github.com/kubeflow/mpi-operator") / "build" / "base"


def _copy_base_image(root: Path) -> None:
    """Copy the operator's base image to a folder: its ssh server and client, their settings, and its user."""
    # its C library as well: libraries of one distribution belong together
    copy = ["cp", "--archive", "--no-target-directory", "--remove-destination"]
    subprocess.run([*copy, tool("mpi-base"), root], check=True)
    for alias, program in (("bin/sh", "dash"), ("usr/bin/awk", "mawk")):
        (root / alias).unlink(missing_ok=True)
        (root / alias).symlink_to(program)
    (root / "etc/ssh/ssh_config").write_text(SSH)
    with open(root / "etc/passwd", "a") as users:
        users.write(USERS)
    with open(root / "etc/group", "a") as groups:
        groups.write("mpiuser:x:1000:\n")
    home = root / "home/mpiuser"
    home.mkdir(parents=True)
    (home / ".sshd_config").write_text((_source() / "sshd_config").read_text() + f"Port {PORT}\n")


def _install_python(root: Path, environment: Path) -> None:
    """Install Python and mpi4py where a shell that ssh opened finds them."""
    for alias in ("python", "python3"):
        (root / "usr/bin" / alias).symlink_to("/opt/windtunnel/python/bin/python")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"lib/{version}/site-packages"
    shutil.copytree(environment / packages / "mpi4py", root / "opt/windtunnel/python" / packages / "mpi4py")


def _ssh_server_layer(root: Path, folder: Path) -> layers.Layer:
    """Write the ssh server again with the base image's file capability, which a folder here cannot have."""
    program = (root / SSHD).read_bytes()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo(SSHD)
        entry.mode, entry.size = 0o755, len(program)
        entry.pax_headers = {"SCHILY.xattr.security.capability": BIND_CAPABILITY.decode()}
        tar.addfile(entry, io.BytesIO(program))
    path = folder / "capable.layer"
    path.write_bytes(layer.getvalue())
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    return layers.Layer(path, digest, digest, len(layer.getvalue()), packed=False)
