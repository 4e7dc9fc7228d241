"""A person's paths: clicks and keystrokes on the web page of a real platform, beside what other systems document."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FilePayload, Locator, Page, expect, sync_playwright

from benchmarks.counted_page import CountedPage
from benchmarks.documented_paths import DOCUMENTED, READ, SYSTEMS, DocumentedPath
from benchmarks.gestures import Step, in_words, total
from benchmarks.platform_client import FINAL, PlatformClient
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.results import table
from tests.cached import tool

#: Scenarios of the simulations whose results are looked at, and of those that are only found.
SCENARIOS, FEW = 48, 4
#: Repetitions of all scenarios that keep a simulation running until it is cancelled.
LONG = 100
#: Simulations that are cancelled in one path.
SEVERAL = 3
#: Milliseconds until a step must have had its effect, and until a comparison must have ended.
TIMEOUT, COMPARED = 30_000, 300_000
#: A model whose file is submitted.
IDM = Path(__file__).parents[1] / "runtimes/harness/simulators/sumo/baselines/idm.py"
#: A model that does not load.
BROKEN = b'class Model:\n    def __init__(self):\n        raise ValueError("no weights found")\n'


@dataclass(frozen=True, slots=True)
class Stored:
    """Ids of the simulations that the paths are about."""

    reference: str
    worse: str
    found: frozenset[str]
    failed: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a path needs besides its page: the platform's API to check the end by, and the simulations."""

    client: PlatformClient
    stored: Stored
    long: tuple[str, ...]


def _row(page: Page, id: str) -> Locator:
    return page.locator(f"#row-{id}")


def _open(person: CountedPage, id: str) -> None:
    person.click(_row(person.page, id).locator("a.name"), "the simulation")


def see_running(person: CountedPage, around: Surroundings) -> None:
    """See the state of a running simulation, live: its count of tasks rises without a reload."""
    _open(person, around.long[0])
    expect(person.page.locator("#live .statusline")).to_contain_text("running")
    done = person.page.locator("#live progress.whole")
    before = int(done.get_attribute("value") or 0)
    person.page.wait_for_function("before => document.querySelector('#live progress.whole').value > before", arg=before)


def replay_worst(person: CountedPage, around: Surroundings) -> None:
    """Find the worst scenario of a finished simulation, and see it move."""
    _open(person, around.stored.worse)
    person.click(
        person.page.get_by_role("region", name="Worst tasks").get_by_role("link").first, "the first of the worst"
    )
    replay = person.page.get_by_role("region", name="Replay")
    expect(replay.get_by_role("slider", name="Time")).to_be_visible()
    moves = "() => Number(document.querySelector('[aria-label=Replay] input[aria-label=Time]').value) > 0.5"
    person.page.wait_for_function(moves)
    lines = around.client.open("GET", f"/v1/simulations/{around.stored.worse}/results?format=ndjson").read()
    scores = {line["task"]: line["metrics"]["score"] for line in map(json.loads, lines.splitlines())}
    assert scores[int(person.page.url.rpartition("/")[2])] == min(scores.values())


def compare_two(person: CountedPage, around: Surroundings) -> None:
    """Compare two finished simulations: a verdict, and the scenarios in which the newer one is worse."""
    ids = (around.stored.worse, around.stored.reference)
    person.check([_row(person.page, id).get_by_role("checkbox") for id in ids], "the checkboxes of both")
    person.click(person.page.get_by_role("button", name="Compare the chosen"), "Compare the chosen")
    expect(person.page.locator(".verdict")).to_contain_text("worse")
    lists = person.page.get_by_role("region", name="Where constant_speed is worse")
    expect(lists.get_by_role("link").first).to_be_visible()


def compare_sequentially(person: CountedPage, around: Surroundings) -> None:
    """Request a comparison of two models, which stops by itself before all scenarios are played."""
    page = person.page
    person.click(page.get_by_role("navigation", name="Main").get_by_role("link", name="Comparisons"), "Comparisons")
    person.click(page.get_by_role("link", name="Compare models"), "Compare models")
    person.click(page.get_by_label("Model 1"), "Model 1")
    person.write("constant_speed")
    person.press("Tab")
    person.write("idm")
    person.choose(page.get_by_label("Dataset"), "car_street", "the dataset")
    person.click(page.get_by_role("button", name="Compare", exact=True), "Compare")
    page.wait_for_url("**/comparisons/0*")
    expect(page.locator(".statusline")).to_contain_text("finished", timeout=COMPARED)
    expect(page.locator(".verdict")).to_contain_text("worse")
    comparison = around.client.get(f"/v1/comparisons/{page.url.rpartition('/')[2]}")
    assert comparison["models"][0]["played"] < comparison["scenarios"]


