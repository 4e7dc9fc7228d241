"""Page of the tasks of a simulation: filtered, sorted by any column, with chosen columns; the address keeps it all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from flask import Blueprint, redirect, render_template, request
from werkzeug.wrappers import Response

from web.api_client import Refused, api, path_of
from web.declared_metrics import metrics_of
from web.task_query import (
    OPERATORS,
    WORST,
    TaskQuery,
    compared_names,
    default_columns,
    known_values,
    offered_columns,
    value_of,
)
from web.views.simulation import dataset_of

blueprint = Blueprint("tasks", __name__, url_prefix="/simulations/<id>/tasks")

#: Tasks of a page.
LISTED = 50
#: Fields of the form that become a part of the address.
ADDING = frozenset({"name", "operator", "value", "by", "order"})


@blueprint.get("")
def index(id: str) -> Response | str | tuple[str, int]:
    """List the tasks of a simulation."""
    simulation = api().get(path_of("simulations", id))
    dataset = dataset_of(simulation)
    query = TaskQuery.read(request.args)
    usual = default_columns(simulation, dataset)
    if query.columns is not None and set(query.columns) == set(usual):
        query = replace(query, columns=None)
    if ADDING & request.args.keys():
        return redirect(request.path + query.address(), 303)
    parameters = api().get(path_of("simulations", id, "parameters"))["parameters"]
    problem, listed = None, Listed([], "", 0)
    try:
        listed = tasks_of(id, query)
    except Refused as error:
        if error.status != 422:
            raise
        problem = error.problem
    offered = offered_columns(simulation, dataset, parameters)
    columns = query.columns if query.columns is not None else usual
    names = compared_names(simulation, dataset, parameters)
    orders = {kind: {name: title for name, title in of.items() if name != "failed"} for kind, of in names.items()}
    sortable = {name: title for of in orders.values() for name, title in of.items()}
    if query.column not in (WORST, *sortable):  # a column whose head was clicked
        orders["Columns"] = {query.column: offered.get(query.column, query.column)}
        sortable |= orders["Columns"]
    page = render_template(
        "simulation/tasks.html",
        simulation=simulation,
        query=query,
        tasks=listed.tasks,
        total=listed.total,
        following=query.address(after=listed.after) if listed.after else None,
        problem=problem,
        columns={name: offered.get(name, name) for name in columns},
        numeric={name for name in columns if any(is_number(value_of(task, name)) for task in listed.tasks)},
        offered=offered,
        names=names,
        orders=orders,
        order_title=sortable.get(query.column),
        values=known_values(simulation, parameters),
        operators=OPERATORS,
        value_of=value_of,
        never={f"metrics.{name}": known["never"] for name, known in metrics_of(dataset).items() if "never" in known},
        downloads=urlencode([("where", text) for text in query.where]),
    )
    return (page, 422) if problem else page


def is_number(value: object) -> bool:
    """Return whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of tasks. ``after``: cursor of the next page, empty after the last. ``total``: number on all pages."""

    tasks: Sequence[Mapping[str, Any]]
    after: str
    total: int


def tasks_of(id: str, query: TaskQuery) -> Listed:
    """Return a page of the results that a query selects; raise Refused."""
    selection = {"where": list(query.where), "sort": query.sort, "after": query.after, "limit": LISTED, "count": "true"}
    answer = api().send("GET", path_of("simulations", id, "results"), parameters=selection)
    following = answer.links.get("next", {}).get("url", "")
    return Listed(
        [json.loads(line) for line in answer.text.splitlines() if line.strip()],
        "".join(parse_qs(urlsplit(following).query).get("after", ())),
        int(answer.headers["Total-Count"]),
    )
