"""Kubernetes benchmarks: launches by size on simulated nodes, 1,000 at once, first results, episodes per second."""

import time
from typing import Any

from benchmarks import cluster_driving, cluster_first, cluster_size, cluster_warm
from benchmarks.results import Figures, aim, milliseconds, number, spanned, table
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PlatformRelease, image_folder, import_images

#: Seconds until a silent node counts as lost: thousands of simulated nodes on a small machine need minutes.
GRACE = 300
#: Component of the benchmark's own process, in which the executor runs.
EXECUTOR = "the executor"


def measure() -> dict[str, Any]:
    """Measure running pods on one cluster, and simulated nodes on another, where they do not disturb the first."""
    with Cluster(grace=GRACE) as cluster, image_folder() as folder:
        cluster.jobset()
        began = time.perf_counter()
        installed = PlatformRelease(cluster, folder, import_images(cluster, folder))
        cluster_first.install(installed)
        figures: dict[str, Any] = {"install": time.perf_counter() - began}
        figures["first"] = cluster_first.measure(cluster, installed)
        figures["warm"] = cluster_warm.measure(cluster, installed)
        figures["driving"] = cluster_driving.measure(cluster)
    with Cluster(grace=GRACE) as cluster:
        cluster.jobset()
        simulated = cluster_size.SimulatedCluster(cluster)
        figures["many"] = cluster_size.many(simulated)
        figures["large"] = cluster_size.large(simulated)  # last: its objects may take minutes to be deleted
    return figures


def section(figures: Figures) -> str:
    """Return the section: a part for each of the five benchmarks that has figures."""
    parts = {"large": _large, "many": _many, "first": _first, "warm": _warm, "driving": _driving}
    return "\n\n".join(
        text for name, section_of in parts.items() if name in figures for text in section_of(figures[name])
    )


def _large(figures: Figures) -> list[str]:
    rows, shares = [], []
    for row in figures["rows"]:
        executor_run, kubectl_run = row["ours"], row.get("kubectl")
        shares.append(executor_run["submit"] / executor_run["seconds"])
        processor_seconds = sum(executor_run["cpu"].values())
        rows.append(
            [
                f"{executor_run['pods']:,}",
                f"{executor_run['seconds']:.1f} s"
                if executor_run["whole"]
                else f"{executor_run['running']:,} after {executor_run['seconds']:.0f} s",
                milliseconds(executor_run["submit"]),
                f"{shares[-1]:.2%}",
                f"{executor_run['cpu'].get(EXECUTOR, 0.0) / processor_seconds:.1%}",
                f"{1000 * processor_seconds / executor_run['pods']:.0f} ms",
                f"{kubectl_run['seconds']:.1f} s" if kubectl_run and kubectl_run["whole"] else "",
                f"{executor_run['seconds'] / kubectl_run['seconds']:.2f}"
                if kubectl_run and kubectl_run["whole"]
                else "",
                _deletion_time(executor_run["cleared"]),
                f"{executor_run['others']:.0%}",
            ]
        )
    head = ["pods", "all run after", "the executor's call", "its share", "the executor's share of processor time"]
    head += ["processor time per pod", "by kubectl", "ratio", "deleted in", "others"]
    largest = figures["rows"][-1]["ours"]
    parts = sorted(largest["mib"].items(), key=lambda item: -item[1])
    components = ", ".join(f"{name} {mib:,.0f}" for name, mib in parts)
    stopped = (
        ""
        if largest["whole"]
        else f" It was abandoned after {figures['patience']:.0f} s: the processors are the limit."
    )
    return [
        "**One JobSet, a Job of 64 pods per exclusive rack of 64 simulated nodes** (KWOK), one pod per node: from the "
        "executor's call until every pod runs. Meanwhile the executor polls twice a second, like a dispatcher; *by "
        "kubectl*: the same objects through `kubectl apply`, without polling.",
        table(head, rows),
        f"MiB of PSS with {largest['pods']:,} pods: {components}. *other* is the benchmark's process, in which the "
        f"executor runs, and the processes that hold the cluster's machines.{stopped}",
        aim("the executor's own share of the time under 5 %", max(shares) < 0.05),
    ]


