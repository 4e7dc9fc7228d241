"""Gang runner of pods: in a pod of its own, it has the pods of a gang run the tasks of a launch.

``python -m workers.gang_runner --launch FILE`` runs the launch that FILE describes. It listens for the replicas
(`runtimes.harness.gang.replica`) at the port that their environment names, and takes no lease before all are connected,
so that no lease expires while replicas start. It alone holds the launch's token: what ranks need it downloads, and
sends on.
"""

# isort: off
from runtimes.harness.runner import stop_signal  # noqa: F401 - first: until then the kernel drops a container's SIGTERM

# isort: on
import argparse
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from common.errors import Unsafe
from core.domain.scheduling.communications.members import ORDERS
from runtimes.harness.gang.gang_joining import DONE, PATIENCE, Gathering
from runtimes.harness.gang.gang_nodes import JoinedPod, PodFolders, SpreadTask
from runtimes.harness.gang.gang_task import GangTask
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost
from runtimes.harness.gang.replica import SITE
from workers.local_gangs import ProgramFiles
from workers.spread_gangs import GangDocument, SpreadGang, run, serve
from workers.standalone_runner import CACHE_TOKEN, cache_client

#: The file with the gang's key, beside that with the launch's token.
KEY = "gang"


class PodGang(SpreadGang):
    """The pods of a gang. After the loss of one the cluster starts all of them again, the runner's too."""

    def __init__(self, document: GangDocument, files: ProgramFiles, largest: int) -> None:
        super().__init__(document, files, largest)
        self._members = replace(self._members, sandboxed=document.level > 0, leader=self._members.first)
        self._gathering: Gathering | None = None

    @property
    def returns(self) -> bool:
        """Whether its pods are there for another task."""
        return self._task is None or not self._task.broken

    def built_by(self, task: GangTask) -> SpreadTask:
        """Start the build in the first pod."""
        self._task = self._start([replace(self.gather()[0], gang=task.gang)], task)
        return self._task

    def _join(self) -> Sequence[JoinedPod]:
        key = Path(self._document.token_file).with_name(KEY).read_text().strip()
        with socket.create_server(("", ORDERS + self._members.ports), backlog=1024) as listener:
            self._gathering = Gathering(listener, key, self.places)
            self._gathering.gather(PATIENCE)
        pods = []
        for number, connection in enumerate(self._gathering.joined):
            folders = folders_of(connection)
            if folders.level < self._document.level:
                raise Unsafe(f"a pod can make no sandbox for ranks: {folders.missing}")
            pods.append(JoinedPod(connection, self._part(number), folders=folders, site=SITE))
        return pods

    def close(self) -> None:
        """Tell the pods to end."""
        super().close()
        if self._gathering is not None:
            self._gathering.dismiss(DONE)


def folders_of(connection: GangConnection) -> PodFolders:
    """Return what a pod says of itself first. Raise ReplicaLost for anything else."""
    messages = connection.receive()
    while not messages:
        messages = connection.receive()
    try:
        return msgspec.convert(messages[0], PodFolders)
    except msgspec.ValidationError as error:
        raise ReplicaLost(f"a pod said something else than its folders: {error}") from None


def main() -> None:
    """Run one launch, given by a document."""
    parser = argparse.ArgumentParser(prog="workers.gang_runner", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    options = parser.parse_args()

    def serve_pods(document: GangDocument) -> tuple[int, str]:
        cache = cache_client(Path(document.token_file).with_name(CACHE_TOKEN))
        return serve(document, PodGang, site=Path(SITE), cache=cache)

    run(options.launch, serve_pods)


if __name__ == "__main__":
    main()
