"""Kubernetes benchmarks: launches by size on simulated nodes, 1,000 at once, first results, episodes per second."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import cluster_driving, cluster_first, cluster_size, cluster_warm
from benchmarks.results import Figures, aim, milliseconds, number, spanned, table
from tests.cluster.cluster import Cluster
from tests.cluster.house import ROOT, Installed, bring_images

#: Seconds until a silent node counts as lost: thousands of simulated nodes on a small machine need minutes.
GRACE = 300
#: Name of the benchmark's own process, in which the executor runs.
OURS = "the executor"


def measure() -> dict[str, Any]:
    """Measure running pods on one cluster, and simulated nodes on another, where they do not disturb the first."""
    with Cluster(grace=GRACE) as cluster, tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "var") as folder:
        cluster.jobset()
        began = time.perf_counter()
        installed = Installed(cluster, Path(folder), bring_images(cluster, Path(folder)))
        cluster_first.install(installed)
        found: dict[str, Any] = {"install": time.perf_counter() - began}
        found["first"] = cluster_first.measure(cluster, installed)
        found["warm"] = cluster_warm.measure(cluster, installed)
        found["driving"] = cluster_driving.measure(cluster)
    with Cluster(grace=GRACE) as cluster:
        cluster.jobset()
        played = cluster_size.Played(cluster)
        found["many"] = cluster_size.many(played)
        found["large"] = cluster_size.large(played)  # last: what it leaves may take minutes to go
    return found


def section(found: Figures) -> str:
    """Return the section, with those of the five benchmarks that have figures."""
    parts = {"large": _large, "many": _many, "first": _first, "warm": _warm, "driving": _driving}
    return "\n\n".join(text for name, shown in parts.items() if name in found for text in shown(found[name]))


def _large(found: Figures) -> list[str]:
    rows, shares = [], []
    for row in found["rows"]:
        ours, theirs = row["ours"], row.get("kubectl")
        shares.append(ours["submit"] / ours["seconds"])
        spent = sum(ours["cpu"].values())
        rows.append(
            [
                f"{ours['pods']:,}",
                f"{ours['seconds']:.1f} s" if ours["whole"] else f"{ours['running']:,} after {ours['seconds']:.0f} s",
                milliseconds(ours["submit"]),
                f"{shares[-1]:.2%}",
                f"{ours['cpu'].get(OURS, 0.0) / spent:.1%}",
                f"{1000 * spent / ours['pods']:.0f} ms",
                f"{theirs['seconds']:.1f} s" if theirs and theirs["whole"] else "",
                f"{ours['seconds'] / theirs['seconds']:.2f}" if theirs and theirs["whole"] else "",
                _gone(ours["cleared"]),
                f"{ours['others']:.0%}",
            ]
        )
    head = ["pods", "all run after", "our call", "its share", "our share of processor time"]
    head += ["processor time a pod", "by kubectl", "ratio", "cleared away in", "others"]
    last = found["rows"][-1]["ours"]
    parts = sorted(last["mib"].items(), key=lambda item: -item[1])
    said = ", ".join(f"{name} {mib:,.0f}" for name, mib in parts)
    stopped = (
        "" if last["whole"] else f" It was abandoned after {found['patience']:.0f} s: the processors are the limit."
    )
    return [
        "**One JobSet, a Job of 64 pods per exclusive rack of 64 simulated nodes** (KWOK), one pod per node: from the "
        "executor's call until every pod runs. Meanwhile the executor polls twice a second, like a dispatcher; *by "
        "kubectl*: the same objects through `kubectl apply`, without polling.",
        table(head, rows),
        f"MiB of PSS with {last['pods']:,} pods: {said}. *other* is this process, the measure with the executor in it, "
        f"and what holds the cluster's machines together.{stopped}",
        aim("our own share of the time under 5 %", max(shares) < 0.05),
    ]


def _gone(seconds: float | None) -> str:
    return f"not in {cluster_size.PATIENCE:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _many(found: Figures) -> list[str]:
    spent = sum(found["cpu"].values())
    ours = found["cpu"].get(OURS, 0.0)
    state = (
        f"all run after {found['seconds']:.1f} s"
        if found["whole"]
        else f"{found['running']:,} run after {found['seconds']:.0f} s, when it was given up"
    )
    call, look, spun = found["submit"], found["look"], found["look_cpu"]
    return [
        f"**{found['count']:,} simulations at once**, a JobSet of one pod each, made one after the other by one "
        f"thread: made in {found['created']:.1f} s (a call p50 {milliseconds(call['p50'])}, p99 "
        f"{milliseconds(call['p99'])}), {state}; our share of all processor time {ours / spent:.1%}. One look at all "
        f"of them: p50 {milliseconds(look['p50'])}, p90 {milliseconds(look['p90'])}, of which we spin "
        f"{milliseconds(spun['p50'])}; the list is {found['bytes'] / 1e6:.1f} MB, {found['bytes_packed'] / 1e3:.0f} KB "
        f"packed. Cancelled in {found['cancelled']:.1f} s, {found['strays']} left to be seen then; what the "
        f"cluster sweeps up by itself was gone {_gone(found['cleared'])} later. Others {found['others']:.0%}.",
    ]


def _first(found: Figures) -> list[str]:
    rows, before = [], 0.0
    for step, each in found["steps"].items():
        rows.append([step, milliseconds(each["p50"]), milliseconds(each["p90"]), milliseconds(each["p50"] - before)])
        before = each["p50"]
    titles = {"job": "a bare Job", "void": "a bare Job without any volume", "jobset": "a bare JobSet's pod"}
    for what, title in titles.items():
        each, beyond = found["bare"][what], found["beyond"][what]
        rows.append([f"*the last line of {title}*", milliseconds(each["p50"]), milliseconds(each["p90"]), ""])
        rows.append([f"**beyond {title}**", milliseconds(beyond["p50"]), milliseconds(beyond["p90"]), ""])
    return [
        "**POST to first result on a real node**, the platform installed by its chart on it, images there: one POST "
        f"for 10 tasks of noop, to the first line of results; {found['bare']['job']['runs']} runs, in turn with a bare "
        "Job (one container of the same image that prints one line, and its account's token, as `kubectl create job` "
        "makes it; kubelet looks after 300 ms whether volumes are there, so that one *without any* begins sooner) and "
        "a bare JobSet (a pod with the containers, volumes, secret and policy of a simulation's, whose programs print "
        f"one line each). *Beyond* is by pairs. Others {found['others']:.0%}.",
        table(["step", "p50", "p90", "since the one before"], rows),
        aim("under 300 ms beyond the bare Job's own start", found["beyond"]["job"]["p50"] < 0.3),
    ]


def _warm(found: Figures) -> list[str]:
    rows = [
        [title, *(milliseconds(found[name][part]) for part in ("p50", "p90", "max"))]
        for name, title in (("first", "first result"), ("last", "last result of ten"))
    ]
    return [
        "**The same POST with a pod kept warm** for python on noop (the option `warm`), one at a time: the next POST "
        f"comes once another waits; {found['first']['runs']} runs. Others {found['others']:.0%}.",
        table(["step", "p50", "p90", "max"], rows),
        aim("under 500 ms in all", found["first"]["p50"] < 0.5),
    ]


def _driving(found: Figures) -> list[str]:
    rows = [
        ["laptop", spanned(found["laptop"]), spanned(found["whole_laptop"])],
        ["pod", spanned(found["pod"]), spanned(found["whole_pod"])],
        ["ratio", spanned(found["ratio"], lambda value: f"{value:.2f}"), ""],
    ]
    return [
        f"**car_street in a pod against a laptop's executor**, one worker each, {found['episodes']:,} episodes with "
        f"the baseline `{found['model']}`, in turn. *Rate*: between the first results and the last durable one, so "
        f"that a pod's start is excluded. Others {found['others']:.0%}.",
        table(["", "episodes/s", "seconds from the POST"], rows),
        aim("at least 0.95 of the laptop's", found["ratio"]["median"] >= 0.95)
        + f" (The best pod run is {number(found['pod']['max'] / found['laptop']['max'])} times the best laptop run.)",
    ]