def _deletion_time(seconds: float | None) -> str:
    return f"not in {cluster_size.PATIENCE:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _many(figures: Figures) -> list[str]:
    processor_seconds = sum(figures["cpu"].values())
    executor_seconds = figures["cpu"].get(EXECUTOR, 0.0)
    state = (
        f"all run after {figures['seconds']:.1f} s"
        if figures["whole"]
        else f"{figures['running']:,} run after {figures['seconds']:.0f} s, when it was abandoned"
    )
    creation, observation, observation_cpu = figures["submit"], figures["look"], figures["look_cpu"]
    share = executor_seconds / processor_seconds
    return [
        f"**{figures['count']:,} simulations at once**, a JobSet of one pod each, created in sequence by one thread: "
        f"created in {figures['created']:.1f} s (a call p50 {milliseconds(creation['p50'])}, p99 "
        f"{milliseconds(creation['p99'])}), {state}; the executor's share of all processor time {share:.1%}. One "
        f"observation of all launches: p50 {milliseconds(observation['p50'])}, p90 "
        f"{milliseconds(observation['p90'])}, of which {milliseconds(observation_cpu['p50'])} are processor time of "
        f"the executor; the list is {figures['bytes'] / 1e6:.1f} MB, "
        f"{figures['bytes_packed'] / 1e3:.0f} KB compressed. Cancelled in {figures['cancelled']:.1f} s, with "
        f"{figures['orphans']} orphans left; the objects that the cluster deletes by itself were gone "
        f"{_deletion_time(figures['cleared'])} later. Others {figures['others']:.0%}.",
    ]


def _first(figures: Figures) -> list[str]:
    rows, before = [], 0.0
    for step, tails in figures["steps"].items():
        rows.append([step, milliseconds(tails["p50"]), milliseconds(tails["p90"]), milliseconds(tails["p50"] - before)])
        before = tails["p50"]
    titles = {"job": "a plain Job", "void": "a plain Job without any volume", "jobset": "a plain JobSet's pod"}
    for kind, title in titles.items():
        tails, beyond = figures["bare"][kind], figures["beyond"][kind]
        rows.append([f"*the last line of {title}*", milliseconds(tails["p50"]), milliseconds(tails["p90"]), ""])
        rows.append([f"**beyond {title}**", milliseconds(beyond["p50"]), milliseconds(beyond["p90"]), ""])
    return [
        "**POST to first result on a real node**, with the platform installed by its chart and the images on the "
        f"node: one POST for 10 tasks of noop, to the first line of results; {figures['bare']['job']['runs']} runs, "
        "alternating with a plain Job (one container of the same image that prints one line, with its account's "
        "token, as by `kubectl create job`; the kubelet checks after 300 ms whether volumes are mounted, so a Job "
        "*without any* starts sooner) and a plain JobSet (a pod with the containers, volumes, Secret and policy of a "
        "simulation, whose programs print one line each). *Beyond* compares pairs of runs. Others "
        f"{figures['others']:.0%}.",
        table(["step", "p50", "p90", "since the previous step"], rows),
        aim("under 300 ms beyond the plain Job's own start", figures["beyond"]["job"]["p50"] < 0.3),
    ]


def _warm(figures: Figures) -> list[str]:
    rows = [
        [title, *(milliseconds(figures[name][part]) for part in ("p50", "p90", "max"))]
        for name, title in (("first", "first result"), ("last", "last result of ten"))
    ]
    return [
        "**The same POST with a warm pod** for python on noop (the option `warm`), one at a time: the next POST is "
        f"sent once another warm pod is ready; {figures['first']['runs']} runs. Others {figures['others']:.0%}.",
        table(["step", "p50", "p90", "max"], rows),
        aim("under 500 ms in all", figures["first"]["p50"] < 0.5),
    ]


def _driving(figures: Figures) -> list[str]:
    best_ratio = figures["pod"]["max"] / figures["laptop"]["max"]
    rows = [
        ["local", spanned(figures["laptop"]), spanned(figures["whole_laptop"])],
        ["pod", spanned(figures["pod"]), spanned(figures["whole_pod"])],
        ["ratio", spanned(figures["ratio"], lambda value: f"{value:.2f}"), ""],
    ]
    return [
        f"**car_street in a pod against the local executor**, one worker each, {figures['episodes']:,} episodes with "
        f"the baseline `{figures['model']}`, alternating. *Rate*: between the first results and the last durable "
        f"result, so that a pod's start is excluded. Others {figures['others']:.0%}.",
        table(["", "episodes/s", "seconds from the POST"], rows),
        aim("at least 0.95 of the local executor's rate", figures["ratio"]["median"] >= 0.95)
        + f" (The best pod run is {number(best_ratio)} times the best local run.)",
    ]
