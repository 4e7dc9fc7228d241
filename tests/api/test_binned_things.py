"""Bin and rules over the API: what is in the bin is answered like what never was, by every route; roles; bad rules."""

import re
from typing import Any

import pytest

from core.services.platform import Platform
from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, People, own
from tests.api.test_foreign_things import (
    FILES,
    NAMED,
    SENT,
    TUS,
    Things,
    filled,
    first_segment,
    fresh,
    request_to,
    told,
)
from tests.archives import tar

KINDS = ("simulations", "models", "datasets")
RULES = {"rules": [{"kind": "simulations", "older_than": 0}]}
#: What never was, named in the ways in which `binned` names what is in the bin.
NEVER = Things(
    {
        "simulation": (fresh(40),),
        "model": (fresh(41), "warn", "warn@1", "warn@latest", "warn@gold"),
        "dataset": (fresh(43), "lunes", "lunes@1", "lunes@latest", "lunes@gold"),
    }
)


def put_into_bin(people: People, platform: Platform, worker: LeasingWorker) -> Things:
    """Make a model, a dataset and a simulation with results in red, and delete them; return their names."""
    who = "red maintainer"
    assert people.ask(who, "PUT", "/v1/projects/red/retention", json={"bin": True}).status_code == 200
    typed = {"Content-Type": "text/x-python"}
    model = people.ask(who, "PUT", "/v1/models/worn", data=MODEL + b"#", headers=typed).json["id"]
    assert people.ask(who, "PUT", "/v1/models/worn/tags/gold", json={"version": "1"}).status_code == 200
    body, tus = tar(FILES), TUS | {"Upload-Length": str(len(tar(FILES)))}
    sent = people.ask(who, "POST", "/v1/uploads", headers=tus).headers["Location"]
    offset = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    people.ask(who, "PATCH", sent, data=body, headers=TUS | offset)
    making = {"name": "lines", "source": {"upload": sent.rpartition("/")[2]}, "tags": ["gold"]}
    dataset = people.ask(who, "POST", "/v1/datasets", json=making).json["id"]
    platform.jobs.dataset_registration.register(dataset)
    simulation = people.ask(who, "POST", "/v1/simulations", json={"dataset": "noop", "model": "zero"}).json["id"]
    worker.finish_unseen(worker.launch(simulation), artifacts={(0, "note.txt", "text/plain"): b"hello"})
    platform.jobs.finalization.collect(simulation)
    for path in (f"/v1/simulations/{simulation}", "/v1/models/worn", "/v1/datasets/lines"):
        assert people.ask(who, "DELETE", path).status_code == 204
    return Things(
        {
            "simulation": (simulation,),
            "model": (model, "worn", "worn@1", "worn@latest", "worn@gold"),
            "dataset": (dataset, "lines", "lines@1", "lines@latest", "lines@gold"),
        }
    )


