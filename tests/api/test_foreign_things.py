"""Things of another project, by every route: answered like what does not exist, byte for byte, and left as they are.

The requests are made of the routes: a new one is in the matrix, and fails here if what its address names is unknown.
More requests name foreign things in their bodies, queries and headers.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from werkzeug.test import TestResponse

from core.domain.access.roles import Verb
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform
from core.store import model_imports
from core.store.owned import OWNED_TABLES
from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, People
from tests.archives import LINES, MINE, tar

TUS = {"Tus-Resumable": "1.0.0"}
FILES = {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES}
#: Kinds of owned things that an address names, by the first segment of its path and the name of the parameter.
NAMED: Mapping[tuple[str, str], str] = {
    ("simulations", "id"): "simulation",
    ("simulations", "connection"): "connection",
    ("comparisons", "id"): "comparison",
    ("pipelines", "id"): "pipeline",
    ("imports", "id"): "import",
    ("webhooks", "id"): "webhook",
    ("webhooks", "delivery"): "delivery",
    ("models", "model"): "model",
    ("models", "name"): "model name",
    ("datasets", "dataset"): "dataset",
    ("datasets", "name"): "dataset name",
    ("uploads", "upload"): "upload",
    ("bin", "id"): "binned",
    ("projects", "project"): "project",
    ("projects", "user"): "user",
    ("projects", "token"): "token",
}
#: What else addresses name, which nobody owns.
OTHERS: Mapping[str, str] = {
    "tag": "gold", "index": "0", "file": "dataset.json", "task": "0", "name": "note.txt", "picture": "note.svg",
    "reader": "blue",
}  # fmt: skip
#: Ends of routes that take no body.
WITHOUT_BODY = ("/cancel", "/close", "/ping", "/rotate", "/shares/<name:reader>")
#: Routes whose address names nothing that a project owns.
UNOWNED = ("executors", "runtimes", "users", "problems", "sign-in")


@dataclass(frozen=True)
class Things:
    """What a project owns, by kind: how it is named, and texts that stand for it in answers."""

    names: Mapping[str, tuple[str, ...]]

    def variants(self, kinds: list[str]) -> Iterator[dict[str, str]]:
        """Yield names of several kinds at once, each kind in all of its ways."""
        for position in range(max((len(self.names[kind]) for kind in kinds), default=1)):
            yield {kind: self.names[kind][min(position, len(self.names[kind]) - 1)] for kind in kinds}


def fresh(number: int) -> str:
    return f"01jz8w0k5qv3r1m9c2t7x4b6{number:02d}"


NOTHING = Things(
    {
        "simulation": (fresh(10),),
        "connection": (fresh(11),),
        "comparison": (fresh(12),),
        "pipeline": (fresh(13),),
        "import": (fresh(14),),
        "webhook": (fresh(19),),
        "delivery": (fresh(20),),
        "model": (fresh(15), "sha256:" + "5" * 64, "rod/brake", "rod/brake@1", "rod/brake@gold", "rod/brake@latest"),
        "model name": ("brave",),
        "dataset": (fresh(16), "sha256:" + "6" * 64, "rod/drives", "rod/drives@1", "rod/drives@gold"),
        "dataset name": ("driven",),
        "upload": (fresh(17),),
        "project": ("rod",),
        "user": ("adam",),
        "token": (fresh(18),),
        "binned": (fresh(19),),
    }
)


@pytest.fixture
def red(people: People, platform: Platform, worker: LeasingWorker) -> Things:
    """What the project red owns: one thing of each kind, the simulation with results."""

    def made(method: str, path: str, **options: Any) -> Any:
        answer = people.ask("red maintainer", method, path, **options)
        assert answer.status_code < 300, (path, answer.text)
        return answer

    model = made("PUT", "/v1/models/brake", data=MODEL, headers={"Content-Type": "text/x-python"}).json
    made("PUT", "/v1/models/brake/tags/gold", json={"version": "1"})
    upload = made("POST", "/v1/uploads", headers=TUS | {"Upload-Length": "9"}).headers["Location"].rpartition("/")[2]
    body = tar(FILES)
    sent = made("POST", "/v1/uploads", headers=TUS | {"Upload-Length": str(len(body))}).headers["Location"]
    offset = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    made("PATCH", sent, data=body, headers=TUS | offset)
    source = {"upload": sent.rpartition("/")[2]}
    dataset_id = made("POST", "/v1/datasets", json={"name": "drives", "source": source, "tags": ["gold"]}).json["id"]
    assert isinstance(platform.notifier, LocalNotifier)
    platform.jobs.dataset_registration.register(dataset_id)
    dataset = made("GET", f"/v1/datasets/{dataset_id}").json
    assert dataset["state"] == "ready", dataset
    simulation = made("POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"}).json["id"]
    worker.finish_unseen(worker.launch(simulation), artifacts={(0, "note.txt", "text/plain"): b"hello"})
    platform.jobs.finalization.collect(simulation)
    comparing = {"dataset": "car_street", "models": ["brake", "zero"], "scenarios": {"range": [0, 20]}}
    comparison = made("POST", "/v1/comparisons", json=comparing).json["id"]
    step = {"name": "smoke", "submission": {"dataset": "noop", "model": "brake", "scenarios": {"range": [0, 2]}}}
    pipeline = made("POST", "/v1/pipelines", json={"steps": [step]}).json["id"]
    row = {"id": fresh(30), "project": "red", "made_by": "operator", "reference": "https://models.example/a.onnx"}
    row |= {"connection": "", "options": "{}", "created_at": 1.0}
    platform.database.write(lambda c: model_imports.add(c, row))
    wanted = {"url": "https://hooks.example/red", "types": ["simulation.ended", "quota.reached"]}
    webhook = made("POST", "/v1/webhooks", json=wanted).json["id"]
    delivery = made("POST", f"/v1/webhooks/{webhook}/ping").json["id"]
    made("PUT", "/v1/projects/red/retention", json={"bin": True})
    binned = made("PUT", "/v1/models/worn", data=MODEL + b"#", headers={"Content-Type": "text/x-python"}).json["id"]
    made("DELETE", f"/v1/models/{binned}")
    token = made("GET", "/v1/projects/red/tokens").json["items"][0]["id"]
    return Things(
        {
            "simulation": (simulation,),
            "connection": (fresh(11),),
            "comparison": (comparison,),
            "pipeline": (pipeline,),
            "import": (fresh(30),),
            "webhook": (webhook,),
            "delivery": (delivery,),
            "model": (model["id"], model["digest"], "red/brake", "red/brake@1", "red/brake@gold", "red/brake@latest"),
            "model name": ("brake",),
            "dataset": (dataset["id"], dataset["digest"], "red/drives", "red/drives@1", "red/drives@gold"),
            "dataset name": ("drives",),
            "upload": (upload,),
            "project": ("red",),
            "user": ("operator",),
            "token": (token,),
            "binned": (binned,),
        }
    )


def state(platform: Platform) -> dict[str, list[Any]]:
    """Return all rows that red owns, and its shares, but for when its tokens were used."""
    with platform.database.read() as c:
        rows = {
            table: sorted(c.exec_driver_sql(f"SELECT * FROM {table} WHERE project='red'").all(), key=repr)
            for table in sorted(OWNED_TABLES - {"audit"})
        }
        rows["shares"] = c.exec_driver_sql("SELECT * FROM shares WHERE owner='red'").all()
        rows["members"] = c.exec_driver_sql("SELECT * FROM members WHERE member_of='red'").all()
        rows["limits"] = c.exec_driver_sql("SELECT * FROM quota_limits WHERE limited='red'").all()
        rows["tokens"] = c.exec_driver_sql("SELECT id, revoked_at FROM tokens WHERE bound_to='red' ORDER BY 1").all()
    return rows


def told(answer: TestResponse, names: Mapping[str, str]) -> tuple[int, str, str]:
    """Return status, type and text of an answer, in which kinds stand for what was named."""
    text = answer.get_data().decode(errors="replace")
    answer.close()
    for kind, name in sorted(names.items(), key=lambda entry: -len(entry[1])):
        text = text.replace(name, f"<{kind}>").replace(name.partition("@")[0], f"<{kind}>")
        text = text.replace(name.partition("/")[2] or name, f"<{kind}>")
    return answer.status_code, answer.headers.get("Content-Type", ""), text


def differences(
    people: People, red: Things, kinds: list[str], ask: Callable[[str, Mapping[str, str]], TestResponse]
) -> list[object]:
    """Ask for foreign things and for nothing, as each role of blue; return what was answered otherwise."""
    wrong: list[object] = []
    for role in ("viewer", "submitter", "maintainer"):
        for foreign, nothing in zip(red.variants(kinds), NOTHING.variants(kinds), strict=True):
            there, nowhere = ask(f"blue {role}", foreign), ask(f"blue {role}", nothing)
            seen = told(there, foreign), told(nowhere, nothing)
            if seen[0] != seen[1]:
                wrong.append((role, foreign, seen))
    return wrong


def request_to(method: str, rule: str, names: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the address of a route with names of things, and what is sent to it."""
    first = first_segment(rule)

    def value(match: re.Match[str]) -> str:
        name = match[1].rpartition(":")[2]
        return names[NAMED[first, name]] if (first, name) in NAMED else OTHERS[name]

    path = re.sub(r"<([^>]+)>", value, rule)
    options: dict[str, Any] = {"headers": TUS} if first == "uploads" else {}
    if method == "PATCH":
        options["json"] = {"workers": 2}
    elif "/tags/" in rule:
        options["json"] = {"version": "1"}
    elif method in ("PUT", "POST") and not rule.endswith(WITHOUT_BODY):
        options["json"] = {}
    return path, options


