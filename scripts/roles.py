"""Page of the roles: docs/reference/roles.md, from the table that decides; `make reference` writes it."""

from api import application
from core.domain.access.roles import MEANINGS, VERBS, AccessRole, Verb

HEAD = """# Roles

Generated from `core/domain/access/roles.py` and the routes by `make reference`. [Accounts](../accounts.md) explains
projects, members and tokens.

"""


def page() -> str:
    """Return the page: who may what, and which requests are which verb."""
    roles = list(AccessRole)
    lines = [f"| verb | {' | '.join(roles)} | |\n", f"|---|{':-:|' * len(roles)}---|\n"]
    for verb in Verb:
        marks = " | ".join("yes" if verb in VERBS[role] else "" for role in roles)
        lines.append(f"| `{verb}` | {marks} | {MEANINGS[verb]} |\n")
    return HEAD + "".join(lines) + _requests()


def _requests() -> str:
    """Return the requests of each verb."""
    app, _ = application.with_routes(described=False)
    by_verb: dict[Verb | None, list[str]] = {}
    for rule in app.url_map.iter_rules():
        methods = sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}) or sorted(rule.methods or ())
        verb = app.view_functions[rule.endpoint].verb  # type: ignore[attr-defined]
        by_verb.setdefault(verb, []).extend(f"`{method} {_plain(rule.rule)}`" for method in methods)
    lines = ["\n## Requests\n\n| verb | requests |\n|---|---|\n"]
    for verb in (*Verb, None):
        if verb in by_verb:
            name = f"`{verb}`" if verb is not None else "none, or decided by what is asked"
            lines.append(f"| {name} | {', '.join(sorted(set(by_verb[verb])))} |\n")
    return "".join(lines)


def _plain(rule: str) -> str:
    """Return a URL rule as the OpenAPI document writes it."""
    parts = [part.partition(">") for part in rule.split("<")]
    return parts[0][0] + "".join(f"{{{name.rpartition(':')[2]}}}{rest}" for name, _, rest in parts[1:])
