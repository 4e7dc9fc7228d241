"""Serve S3 from a folder by OpenStack Swift: four small servers on loopback, one replica, one user. For tests.

    python server.py FOLDER PORT    with SWIFT_ACCESS_KEY and SWIFT_SECRET_KEY in the environment

The folder's file system must have extended attributes, where Swift keeps what it knows of an object.
"""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

from swift.common import utils
from swift.common.ring import RingBuilder
from swift.common.wsgi import run_wsgi

COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
log_address = {folder}/nobody-listens
log_level = ERROR
"""
BACK = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
FRONT = """
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache s3api tempauth symlink slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
allow_no_owner = true
force_swift_request_proxy_log = false
[filter:tempauth]
use = egg:swift#tempauth
user_{user} = {secret} .admin
[filter:symlink]
use = egg:swift#symlink
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""


def free_port():
    """Return a port that nobody listens on now."""
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return end.getsockname()[1]


def lay_out(folder, port, access_key, secret_key):
    """Write rings and configurations; return each server's kind with its configuration."""
    (folder / "devices" / "d1").mkdir(parents=True, exist_ok=True)
    (folder / "swift.conf").write_text(f"[swift-hash]\nswift_hash_path_suffix = {secret_key}\n")
    ports = {kind: free_port() for kind in ("account", "container", "object")}
    for kind, at in ports.items():
        builder = RingBuilder(4, 1, 0)
        device = {"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": at, "device": "d1", "weight": 1.0}
        builder.add_dev(device | {"replication_ip": "127.0.0.1", "replication_port": at, "meta": ""})
        builder.rebalance()
        builder.get_ring().save(str(folder / f"{kind}.ring.gz"))
    user = access_key.replace(":", "_")
    texts = {kind: COMMON.format(port=at, folder=folder) + BACK.format(kind=kind) for kind, at in ports.items()}
    texts["proxy"] = COMMON.format(port=port, folder=folder) + FRONT.format(user=user, secret=secret_key)
    for kind, text in texts.items():
        path = folder / f"{kind}.conf"
        path.touch(mode=0o600)
        path.write_text(text)
        yield kind, path


def serve(kind, path, parent):
    """Be one of the servers, for as long as the parent lives."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == parent:
        run_wsgi(str(path), f"{kind}-server")


def main():
    """Start the four, and end with the first of them."""
    folder, port = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    utils.SWIFT_CONF_FILE = str(folder / "swift.conf")
    made = list(lay_out(folder, port, os.environ["SWIFT_ACCESS_KEY"], os.environ["SWIFT_SECRET_KEY"]))
    parent = os.getpid()
    for kind, path in made:
        if os.fork() == 0:
            serve(kind, path, parent)
            os._exit(1)
    os.wait()


main()