def find_by_word_and_label(person: CountedPage, around: Surroundings) -> None:
    """Find all simulations of a model with a label among those of other models and labels."""
    rows = person.page.locator("#rows tbody tr")
    expect(_row(person.page, around.stored.failed)).to_be_visible()
    person.click(person.page.get_by_label("Search"), "Search")
    person.write("idm branch=main")
    expect(rows).to_have_count(len(around.stored.found))
    assert {row.get_attribute("id") for row in rows.all()} == {f"row-{id}" for id in around.stored.found}


def cancel_several(person: CountedPage, around: Surroundings) -> None:
    """Cancel several simulations at once."""
    boxes = [_row(person.page, id).get_by_role("checkbox") for id in around.long]
    person.check(boxes, "the checkboxes")
    person.click(person.page.get_by_role("button", name="Cancel the chosen"), "Cancel the chosen")
    expect(person.page.locator("#messages")).to_contain_text(f"{SEVERAL} of {SEVERAL} are cancelled")
    for id in around.long:
        expect(_row(person.page, id)).to_contain_text("cancelled")


def download_csv(person: CountedPage, around: Surroundings) -> None:
    """Download the results of a simulation as CSV: a row for each task."""
    _open(person, around.stored.reference)
    with person.page.expect_download() as started:
        person.click(person.page.get_by_role("link", name="CSV", exact=True), "CSV")
    assert started.value.suggested_filename.endswith(".csv")
    with Path(started.value.path()).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == SCENARIOS


def repeat_failed(person: CountedPage, around: Surroundings) -> None:
    """Repeat a failed simulation; the page of the new one is shown."""
    _open(person, around.stored.failed)
    person.click(person.page.get_by_role("button", name="Repeat what failed"), "Repeat what failed")
    person.page.wait_for_url(lambda url: "/simulations/" in url and around.stored.failed not in url)
    repeated = around.client.get(f"/v1/simulations/{person.page.url.rpartition('/')[2]}")
    assert repeated["retry_of"] == around.stored.failed


def submit_file(person: CountedPage, around: Surroundings) -> None:
    """Submit the file of a model, which is checked before."""
    page = person.page
    person.click(page.get_by_role("link", name="Submit a simulation"), "Submit a simulation")
    file: FilePayload = {"name": "candidate.py", "mimeType": "text/x-python", "buffer": IDM.read_bytes()}
    person.choose_file(page.get_by_label("Model file"), file, "the file")
    person.choose(page.get_by_role("combobox", name="Dataset"), "car_street", "the dataset")
    expect(page.locator("#check .good")).to_contain_text("fits")
    expect(page.locator("#request")).to_contain_text("288 tasks")
    person.click(page.get_by_role("button", name="Submit", exact=True), "Submit")
    page.wait_for_url("**/simulations/0*")
    id = page.url.rpartition("/")[2]
    submitted = around.client.get(f"/v1/simulations/{id}")
    assert submitted["model"]["name"] == "candidate" and submitted["tasks"]["total"] == 288
    around.client.open("POST", f"/v1/simulations/{id}/cancel").read()
    around.client.until_final(id)


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a person, and its path on the web page; ``long``: while several simulations run."""

    name: str
    title: str
    walk: Callable[[CountedPage, Surroundings], None]
    long: bool = False


TASKS = (
    Task("submit", "submit the file of a model: simulate it in all scenarios of a dataset", submit_file),
    Task("running", "see the state of a running simulation, live", see_running, long=True),
    Task("worst", "find the worst scenario of a finished simulation and replay it", replay_worst),
    Task("compare", "compare two finished simulations and see where the new one is worse", compare_two),
    Task("sequential", "request a comparison of two models that stops by itself", compare_sequentially),
    Task("find", "find all simulations of a model by a word and a label", find_by_word_and_label),
    Task("cancel", f"cancel {SEVERAL} simulations", cancel_several, long=True),
    Task("csv", "download the results of a simulation as CSV", download_csv),
    Task("repeat", "repeat a failed simulation", repeat_failed),
)


def prepare(client: PlatformClient) -> Stored:
    """Run the simulations that the paths are about, and others that a search must not find."""

    def run(model: str, branch: str, scenarios: int) -> str:
        document = {"dataset": "car_street", "model": model, "scenarios": {"range": [0, scenarios]}, "record": "all"}
        id = str(client.submit({**document, "labels": {"branch": branch}})["id"])
        client.until(id)
        return id

    run("constant_speed", "main", FEW)
    run("idm", "other", FEW)
    found = {run("idm", "main", FEW), reference := run("idm", "main", SCENARIOS)}
    worse = run("constant_speed", "new", SCENARIOS)
    binary = {"Content-Type": "application/octet-stream"}
    client.open("PUT", "/v1/models/broken?filename=model.py", BROKEN, binary).read()
    failed = str(client.submit({"dataset": "car_street", "model": "broken", "scenarios": {"range": [0, FEW]}})["id"])
    client.until_final(failed)
    assert client.get(f"/v1/simulations/{failed}")["state"] == "failed"
    return Stored(reference, worse, frozenset(found), failed)


def run_long(client: PlatformClient) -> tuple[str, ...]:
    """Start simulations that run until they are cancelled; return their ids once the first one has results."""
    document = {"dataset": "car_street", "model": "idm", "repeat": LONG, "labels": {"branch": "nightly"}}
    ids = tuple(str(client.submit(document)["id"]) for _ in range(SEVERAL))
    while not client.get(f"/v1/simulations/{ids[0]}")["tasks"]["done"]:
        assert client.get(f"/v1/simulations/{ids[0]}")["state"] not in FINAL
    return ids


def walk(browser: Browser, origin: str, task: Task, around: Surroundings) -> list[Step]:
    """Walk a path in a new browser context, from `/` to the end of the task; return its steps."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.goto(f"{origin}/")
    person = CountedPage(page)
    task.walk(person, around)
    context.close()
    print(f"{task.name}: {total(person.steps)}, {in_words(person.steps)}", flush=True)
    return person.steps


