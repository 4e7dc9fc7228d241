"""`python -m benchmarks [NAME ...]`: run benchmarks, store figures, write RESULTS.md."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import (
    accounts,
    api_client,
    archive,
    client_start,
    cluster,
    coupled_programs,
    deciding,
    distributions,
    driving,
    episodes,
    eviction,
    fanout,
    first_look,
    first_sweep,
    footprint,
    halo_exchange,
    heat_scaling,
    installed,
    large_dataset,
    latency,
    listing,
    lockstep,
    long_queue,
    model_formats,
    packaged_simulators,
    pages,
    person_paths,
    plots,
    ratios,
    registering,
    results,
    revisions,
    ring,
    scs,
    slow_starts,
    staging,
    stepping,
    summaries,
    team_path,
    uploads,
    worlds,
)
from benchmarks.figures import busy, machine, store


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its function, and its section of RESULTS.md; ``apart``: it runs only if its name is an argument."""

    name: str
    title: str
    measure: Callable[[], dict[str, Any]]
    section: Callable[[dict[str, Any]], str]
    apart: bool = False


BENCHMARKS = (
    Benchmark("fanout", "No-op fan-out", fanout.measure, results.fanout),
    Benchmark("lockstep", "What a step costs", lockstep.measure, lockstep.section),
    Benchmark("latency", "POST to first result", latency.measure, results.latency),
    Benchmark("model_formats", "Start of models", model_formats.measure, model_formats.section),
    Benchmark("long_queue", "A long queue", long_queue.measure, long_queue.section),
    Benchmark("slow_starts", "Beside slow starts", slow_starts.measure, slow_starts.section),
    Benchmark("listing", "A list of 100,000 simulations", listing.measure, listing.section),
    Benchmark("accounts", "Accounts", accounts.measure, accounts.section),
    Benchmark("large_dataset", "A dataset of 20,000 simulations", large_dataset.measure, large_dataset.section),
    Benchmark("pages", "Pages with 100,000 simulations", pages.measure, pages.section),
    Benchmark("first_look", "From git clone to the demo's page", first_look.measure, first_look.section),
    Benchmark("first_sweep", "From git clone to a sweep with MPI", first_sweep.measure, first_sweep.section),
    Benchmark("installed", "From uvx to the demo's results", installed.measure, installed.section),
    Benchmark("person_paths", "A person's paths", person_paths.measure, person_paths.section),
    Benchmark("team_path", "From nothing to a team of three", team_path.measure, team_path.section),
    Benchmark("client_start", "Start of the command line", client_start.measure, client_start.section),
    Benchmark("summaries", "Summaries of a million tasks", summaries.measure, summaries.section),
    Benchmark("distributions", "Distributions of a million results", distributions.measure, distributions.section),
    Benchmark("stepping", "Steps of Gymnasium environments", stepping.measure, stepping.section),
    Benchmark("worlds", "Many worlds", worlds.measure, worlds.section),
    Benchmark("coupled_programs", "Coupled programs", coupled_programs.measure, coupled_programs.section),
    Benchmark(
        "packaged_simulators",
        "Packaged simulators",
        packaged_simulators.measure,
        packaged_simulators.section,
        apart=True,
    ),
    Benchmark("halo_exchange", "Exchange of halos", halo_exchange.measure, halo_exchange.section),
    Benchmark("heat_scaling", "Scaling of a stencil", heat_scaling.measure, heat_scaling.section),
    Benchmark("driving", "car_street against a plain loop", driving.measure, results.driving),
    Benchmark("episodes", "Episodes beside other tools", episodes.measure, episodes.section),
    Benchmark("footprint", "Footprint", footprint.measure, results.footprint),
    Benchmark("scs", "The cache service against nginx", scs.measure, scs.section),
    Benchmark("staging", "Staging from S3 against rclone", staging.measure, staging.section),
    Benchmark("uploads", "Resumable uploads against tusd", uploads.measure, uploads.section),
    Benchmark("eviction", "Eviction", eviction.measure, eviction.section),
    Benchmark("ring", "Distribution of keys over nodes", ring.measure, ring.section),
    Benchmark("registering", "Registering a million files", registering.measure, registering.section),
    Benchmark("archive", "An archive of ten gigabytes", archive.measure, archive.section),
    Benchmark("deciding", "Deciding between two models", deciding.measure, deciding.section),
    Benchmark("revisions", "Two revisions", revisions.measure, revisions.section, apart=True),
    Benchmark("cluster", "On a real Kubernetes", cluster.measure, cluster.section, apart=True),
    Benchmark("api_client", "Calls of the Kubernetes API", api_client.measure, api_client.section, apart=True),
)


def main(names: list[str]) -> int:
    """Run the named benchmarks; `results` alone only rewrites the page, and `plots` only draws the plots."""
    all_names = {benchmark.name for benchmark in BENCHMARKS}
    if unknown := sorted(set(names) - all_names - {"results", "plots"}):
        known = ", ".join(sorted(all_names | {"results", "plots"}))
        print(f"unknown: {', '.join(unknown)}; known are {known}", file=sys.stderr)
        return 2
    for benchmark in BENCHMARKS:
        if benchmark.name in names or (not names and not benchmark.apart):
            print(f"-- {benchmark.name}", flush=True)
            load = busy()
            figures = benchmark.measure()
            store(benchmark.name, figures, load)
            ratios.record(benchmark.name, figures, machine())
        results.write((benchmark.name, benchmark.title, benchmark.section) for benchmark in BENCHMARKS)
    print(f"written: {results.PAGE}")
    if not names or "plots" in names:
        plots.draw()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
