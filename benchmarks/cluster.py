"""Kubernetes benchmarks: launches by size on simulated nodes, 1,000 at once, first results, episodes per second."""

import time
from typing import Any

from benchmarks import cluster_driving, cluster_first, cluster_size, cluster_warm
from benchmarks.results import Figures, aim, milliseconds, number, spanned, table
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PlatformRelease, image_folder, import_images

#: Seconds until a silent node counts as lost: thousands of simulated nodes on a small machine need minutes.
GRACE = 300
#: Name of the benchmark's own process, in which the executor runs.
OURS = "the executor"


def measure() -> dict[str, Any]:
    """Measure running pods on one cluster, and simulated nodes on another, where they do not disturb the first."""
    with Cluster(grace=GRACE) as cluster, image_folder() as folder:
        cluster.jobset()
        began = time.perf_counter()
        installed = PlatformRelease(cluster, folder, import_images(cluster, folder))
        cluster_first.install(installed)
        found: dict[str, Any] = {"install": time.perf_counter() - began}
        found["first"] = cluster_first.measure(cluster, installed)
        found["warm"] = cluster_warm.measure(cluster, installed)
        found["driving"] = cluster_driving.measure(cluster)
    with Cluster(grace=GRACE) as cluster:
        cluster.jobset()
        played = cluster_size.Played(cluster)
        found["many"] = cluster_size.many(played)
        found["large"] = cluster_size.large(played)  # last: its objects may take minutes to be deleted
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
    head = ["pods", "all run after", "the executor's call", "its share", "the executor's share of processor time"]
    head += ["processor time per pod", "by kubectl", "ratio", "deleted in", "others"]
    last = found["rows"][-1]["ours"]
    parts = sorted(last["mib"].items(), key=lambda item: -item[1])
    components = ", ".join(f"{name} {mib:,.0f}" for name, mib in parts)
    stopped = (
        "" if last["whole"] else f" It was abandoned after {found['patience']:.0f} s: the processors are the limit."
    )
    return [
        "**One JobSet, a Job of 64 pods per exclusive rack of 64 simulated nodes** (KWOK), one pod per node: from the "
        "executor's call until every pod runs. Meanwhile the executor polls twice a second, like a dispatcher; *by "
        "kubectl*: the same objects through `kubectl apply`, without polling.",
        table(head, rows),
        f"MiB of PSS with {last['pods']:,} pods: {components}. *other* is the benchmark's process, in which the "
        f"executor runs, and the processes that hold the cluster's machines.{stopped}",
        aim("the executor's own share of the time under 5 %", max(shares) < 0.05),
    ]


def _gone(seconds: float | None) -> str:
    return f"not in {cluster_size.PATIENCE:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _many(found: Figures) -> list[str]:
    spent = sum(found["cpu"].values())
    ours = found["cpu"].get(OURS, 0.0)
    state = (
        f"all run after {found['seconds']:.1f} s"
        if found["whole"]
        else f"{found['running']:,} run after {found['seconds']:.0f} s, when it was abandoned"
    )
    call, look, spun = found["submit"], found["look"], found["look_cpu"]
    return [
        f"**{found['count']:,} simulations at once**, a JobSet of one pod each, created in sequence by one thread: "
        f"created in {found['created']:.1f} s (a call p50 {milliseconds(call['p50'])}, p99 "
        f"{milliseconds(call['p99'])}), {state}; the executor's share of all processor time {ours / spent:.1%}. One "
        f"observation of all launches: p50 {milliseconds(look['p50'])}, p90 {milliseconds(look['p90'])}, of which "
        f"{milliseconds(spun['p50'])} are processor time of the executor; the list is {found['bytes'] / 1e6:.1f} MB, "
        f"{found['bytes_packed'] / 1e3:.0f} KB compressed. Cancelled in {found['cancelled']:.1f} s, with "
        f"{found['strays']} orphans left; the objects that the cluster deletes by itself were gone "
        f"{_gone(found['cleared'])} later. Others {found['others']:.0%}.",
    ]


def _first(found: Figures) -> list[str]:
    rows, before = [], 0.0
    for step, each in found["steps"].items():
        rows.append([step, milliseconds(each["p50"]), milliseconds(each["p90"]), milliseconds(each["p50"] - before)])
        before = each["p50"]
    titles = {"job": "a plain Job", "void": "a plain Job without any volume", "jobset": "a plain JobSet's pod"}
    for what, title in titles.items():
        each, beyond = found["bare"][what], found["beyond"][what]
        rows.append([f"*the last line of {title}*", milliseconds(each["p50"]), milliseconds(each["p90"]), ""])
        rows.append([f"**beyond {title}**", milliseconds(beyond["p50"]), milliseconds(beyond["p90"]), ""])
    return [
        "**POST to first result on a real node**, with the platform installed by its chart and the images on the "
        f"node: one POST for 10 tasks of noop, to the first line of results; {found['bare']['job']['runs']} runs, "
        "alternating with a plain Job (one container of the same image that prints one line, with its account's "
        "token, as by `kubectl create job`; the kubelet checks after 300 ms whether volumes are mounted, so a Job "
        "*without any* starts sooner) and a plain JobSet (a pod with the containers, volumes, Secret and policy of a "
        "simulation, whose programs print one line each). *Beyond* compares pairs of runs. Others "
        f"{found['others']:.0%}.",
        table(["step", "p50", "p90", "since the previous step"], rows),
        aim("under 300 ms beyond the plain Job's own start", found["beyond"]["job"]["p50"] < 0.3),
    ]


def _warm(found: Figures) -> list[str]:
    rows = [
        [title, *(milliseconds(found[name][part]) for part in ("p50", "p90", "max"))]
        for name, title in (("first", "first result"), ("last", "last result of ten"))
    ]
    return [
        "**The same POST with a warm pod** for python on noop (the option `warm`), one at a time: the next POST is "
        f"sent once another warm pod is ready; {found['first']['runs']} runs. Others {found['others']:.0%}.",
        table(["step", "p50", "p90", "max"], rows),
        aim("under 500 ms in all", found["first"]["p50"] < 0.5),
    ]


def _driving(found: Figures) -> list[str]:
    rows = [
        ["local", spanned(found["laptop"]), spanned(found["whole_laptop"])],
        ["pod", spanned(found["pod"]), spanned(found["whole_pod"])],
        ["ratio", spanned(found["ratio"], lambda value: f"{value:.2f}"), ""],
    ]
    return [
        f"**car_street in a pod against the local executor**, one worker each, {found['episodes']:,} episodes with "
        f"the baseline `{found['model']}`, alternating. *Rate*: between the first results and the last durable "
        f"result, so that a pod's start is excluded. Others {found['others']:.0%}.",
        table(["", "episodes/s", "seconds from the POST"], rows),
        aim("at least 0.95 of the local executor's rate", found["ratio"]["median"] >= 0.95)
        + f" (The best pod run is {number(found['pod']['max'] / found['laptop']['max'])} times the best local run.)",
    ]