def measure() -> dict[str, Any]:
    """Walk each path on a platform of its own, by Chromium."""
    with running_platform() as platform, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox", "--disable-gpu"])
        paths = _walk_all(browser, platform)
        browser.close()
    return {"paths": {name: [asdict(step) for step in steps] for name, steps in paths.items()}}


def _walk_all(browser: Browser, platform: PlatformProcess) -> dict[str, list[Step]]:
    expect.set_options(timeout=TIMEOUT)
    client = platform.connect()
    around = Surroundings(client, prepare(client), ())
    paths = {}
    for task in sorted(TASKS, key=lambda task: task.long):  # the others do not share the machine with long simulations
        if task.long and not around.long:
            around = Surroundings(client, around.stored, run_long(client))
        paths[task.name] = walk(browser, f"http://127.0.0.1:{platform.port}", task, around)
    return paths


def gestures(steps: list[Step]) -> str:
    """Return the clicks and keystrokes of a path in words."""
    clicks, keys = total(steps)
    counts = [
        f"{count} {name}{'s' if count > 1 else ''}" for count, name in ((clicks, "click"), (keys, "key")) if count
    ]
    return ", ".join(counts) or "none"


def section(figures: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    paths = {name: [Step(**step) for step in steps] for name, steps in figures["paths"].items()}
    others = {(path.task, path.system): path for path in DOCUMENTED}
    tasks = [task for task in TASKS if task.name in paths]
    rows, details = [], []
    for task in tasks:
        systems = [others[task.name, system] for system in SYSTEMS]
        counts = [path.missing or gestures(list(path.steps)) for path in systems]
        rows.append([task.title, f"**{gestures(paths[task.name])}**", *counts])
        details.append([task.title, "**Windtunnel**", in_words(paths[task.name])])
        details += [["", f"[{path.system}]({path.address})", _described(path)] for path in systems]
    shorter = [
        f"{task.title} ({path.system})"
        for task in tasks
        for path in DOCUMENTED
        if path.task == task.name and path.steps and sum(total(path.steps)) < sum(total(paths[task.name]))
    ]
    return "\n\n".join(
        [
            "Chromium is driven as a person uses it, on a platform of its own, from `/` to the end of each task, which "
            "is checked; the simulations are on the first page of the list. A key is a character, Enter, Tab or a "
            "combination of keys; a choice in a list is two clicks; scrolling, pointing and reading are not counted.",
            f"The other systems' columns are counted from their public documents, read on {READ}, and not measured: "
            "the shortest documented path, from W&B's project page, from a prompt with OSMO's client signed in, from "
            "Backend.AI's page after the sign-in. A command is its characters and Enter. Clicks that a document leaves "
            "open are not counted, so these numbers are lower bounds.",
            table(["from `/`", "Windtunnel, measured", *(f"{system}, documented" for system in SYSTEMS)], rows),
            f"Clicks and keys together, a documented path is shorter for: {'; '.join(shorter) or 'no task'}.",
            "The paths; the names of the other systems lead to the documents.",
            table(["task", "system", "path"], details, words=True),
        ]
    )


def _described(path: DocumentedPath) -> str:
    words = path.missing or in_words(path.steps)
    return f"{words} ({path.remark})" if path.remark else words