def first_segment(rule: str) -> str:
    return rule.removeprefix("/v1/").partition("/")[0]


def test_every_route_answers_for_foreign_things_as_for_none_and_changes_nothing(
    people: People, platform: Platform, red: Things
) -> None:
    before, wrong, asked = state(platform), [], 0
    for rule in people.app.url_map.iter_rules():
        first = first_segment(rule.rule)
        if not rule.rule.startswith("/v1/") or "<" not in rule.rule or first in UNOWNED:
            continue
        parameters = [match.rpartition(":")[2] for match in re.findall(r"<([^>]+)>", rule.rule)]
        kinds = [NAMED[first, name] for name in parameters if (first, name) in NAMED]
        assert kinds and all((first, name) in NAMED or name in OTHERS for name in parameters), rule.rule
        for method in sorted((rule.methods or set()) - {"OPTIONS", "HEAD"}):
            if (method, rule.rule) == ("PUT", "/v1/models/<ref:model>"):
                continue  # it makes a model of that name, in one's own project

            def ask(who: str, names: Mapping[str, str], method: str = method, rule: str = rule.rule) -> TestResponse:
                path, options = request_to(method, rule, names)
                return people.ask(who, method, path, **options)

            asked += 1
            wrong += [(method, rule.rule, found) for found in differences(people, red, kinds, ask)]
    assert wrong == [] and asked > 70
    assert state(platform) == before


