"""Owned tables: every statement on them is of a scope, or of the platform's own work, which this page lists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import store
from core.store.owned import OWNED_TABLES

FOLDER = Path(store.__path__[0])
#: Functions without a scope that read or change owned tables, and why they may.
OF_THE_PLATFORM = {
    "it inserts a row, which has its project": {
        "advanced_rows.AdvancedRows.add",
        "audit.add",
        "bin.add",
        "datasets.add",
        "datasets.add_ready",
        "model_imports.add",
        "models.add",
        "simulations.add",
        "uploads.add",
        "usage_intervals.begin",
        "webhook_deliveries.add",
        "webhooks.add",
    },
    "the row, or its claim, was found in a scope before": {
        "advanced_rows.AdvancedRows.hand_over",
        "advanced_rows.AdvancedRows.move",
        "advanced_rows.AdvancedRows.pause",
        "advanced_rows.AdvancedRows.say",
        "comparisons.add_simulation",
        "comparisons.change",
        "comparisons.remove",
        "datasets.before",
        "datasets.finish",
        "datasets.refer",
        "datasets.borrow",
        "datasets.purge",
        "datasets.restore",
        "models.purge",
        "models.restore",
        "events.say",
        "events.say_while",
        "pipelines.remove",
        "pipelines.change_step",
        "uploads.advance",
        "uploads.release",
    },
    "the queue, and what runs, are scheduled for everybody": {
        "launches.find",
        "launches.live",
        "launches.mark",
        "models.size_of",
        "queue_counts.waiting",
        "simulations.active",
        "simulations.await_preparation",
        "simulations.claim",
        "simulations.conclude",
        "simulations.describe",
        "simulations.explain",
        "simulations.hand_over",
        "simulations.locked_progress",
        "simulations.move",
        "simulations.positions",
        "simulations.queued",
        "simulations.set_progress",
        "simulations.unclaimed",
        "simulations.claimed",
        "simulations.unended_states",
        "simulations.unsummed",
        "usage_intervals.end",
        "usage_intervals.end_warm_of_others",
        "usage_intervals.keep_warm",
        "usage_intervals.mark",
        "usage_intervals.record_job",
        "usage_intervals.resize",
        "usage_intervals.wait",
    },
    "the event is of what its transaction changes, in the project of that": {
        "webhook_events.advanced_end",
        "webhook_events.simulation_end",
        "webhooks.listeners",
    },
    "a job works on the row": {
        "audit.newest_user",
        "datasets.at_work",
        "simulations.any_row",
        "simulations.awaits_model",
        "simulations.explain_import",
        "simulations.supply_model",
    },
    "bytes are kept as long as any project refers to them": {
        "datasets.in_use",
        "datasets.purgeable",
        "models.needed",
        "references.models",
        "references.objects",
        "results.forget",
        "simulations.bundles",
        "storage_sums.by_kind",
        "uploads.expired",
    },
    "a sweep works for everybody": {"bin.due", "retention.ruled_projects"},
    "it tells that something changed, not what": {
        "advanced_rows.AdvancedRows.versions",
        "simulations.last_change",
        "simulations.versions",
    },
    "entries of all projects are kept for the same time": {"audit.forget", "webhook_deliveries.forget"},
    "the project ends, with all that it has": {"owned_rows.forget_project"},
    "it counts, for operators": {
        "simulations.by_state",
        "webhooks.attempts",
        "webhooks.has_other_keys",
        "webhooks.oldest_due",
    },
    "it ends the project that it names": {"owned_rows.forget_project"},
    "its rows are joined with rows that were found in a scope": {
        "comparisons.simulations_of",
        "pipelines.steps_of",
        "results.news",
    },
    "it charges the project that it names": {"quotas.charge"},
    "it ends a project": {"owned_rows.forget_project"},
    "the clock is that of the machine": {"clock_steps.rewind"},
}
_IN_WORDS = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+({'|'.join(sorted(OWNED_TABLES))})\b")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(FOLDER.glob("*.py")):
        if file.stem not in ("__init__", "tables", "owned", "claims"):
            yield file.stem, ast.parse(file.read_text())


def touches(node: ast.AST, names: set[str]) -> bool:
    """Return whether code names one of these, or an owned table in words."""
    return any(
        (isinstance(part, ast.Name) and part.id in names)
        or (isinstance(part, ast.Attribute) and part.attr in names and part.attr.startswith("_"))
        or (isinstance(part, ast.Constant) and isinstance(part.value, str) and _IN_WORDS.search(part.value))
        for part in ast.walk(node)
    )


def names_of_owned_tables(module: ast.Module) -> set[str]:
    """Return the names in a module of owned tables, of statements on them, and of functions that make these."""
    names: set[str] = set()
    for statement in module.body:
        for function in ast.walk(statement):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("_"):
                if touches(function, names):
                    names.add(function.name)
        if isinstance(statement, ast.ImportFrom) and statement.module == "core.store.tables":
            names |= {name.asname or name.name for name in statement.names if name.name in OWNED_TABLES}
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if touches(statement.value, names):
                names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Yield the public functions and methods, and whether they are methods."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            for name, function, _ in functions(statement.body, f"{prefix}{statement.name}."):
                yield name, function, True
        elif isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_"):
            yield prefix + statement.name, statement, False


def unscoped() -> Iterator[str]:
    """Yield the functions that read or change owned tables and take no scope."""
    for name, module in modules():
        names = names_of_owned_tables(module)
        for function, definition, of_class in functions(module.body, f"{name}."):
            parameters = {argument.arg for argument in definition.args.args}
            own = of_class and any(
                isinstance(part, ast.Attribute) and re.fullmatch("table|_.*", part.attr)
                for part in ast.walk(definition)
            )
            body = ast.Module(definition.body[1:] if ast.get_docstring(definition) else definition.body, [])
            if not parameters & {"scope", "caller"} and "c" in parameters and (own or touches(body, names)):
                yield function


def test_every_function_on_an_owned_table_takes_a_scope_or_is_the_platforms() -> None:
    allowed = set().union(*OF_THE_PLATFORM.values())
    found = set(unscoped())
    assert found - allowed == set(), "give them a scope, or say here why they are the platform's"
    assert allowed - found == set(), "they take a scope now, or are gone"


def test_what_people_own_has_a_project() -> None:
    assert {
        "bin_items",
        "comparisons",
        "dataset_tags",
        "dataset_versions",
        "idempotency",
        "model_imports",
        "model_tags",
        "models",
        "pipelines",
        "retention",
        "simulations",
        "uploads",
        "usage_intervals",
    } <= OWNED_TABLES


@pytest.mark.parametrize(
    "code",
    [
        "from core.store.tables import simulations\ndef f(c): c.execute(simulations.delete())",
        "from core.store.tables import simulations as s\n_Q = select(s)\n_R = _Q.where(1)\ndef f(c): c.execute(_R)",
        "def f(c): c.execute(text('DELETE FROM uploads'))",
    ],
)
def test_a_statement_without_a_scope_is_found(code: str) -> None:
    module = ast.parse(code)
    [(_, function, _)] = functions(module.body, "")
    assert touches(function, names_of_owned_tables(module))
