"""Attacks on the surroundings of a pod: the cluster's servers, other pods, and the sibling containers."""

import contextlib
import os
import socket
import ssl
import stat
import urllib.error
import urllib.request
from pathlib import Path

from registry import LIBC, attack, checked
from registry import Targets as Stage

TIMEOUT = 3.0
RUN = Path("/run/windtunnel")


def status(url: str) -> str:
    """Send a request and return the status: any answer means that the server was reached."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as answer:
            return f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"


@attack
def ask_the_api_server(stage: Stage) -> object:
    """HTTPS to the cluster's API server"""
    return status(f"https://{stage['api_server']}/api/v1/secrets")


@attack
def ask_the_kubelet(stage: Stage) -> object:
    """HTTPS to the node's kubelet"""
    return status(f"https://{stage['kubelet']}/pods")


@attack
def ask_another_pod(stage: Stage) -> object:
    """HTTP to a pod of the platform's API, bypassing its Service"""
    return status(f"http://{stage['pod']}/healthz")


@attack
def ask_the_runner_api(stage: Stage) -> object:
    """HTTP to the runner API"""
    return status(f"http://{stage['runner_api']}/v1/launches/{stage['launch']}")


@attack
def ask_the_cache(stage: Stage) -> object:
    """HTTP to the cache service"""
    return status(f"http://{stage['cache']}/v1/objects/private/anything")


@attack
def ask_for_credentials_of_the_machine(stage: Stage) -> object:
    """HTTP to a cloud's metadata address"""
    return status("http://169.254.169.254/latest/meta-data/")