def test_every_route_answers_for_what_is_in_the_bin_as_for_what_never_was(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    binned, wrong, asked = put_into_bin(people, platform, worker), [], 0
    rules = [rule for rule in people.app.url_map.iter_rules() if first_segment(rule.rule) in KINDS]
    for rule in rules:
        parameters = [match.rpartition(":")[2] for match in re.findall(r"<([^>]+)>", rule.rule)]
        first = first_segment(rule.rule)
        kinds = [NAMED[first, name] for name in parameters if (first, name) in NAMED]
        if not set(kinds) & set(binned.names) or {"model name", "dataset name"} & set(kinds):
            continue
        for method in sorted((rule.methods or set()) - {"OPTIONS", "HEAD"}):
            if (method, rule.rule) == ("PUT", "/v1/models/<ref:model>"):
                continue  # it makes a model of that name
            for there, nowhere in zip(
                binned.variants(["model", "dataset"]), NEVER.variants(["model", "dataset"]), strict=True
            ):
                answers = []
                for things, names in ((binned, there), (NEVER, nowhere)):
                    named = {**names, "simulation": things.names["simulation"][0], "connection": fresh(42)}
                    path, options = request_to(method, rule.rule, named)
                    answers.append(told(people.ask("red maintainer", method, path, **options), named))
                asked += 1
                wrong += [(method, rule.rule, answers)] if answers[0] != answers[1] else []
    assert wrong == [] and asked > 100


@pytest.mark.parametrize(
    ("method", "path", "options"), [sent for sent in SENT if re.search(r"{(simulation|model|dataset)}", str(sent))]
)
def test_a_request_that_names_what_is_in_the_bin_is_answered_as_if_it_never_was(
    people: People, platform: Platform, worker: LeasingWorker, method: str, path: str, options: dict[str, Any]
) -> None:
    binned, answers = put_into_bin(people, platform, worker), []
    for things in (binned, NEVER):
        names = {kind: of_kind[0] for kind, of_kind in things.names.items()}
        sent = filled(dict(options), names)
        answers.append(told(people.ask("red maintainer", method, filled(path, names), **sent), names))
    if "/audit" not in path:  # which tells what was done
        assert answers[0] == answers[1]


def test_what_comes_back_is_answered_as_before(people: People, platform: Platform, worker: LeasingWorker) -> None:
    who = "red maintainer"
    binned = put_into_bin(people, platform, worker)
    (simulation,), (model, *_), (dataset, *_) = (binned.names[kind] for kind in ("simulation", "model", "dataset"))
    page = people.ask("red viewer", "GET", "/v1/bin").json
    assert [(item["kind"], item["id"]) for item in page["items"]] == [
        ("datasets", dataset),
        ("models", model),
        ("simulations", simulation),
    ]
    assert page["count"] == 3 and page["bytes"] == sum(item["bytes"] for item in page["items"])
    assert page["items"][0]["binned_by"] and page["items"][0]["version"] == "1" and page["next"] is None
    first = people.ask("red viewer", "GET", "/v1/bin?limit=1")
    assert 'rel="next"' in first.headers["Link"]
    [second] = people.ask("red viewer", "GET", f"/v1/bin?limit=1&after={first.json['next']}").json["items"]
    assert second["id"] == model
    paths = [f"/v1/simulations/{simulation}{more}" for more in ("", "/results", "/summary", "/artifacts", "/events")]
    versions = ["/v1/models/worn@gold", "/v1/datasets/lines@gold", "/v1/datasets/lines/files"]
    for id in (simulation, model, dataset):
        assert people.ask(who, "POST", f"/v1/bin/{id}/restore").status_code == 204
    answers = [people.ask(who, "GET", path, buffered=True).get_data() for path in [*paths, *versions]]
    for path in (f"/v1/simulations/{simulation}", "/v1/models/worn", "/v1/datasets/lines"):
        assert people.ask(who, "DELETE", path).status_code == 204
    for id in (simulation, model, dataset):
        assert people.ask(who, "POST", f"/v1/bin/{id}/restore").status_code == 204
    assert [people.ask(who, "GET", path, buffered=True).get_data() for path in [*paths, *versions]] == answers


def test_a_maintainer_decides_and_empties_and_a_submitter_restores_his_own(people: People) -> None:
    things = own(people, "red")
    for role, status in (("viewer", 403), ("submitter", 403), ("maintainer", 200)):
        assert people.ask(f"red {role}", "PUT", "/v1/projects/red/retention", json={"bin": True}).status_code == status
    assert people.ask("red submitter", "DELETE", f"/v1/models/{things['model']}").status_code in (204, 409)
    typed = {"Content-Type": "text/x-python"}
    model = people.ask("red submitter", "PUT", "/v1/models/other", data=MODEL + b"#", headers=typed).json["id"]
    assert people.ask("red submitter", "DELETE", f"/v1/models/{model}").status_code == 204
    for method, path in (("DELETE", f"/v1/bin/{model}"), ("DELETE", "/v1/bin")):
        assert people.ask("red submitter", method, path).status_code == 403
    assert people.ask("red viewer", "POST", f"/v1/bin/{model}/restore").status_code == 403
    assert people.ask("red submitter", "POST", f"/v1/bin/{model}/restore").status_code == 204
    assert people.ask("red submitter", "DELETE", f"/v1/models/{model}").status_code == 204
    assert people.ask("red maintainer", "DELETE", "/v1/bin").status_code == 204
    assert people.ask("red maintainer", "GET", "/v1/bin").json["items"] == []
    assert people.ask("red maintainer", "POST", f"/v1/bin/{model}/restore").status_code == 404


def test_a_dry_run_has_the_rules_of_its_body_or_those_of_the_project(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    simulation = people.ask("red submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "zero"})
    worker.finish_unseen(worker.launch(simulation.json["id"]))
    platform.jobs.finalization.collect(simulation.json["id"])
    dry = people.ask("red viewer", "POST", "/v1/projects/red/retention/dry-run", json=RULES).json
    assert [(thing["id"], thing["rule"], thing["spared"]) for thing in dry["first"]] == [(simulation.json["id"], 1, [])]
    assert dry["taken"]["simulations"]["count"] == 1 and dry["taken"]["datasets"] == {"count": 0, "bytes": 0}
    assert people.ask("red viewer", "POST", "/v1/projects/red/retention/dry-run", json={}).json["first"] == []
    decided = people.ask("red maintainer", "PUT", "/v1/projects/red/retention", json=RULES)
    assert decided.json == {"bin": False} | RULES
    assert people.ask("red viewer", "GET", "/v1/projects/red/retention").json == decided.json
    again = people.ask("red viewer", "POST", "/v1/projects/red/retention/dry-run", json={}).json
    assert again == dry
    assert people.ask("red viewer", "GET", f"/v1/simulations/{simulation.json['id']}").status_code == 200


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"kind": "simulations"}, "would take all"),
        ({"kind": "simulations", "unused_for": 5}, "leave them out"),
        ({"kind": "models", "older_than": 5, "states": ["failed"]}, "leave them out"),
        ({"kind": "models", "older_than": 5, "labels": {"a": "b"}}, "leave them out"),
        ({"kind": "uploads", "older_than": 5}, "kind"),
        ({"kind": "simulations", "older_than": 5, "states": ["running"]}, "states"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(people: People, rule: dict[str, Any], text: str) -> None:
    for method, path in (("PUT", "retention"), ("POST", "retention/dry-run")):
        refused = people.ask("red maintainer", method, f"/v1/projects/red/{path}", json={"rules": [rule]})
        assert refused.status_code == 422 and text in refused.text
