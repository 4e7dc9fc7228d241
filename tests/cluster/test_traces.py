"""A stopped or killed cluster leaves no process, device, route, rule, mount, cgroup or file."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import cgroups, records
from tests.cluster.__main__ import ROOT
from tests.cluster.cluster import Cluster
from tests.cluster.machines import TUNABLES
from tests.system.platform_process import census, die_with, lives
from tests.waiting import until

#: Folders to which a node's programs write in any case.
PLACES = (
    "/etc/cni /opt/cni /opt/containerd /root/.kube /run/containerd /run/flannel /run/netns /usr/libexec/kubernetes "
    "/var/lib/cni /var/lib/containerd /var/lib/kubelet /var/log/containers /var/log/pods"
).split()
SETTINGS = (*TUNABLES, "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/bridge/bridge-nf-call-iptables")


def footprint() -> set[str]:
    """Return the state of this machine that a cluster could change, as lines."""
    found = set(printed("ip", "-o", "link")) | set(printed("ip", "-4", "route")) | set(printed("ip", "-4", "rule"))
    for program in ("iptables-save", "ip6tables-save"):
        found |= {f"{program} {line}" for line in printed(program) if not line.startswith(("#", ":"))}
    for hierarchy in cgroups.hierarchies():
        found |= {f"group {path}" for path in hierarchy.iterdir() if path.is_dir()}
    for place in PLACES:
        found |= {f"file {path}" for path in (Path(place), *Path(place).glob("*")) if path.exists()}
    for setting in SETTINGS:
        path = Path("/proc/sys") / setting
        found |= {f"setting {setting} {path.read_text().strip()}"} if path.exists() else set()
    return found | {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def printed(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def ours(lines: set[str], number: int) -> set[str]:
    """Omit lines of other clusters on this machine, by the number in their names."""
    numbers = ((line, re.search(r"windtunnel-?(\d)", line)) for line in lines)
    return {line for line, found in numbers if found is None or int(found[1]) == number}


def family(pid: int) -> dict[int, int]:
    """Return a process and its descendants, with their start times in ticks."""
    table = dict(census())
    found = {pid: table[pid][1]}
    while more := {child: born for child, (parent, born) in table.items() if parent in found and child not in found}:
        found |= more
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_cluster_leaves_no_traces(own_cluster: Cluster, how: signal.Signals) -> None:
    parent, before = os.getpid(), footprint()
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "hold"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with(parent),
    )
    said: dict[str, Any] = {}
    number = -1

    def ready() -> bool:
        nonlocal number
        assert holder.poll() is None, "it does not come up"
        for found, record in records.living():
            if record.get("pid") == holder.pid and record.get("ready"):
                number = found
                said.update(record)
        return bool(said)

    own_cluster.until(ready, "a second cluster is ready")
    everybody = family(holder.pid)
    assert len(everybody) > 15, "these are its programs and its pods'"
    assert ours(footprint(), number) - before, "there is something to be left behind"
    holder.send_signal(how)
    holder.wait(60)
    until(lambda: not any(lives(pid, born) for pid, born in everybody.items()), message="some outlive it")
    if how is signal.SIGKILL:
        assert Path(said["folder"]).exists(), "nobody was there to clear it away"
        records.sweep()
    left = footprint()
    assert not ours(left - before, number)
    assert not ours(before - left, number)
    assert not Path(said["folder"]).exists()
    assert own_cluster.get("/readyz?verbose") is not None, "the other cluster does not mind"