def test_every_read_of_a_shared_simulation_is_answered_as_for_its_owner(people: People, red: Things) -> None:
    [simulation] = red.names["simulation"]
    assert people.ask("red maintainer", "PUT", f"/v1/simulations/{simulation}/shares/blue").status_code == 204
    wrong, asked = [], 0
    for rule in people.app.url_map.iter_rules():
        verb = people.app.view_functions[rule.endpoint].verb if rule.rule.startswith("/v1/") else None  # type: ignore[attr-defined]
        if "GET" in (rule.methods or ()) and rule.rule.startswith("/v1/simulations/<id:id>") and verb is Verb.READ:
            if "/files" in rule.rule or "/looks" in rule.rule:
                continue  # looks into tasks that run are for its own project
            path, options = request_to("GET", rule.rule, {"simulation": simulation})
            if rule.rule.endswith("/archive"):
                path += "?model=false"  # the model is not shared with it
            answers = [told(people.ask(f"{project} viewer", "GET", path, **options), {}) for project in ("red", "blue")]
            asked += 1
            wrong += [(path, answers)] if answers[0] != answers[1] else []
    assert wrong == [] and asked >= 15


def one_step(submission: Mapping[str, str]) -> dict[str, Any]:
    """Return a pipeline of one step."""
    return {"steps": [{"name": "a", "submission": submission}]}


