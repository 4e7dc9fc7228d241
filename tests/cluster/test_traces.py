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
    state = set(output_lines("ip", "-o", "link"))
    state |= set(output_lines("ip", "-4", "route")) | set(output_lines("ip", "-4", "rule"))
    for program in ("iptables-save", "ip6tables-save"):
        state |= {f"{program} {line}" for line in output_lines(program) if not line.startswith(("#", ":"))}
    for hierarchy in cgroups.hierarchies():
        state |= {f"group {path}" for path in hierarchy.iterdir() if path.is_dir()}
    for folder in PLACES:
        state |= {f"file {path}" for path in (Path(folder), *Path(folder).glob("*")) if path.exists()}
    for setting in SETTINGS:
        path = Path("/proc/sys") / setting
        state |= {f"setting {setting} {path.read_text().strip()}"} if path.exists() else set()
    return state | {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def output_lines(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def without_other_clusters(lines: set[str], number: int) -> set[str]:
    """Omit lines of other clusters on this machine, by the number in their names."""
    numbers = ((line, re.search(r"windtunnel-?(\d)", line)) for line in lines)
    return {line for line, match in numbers if match is None or int(match[1]) == number}


def process_tree(pid: int) -> dict[int, int]:
    """Return a process and its descendants, with their start times in ticks."""
    table = dict(census())
    tree = {pid: table[pid][1]}
    while children := {
        child: start_time for child, (parent, start_time) in table.items() if parent in tree and child not in tree
    }:
        tree |= children
    return tree


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_cluster_leaves_no_traces(own_cluster: Cluster, signal_number: signal.Signals) -> None:
    parent, before = os.getpid(), footprint()
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "hold"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with(parent),
    )
    own_record: dict[str, Any] = {}
    number = -1

    def ready() -> bool:
        nonlocal number
        assert holder.poll() is None, "the second cluster does not start"
        for candidate, record in records.running_clusters():
            if record.get("pid") == holder.pid and record.get("ready"):
                number = candidate
                own_record.update(record)
        return bool(own_record)

    own_cluster.until(ready, "a second cluster is ready")
    processes = process_tree(holder.pid)
    assert len(processes) > 15, "the programs of the cluster and of its pods"
    assert without_other_clusters(footprint(), number) - before, "a running cluster changes the machine"
    holder.send_signal(signal_number)
    holder.wait(60)
    until(
        lambda: not any(lives(pid, start_time) for pid, start_time in processes.items()),
        message="processes outlive the cluster",
    )
    if signal_number is signal.SIGKILL:
        assert Path(own_record["folder"]).exists(), "a killed process cannot remove its folder"
        records.sweep()
    after = footprint()
    assert not without_other_clusters(after - before, number)
    assert not without_other_clusters(before - after, number)
    assert not Path(own_record["folder"]).exists()
    assert own_cluster.get("/readyz?verbose") is not None, "the other cluster is unaffected"