@attack
def reach_the_database_server(stage: Stage) -> object:
    """TCP to the platform's PostgreSQL"""
    host, _, port = stage["database_server"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
        connection.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # SSLRequest
        return connection.recv(1)


@attack
def resolve_a_name(stage: Stage) -> object:
    """a name of the cluster, by the C library"""
    return socket.gethostbyname("kubernetes.default.svc.cluster.local")


@attack
def send_data_in_a_dns_name(stage: Stage) -> object:
    """a datagram to the cluster's DNS, whose name could carry any data"""
    name = b"".join(bytes([len(part)]) + part for part in b"secret.kubernetes.default.svc.cluster.local".split(b"."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.settimeout(TIMEOUT)
        out.sendto(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + name + b"\0\0\1\0\1", (stage["dns"], 53))
        return f"{len(out.recv(512))} bytes of an answer"


@attack
def multipath_to_another_pod(stage: Stage) -> object:
    """the same pod by MPTCP, which Landlock does not know"""
    host, _, port = stage["pod"].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as out:
        out.settimeout(TIMEOUT)
        out.connect((host, int(port)))
        return "connected"


@attack
def connect_to_the_runner(stage: Stage) -> object:
    """connect to the runner's socket, as a container init does"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as out:
        out.settimeout(TIMEOUT)
        out.connect(str(RUN / "sockets" / "runner.sock"))
        with contextlib.suppress(OSError):
            out.send(b'{"level": 3, "missing": [], "refusal": null}')
        out.settimeout(1.0)
        with contextlib.suppress(ConnectionError):  # closed without reading the message
            if out.recv(1 << 10):
                return "the runner answered"
        return "connected, then the runner closed the connection"


@attack
def replace_the_runners_socket(stage: Stage) -> object:
    """put a socket of its own where container inits look for the runner's"""
    os.rename(RUN / "sockets" / "runner.sock", RUN / "sockets" / "old")
    return "moved"


@attack
def leave_a_socket_for_the_evaluator(stage: Stage) -> object:
    """a new socket in the folder that all containers see"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
        out.bind(str(RUN / "sockets" / "mine"))
        return "bound"


@attack
def read_the_launchs_token(stage: Stage) -> object:
    """the token that the runner holds, by its path"""
    return (RUN / "token" / "token").read_text()


@attack
def read_the_launchs_document(stage: Stage) -> object:
    """the document that describes the launch to the runner"""
    return (RUN / "token" / "launch.json").read_text()


@attack
def read_the_accounts_token(stage: Stage) -> object:
    """the service account's token"""
    return Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text()


@attack
def read_fetched_files(stage: Stage) -> object:
    """list the model's file and the dataset's folder, among the files that the runner fetched"""
    return ", ".join(os.listdir(RUN / "files"))


@attack
def add_to_fetched_files(stage: Stage) -> object:
    """a new file among the files that the runner fetched"""
    return (RUN / "files" / "mine").write_text("mine")


@attack
def share_memory_by_name(stage: Stage) -> object:
    """a file in /dev/shm, which all containers of a pod share"""
    path = Path("/dev/shm/mine")
    try:
        return path.write_text("mine")
    finally:
        path.unlink(missing_ok=True)


@attack
def share_memory_by_number(stage: Stage) -> object:
    """a System V segment, which all containers of a pod share"""
    segment = checked(LIBC.shmget(0x77740001, 4096, 0o1666))
    checked(LIBC.shmctl(segment, 0, None))  # IPC_RMID
    return "made"


@attack
def find_shared_segments(stage: Stage) -> object:
    """read which System V segments there are"""
    return Path("/proc/sysvipc/shm").read_text()[:20]


@attack
def abstract_name_of_the_pod(stage: Stage) -> object:
    """an abstract socket, which all containers of a pod see"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
        out.bind("\0windtunnel-mine")
        return "bound"


@attack
def trace_the_first_process(stage: Stage) -> object:
    """ptrace the container's first process"""
    checked(LIBC.ptrace(0x4206, 1, 0, 0))
    LIBC.ptrace(17, 1, 0, 0)
    return "seized"


@attack
def write_into_the_first_process(stage: Stage) -> object:
    """open the memory of the container's first process"""
    return os.open("/proc/1/mem", os.O_RDWR)


@attack
def descriptors_of_the_first_process(stage: Stage) -> object:
    """the container init's descriptors, its connection to the runner among them"""
    return os.listdir("/proc/1/fd")


@attack
def other_processes_of_the_container(stage: Stage) -> object:
    """list the container's processes"""
    return [name for name in os.listdir("/proc") if name.isdigit()]


@attack
def write_the_termination_message(stage: Stage) -> object:
    """write the container's termination message, which is shown to users"""
    with open("/dev/termination-log", "w") as file:
        return file.write("") + 1


@attack
def change_the_hosts_file(stage: Stage) -> object:
    """append to /etc/hosts"""
    with open("/etc/hosts", "a") as file:
        return file.write("\n")


@attack
def change_the_image(stage: Stage) -> object:
    """a new file beside the platform's code"""
    return Path("/opt/windtunnel/src/mine.py").write_text("")


@attack
def change_the_packages(stage: Stage) -> object:
    """a new file among its environment's packages"""
    return Path("/opt/windtunnel/site/mine.py").write_text("")


@attack
def leave_a_file(stage: Stage) -> object:
    """a file in the container's /tmp, for the model of the next scenario"""
    path = Path("/tmp/note")
    try:
        return path.write_text("task 0 went so")
    finally:
        path.unlink(missing_ok=True)


@attack
def see_its_control_group(stage: Stage) -> object:
    """list the container's control group"""
    return len(os.listdir("/sys/fs/cgroup"))


@attack
def raise_its_memory_limit(stage: Stage) -> object:
    """raise the container's memory limit"""
    group = Path("/sys/fs/cgroup")
    version_1 = group / "memory"
    path = version_1 / "memory.limit_in_bytes" if version_1.exists() else group / "memory.max"
    return path.write_text(str(1 << 40))


@attack
def other_descriptors(stage: Stage) -> object:
    """descriptors besides the standard streams, and memory, pipes and socket to the evaluator"""
    descriptors = []
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            descriptors.append((stat.S_IFMT(status.st_mode), status.st_nlink))
    kinds = sorted(kind for kind, _ in descriptors)
    memory = (stat.S_IFREG, 0)  # made by the evaluator (memfd_create), so that no folder has it
    expected = sorted([stat.S_IFREG, stat.S_IFIFO, stat.S_IFIFO, stat.S_IFSOCK])
    return descriptors if kinds != expected or memory not in descriptors else None