#: Requests that name things outside of their addresses: method, path, and what is sent; `{kind}` stands for a name.
SENT: list[tuple[str, str, Mapping[str, Any]]] = [
    ("POST", "/v1/simulations", {"json": {"dataset": "noop", "model": "{model}"}}),
    ("POST", "/v1/simulations", {"json": {"dataset": "{dataset}", "model": "zero", "runtime": "python"}}),
    ("POST", "/v1/simulations", {"json": {"dataset": "noop", "upload": "{upload}", "runtime": "python"}}),
    ("POST", "/v1/checks", {"json": {"dataset": "noop", "model": "{model}"}}),
    ("POST", "/v1/checks", {"json": {"dataset": "{dataset}", "model": "zero"}}),
    ("POST", "/v1/estimates", {"json": {"dataset": "noop", "model": "{model}"}}),
    ("POST", "/v1/estimates", {"json": {"dataset": "{dataset}", "model": "zero"}}),
    ("POST", "/v1/forms/simulations", {"data": {"dataset": "noop", "model": "{model}"}}),
    ("POST", "/v1/forms/simulations", {"data": {"dataset": "{dataset}", "model": "zero"}}),
    ("POST", "/1.0/simluation/tests", {"json": {"model_data": "{dataset}", "model": "zero"}}),
    ("POST", "/1.0/simluation/tests", {"json": {"model_data": "noop", "model": "{model}"}}),
    ("POST", "/v1/comparisons", {"json": {"dataset": "car_street", "models": ["{model}", "zero"]}}),
    ("POST", "/v1/comparisons", {"json": {"dataset": "noop", "models": ["zero", "zero"], "reference": "{model}"}}),
    ("POST", "/v1/comparisons", {"json": {"dataset": "{dataset}", "models": ["zero", "zero"]}}),
    ("POST", "/v1/pipelines", {"json": one_step({"dataset": "noop", "model": "{model}"})}),
    ("POST", "/v1/pipelines", {"json": one_step({"dataset": "{dataset}", "model": "zero"})}),
    ("POST", "/v1/models", {"json": {"upload": "{upload}", "name": "mine"}}),
    ("POST", "/v1/datasets", {"json": {"name": "mine", "source": {"upload": "{upload}"}}}),
    ("POST", "/v1/datasets", {"json": {"name": "mine", "source": {"uploads": [{"path": "a", "upload": "{upload}"}]}}}),
    ("POST", "/v1/simulations/cancel", {"json": {"ids": ["{simulation}"]}}),
    ("POST", "/v1/simulations/retry", {"json": {"ids": ["{simulation}"]}}),
    ("POST", "/v1/uploads", {"headers": TUS | {"Upload-Concat": "final;/v1/uploads/{upload}"}}),
    ("POST", "/v1/uploads", {"headers": TUS | {"Upload-Concat": "final;{upload} {upload}"}}),
    ("GET", "/v1/simulations?model_digest={model digest}", {}),
    ("GET", "/v1/simulations?dataset_digest={dataset digest}", {}),
    ("GET", "/v1/simulations?q={simulation}", {}),
    ("GET", "/v1/simulations?after={simulation}", {}),
    ("GET", "/v1/models?after={model}", {}),
    ("GET", "/v1/models?name={model name}", {}),
    ("GET", "/v1/uploads?after={upload}", {}),
    ("GET", "/v1/comparisons?after={comparison}", {}),
    ("GET", "/v1/pipelines?after={pipeline}", {}),
    ("GET", "/v1/simulations/changes?after=0&ids={simulation}", {}),
    ("GET", "/v1/simulations?project={project}", {}),
    ("GET", "/v1/simulations", {"headers": {"Windtunnel-Project": "{project}"}}),
    ("GET", "/v1/audit?subject=simulations/{simulation}", {}),
    ("GET", "/v1/audit?project={project}", {}),
    ("GET", "/v1/shares?project={project}", {}),
    ("GET", "/v1/webhooks?project={project}", {}),
    ("GET", "/v1/webhooks?after={webhook}", {}),
    ("GET", "/v1/bin?project={project}", {}),
    ("GET", "/v1/bin?after={binned}", {}),
]  # fmt: skip
#: Requests that blue makes of a thing of its own, together with one of red.
MIXED: list[tuple[str, str, Mapping[str, Any]]] = [
    ("GET", "/v1/simulations/{own}/comparison?to={simulation}", {}),
    ("GET", "/v1/simulations/{own}/comparison/flips?to={simulation}", {}),
    ("POST", "/v1/simulations/retry", {"json": {"ids": ["{own}", "{simulation}"]}}),
]


def filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for kind, name in names.items():
            value = value.replace("{" + kind + "}", name)
        return value
    if isinstance(value, Mapping):
        return {key: filled(each, names) for key, each in value.items()}
    return [filled(each, names) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("method", "path", "options"), [*SENT, *MIXED])
def test_a_request_that_names_a_foreign_thing_is_answered_as_if_there_were_none(
    people: People, platform: Platform, red: Things, method: str, path: str, options: Mapping[str, Any]
) -> None:
    own = people.ask("blue submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "zero"}).json["id"]
    digests = {"model digest": "model", "dataset digest": "dataset"}
    wanted = re.findall(r"\{([a-z ]+)\}", path + json.dumps(options))
    kinds = sorted({digests.get(kind, kind) for kind in wanted} - {"own"})

    def ask(who: str, names: Mapping[str, str]) -> TestResponse:
        things = red if all(names[kind] in red.names[kind] for kind in kinds) else NOTHING
        known = {**names, "own": own} | {digest: things.names[kind][1] for digest, kind in digests.items()}
        sent = filled(dict(options), known)
        return people.ask(who, method, filled(path, known), **sent)

    before = state(platform)
    assert differences(people, red, kinds, ask) == []
    assert state(platform) == before
