"""The table of results: benchmarks/RESULTS.md, written from what the measures kept."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.figures import kept

PAGE = Path("benchmarks/RESULTS.md")
HEAD = """# What it measures up to

Written by `make bench`; nothing here is a test, and no test is timed. Every figure is the median of its runs with the
least and the most in brackets, unless it says otherwise. *Others* is the share of all processors that something else
used when a measure began. Compare the ratios within one section, not the figures across machines.
"""
Figures = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table: first column to the left, figures to the right."""
    names = list(head)
    lines = [names, [":--"] + ["--:"] * (len(names) - 1), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Write a figure with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spanned(found: Figures, unit: Callable[[float], str] = number) -> str:
    """Write a median with its least and most."""
    return f"{unit(found['median'])} ({unit(found['min'])} to {unit(found['max'])})"


def milliseconds(seconds: float) -> str:
    """Write seconds as milliseconds."""
    return f"{number(seconds * 1000)} ms"


def aim(wanted: str, met: bool) -> str:
    """Say what was aimed at and whether it is reached here."""
    return f"Aim: {wanted}: **{'met' if met else 'not met'}** here."


def fanout(found: Figures) -> str:
    """Show no-op tasks a second, the platform's and the peers'."""
    batches = found["batches"]
    named = {"1": "1 task a frame, two frames a task", "16": "16 tasks a frame"}
    own = [
        [
            f"**Windtunnel**, {named[batch]}",
            spanned(each["done"]),
            spanned(each["succeeded"]),
            spanned(each["read"]),
        ]
        for batch, each in batches.items()
    ]
    base = batches["1"]["done"]["median"]
    parts = [
        f"{found['tasks']:,} tasks in one request, {found['workers']} workers (each a sandboxed evaluator and a "
        "sandboxed model server), every result durable. *Done*: from the POST until the API counts a result for every "
        "task. *Succeeded*: until they are summed up as well. *Read back*: all lines fetched as NDJSON and checked "
        "for order and completeness.",
        table(["tasks/s", "done", "succeeded", "read back"], own),
        aim("50,000 tasks/s on two cores", base >= 50_000),
    ]
    peers = found["peers"]
    rows = [
        [f"{name} ({each['version']})", spanned(each), number(base / each["median"])] for name, each in peers.items()
    ]
    count = next(iter(peers.values()))["tasks"]
    costs = processor_time([each["cpu"] for each in batches.values()], 1e6)
    parts += [
        f"Peers, two workers each, in turn with the platform: {count:,} tasks after a warm-up, from the first handed "
        "in to the last result in the caller's hands. None of them confines its tasks; multiprocessing.Pool and Dask "
        "keep nothing, Ray keeps results in memory. The ratio is Windtunnel's *done* at one task a frame to the "
        "peer's.",
        table(["peer", "tasks/s", "ratio"], rows),
        "Processor time a task, to *succeeded* and read back (it bears a busy machine better than a rate does):",
        table(["microseconds", *(f"{batch} a frame" for batch in batches)], costs),
    ]
    return "\n\n".join(parts)


def processor_time(runs: list[dict[str, float]], scale: float) -> list[list[str]]:
    """Show where processor time goes, the part dearest in the first kind of run first."""
    names = sorted({name for run in runs for name in run}, key=lambda name: -runs[0].get(name, 0.0))
    costs = [[name, *(number(run.get(name, 0.0) * scale) for run in runs)] for name in names]
    return [*costs, ["**all**", *(f"**{number(sum(run.values()) * scale)}**" for run in runs)]]


def latency(found: Figures) -> str:
    """Show how long the first result takes."""
    rows = []
    for name, each in found["kinds"].items():
        for key, title in (("first", "first result"), ("whole", "last result"), ("back_to_back", "first, no pause")):
            tails = [milliseconds(each[key][share]) for share in ("p50", "p90", "p99", "max")]
            rows.append([f"{name}: {title}", *tails, str(each[key]["runs"])])
    job = found["ray_job"]
    tails = [milliseconds(job[share]) for share in ("p50", "p90", "p99", "max")]
    rows.append([f"an empty job through Ray's job API ({job['version']})", *tails, str(job["runs"])])
    firsts = [each["first"] for each in found["kinds"].values()]
    met = max(first["p50"] for first in firsts) < 0.1 and max(first["p99"] for first in firsts) < 0.3
    return "\n\n".join(
        [
            "One POST with `Accept: application/x-ndjson` on a kept-alive connection, from sending it to the first "
            f"line of results. Between the end of one and the next lie {found['pause']} s, in which the next warm "
            "runner is made; *no pause* posts again at once, so that several in a row have to wait for processes.",
            table(["", "p50", "p90", "p99", "max", "posts"], rows),
            aim("p50 under 100 ms, p99 under 300 ms", met),
        ]
    )


def driving(found: Figures) -> str:
    """Show car_street's episodes a second against the bare loop's."""
    bare = found["bare"]["median"]
    rows = [
        ["bare libsumo loop, one process", spanned(found["bare"]), "1"],
        ["the same, and another process echoes at each step", "", spanned(found["echoed"], lambda x: f"{x:.2f}")],
    ]
    for workers, each in found["platform"].items():
        rows.append(
            [f"platform, workers = {workers}", spanned(each["rate"]), spanned(each["ratio"], lambda x: f"{x:.2f}")]
        )
    one, two = (found["platform"][workers]["rate"]["median"] for workers in ("1", "2"))
    ratio = found["platform"]["1"]["ratio"]["median"]
    costs = processor_time([*(each["cpu"] for each in found["platform"].values()), found["bare_cpu"]], 1e3)
    return "\n\n".join(
        [
            f"All {found['scenarios']} scenarios of `car_street`, {found['repeat']} times over, with the yardstick "
            f"`{found['model']}`: from the POST to the last durable result (sandboxed evaluator and model server, "
            "lock-step, deadlines, latencies measured), against one process that calls the same model as a function. "
            "Taken in turn; a ratio is of neighbours in time. Task seeds differ between the two: "
            f"{found['simulated']['platform']:.1f} simulated seconds an episode through the platform, "
            f"{found['simulated']['bare']:.1f} in the loop.",
            table(["", "episodes/s", "ratio"], rows),
            "Processor time an episode, to the summary (it bears a busy machine better than a rate does):",
            table(["milliseconds", *(f"workers = {workers}" for workers in found["platform"]), "bare loop"], costs),
            f"Two workers are {two / one:.2f} times one ({bare:.1f} episodes/s are {1000 / bare:.1f} ms an episode).",
            aim("at least 0.90 of the bare loop with one worker, 0.95 wished for", ratio >= 0.9),
        ]
    )


def footprint(found: Figures) -> str:
    """Show what the platform costs by itself."""
    parts = sorted(found["idle"] | {name: {"processes": 0, "mib": 0} for name in found["cold"].keys() - found["idle"]})
    rows = []
    for name in parts:
        cells = [found[state].get(name, {"processes": 0, "mib": 0.0}) for state in ("cold", "idle")]
        rows.append([name, *(f"{cell['mib']:.0f} ({cell['processes']})" for cell in cells)])
    sums = [sum(each["mib"] for each in found[state].values()) for state in ("cold", "idle")]
    rows.append(["**all**", *(f"**{value:.0f}**" for value in sums)])
    watched, runs = found["streams"], found["submissions"]
    rates = sorted(run["rate"] for run in runs)
    p99 = max(run["latency"]["p99"] for run in runs)
    return "\n\n".join(
        [
            "**Start to ready** (`/readyz` answers 200), environments prepared: "
            f"{spanned(found['start']['fresh'])} s in a fresh home, {spanned(found['start']['again'])} s in one that "
            "exists.",
            "**Idle memory** in MiB of PSS (shared pages counted once), processes in brackets; *fresh*: nothing asked "
            "yet; *warm*: a simulation of each of two kinds has run, and their warm runners are kept.",
            table(["", "fresh", "warm"], rows),
            f"**Submissions**: {number(rates[len(rates) // 2])} a second ({number(rates[0])} to {number(rates[-1])}), "
            f"one-task simulations from {runs[0]['clients']} threads that wait for none, durable when answered, while "
            f"the platform plays them; p99 of one at most {milliseconds(p99)}.",
            f"**{watched['streams']:,} open event streams** of one simulation: the api role goes from "
            f"{watched['mib_before']:.0f} to {watched['mib_during']:.0f} MiB; they open in "
            f"{watched['seconds_to_open']:.1f} s. Another GET meanwhile: p50 "
            f"{milliseconds(watched['get_during']['p50'])}, p99 {milliseconds(watched['get_during']['p99'])} (before: "
            f"{milliseconds(watched['get_before']['p50'])}, {milliseconds(watched['get_before']['p99'])}).",
        ]
    )


def write(sections: Iterable[tuple[str, str, Callable[[Figures], str]]]) -> None:
    """Write the page of what is kept, by measure, title and text; what has not been measured here has no section."""
    page = [HEAD]
    for measure, title, section in sections:
        if found := kept(measure):
            machine = found["machine"]
            page.append(
                f"## {title}\n\n{found['at'][:16].replace('T', ' ')} UTC, {machine['processor']}, "
                f"{machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
                f"Python {machine['python']}, others {found['others']:.0%}.\n\n{section(found['figures'])}\n"
            )
    PAGE.write_text("\n".join(page))
