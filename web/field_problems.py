"""Problems of a form by field: what the API, or the page itself, says of each field of a request that was refused."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from web.form_fields import Fields
from web.formatting import on_page

#: Member of a request that a type of problem is about.
_MEMBERS: Mapping[str, str] = {
    "unknown-model": "model",
    "format-mismatch": "model",
    "unknown-format": "model",
    "unknown-dataset": "dataset",
    "unknown-runtime": "runtime",
    "scenario-out-of-range": "scenarios",
    "too-many-tasks": "scenarios",
}
#: How a text names its member: `repeat: Not a valid integer.`, "no parameter 'x'", "`until`: equivalent needs ...".
_PATH = re.compile(r"([a-z_]+)(?:\.([^ :]+))?: ")
_PARAMETER = re.compile(r"parameter '([^']+)'")
_WORD = re.compile(r"no (executor|metric) '|`([a-z_]+)`")


def field_problems(problem: Mapping[str, Any] | None, fields: Fields, named: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each field that a problem is about; that which is about none has the name ``""``.

    ``named``: the field of a member, where that has another name; of all other members, that of ``""``. Of a field that
    is repeated, each has its number: `model.0`.
    """
    problems: dict[str, str] = {}
    for member, text in _texts(problem) if problem else ():
        name = member if not member or member in fields else named.get(member, named.get("", ""))
        name = _numbered(name, text, fields) if len(fields.get(name, ())) > 1 else name
        problems[name] = f"{problems[name]} {on_page(text)}" if name in problems else on_page(text)
    return problems


def _texts(problem: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a problem, each with the name of the member that it is about, or an empty one."""
    if "field" in problem:
        yield problem["field"], problem["detail"]
        return
    member = _MEMBERS.get(str(problem.get("type", "")).rpartition("/")[2])
    for text in problem.get("errors") or [problem.get("detail", "")]:
        if member is not None:
            yield member, text
        elif path := _PATH.match(text):
            first, rest = path.groups()
            yield (f"param.{rest}" if first in ("params", "sweep") and rest else first), text[path.end() :]
        elif parameter := _PARAMETER.search(text):
            yield f"param.{parameter[1]}", text
        else:
            word = _WORD.search(text)
            yield (word[1] or word[2] if word else ""), text


def _numbered(name: str, text: str, fields: Fields) -> str:
    """Return a repeated field with the number of the one whose value a text has; the first if it has none."""
    values = [value.strip() for value in fields[name]]
    written = [number for number, value in enumerate(values) if value and re.search(rf"\b{re.escape(value)}\b", text)]
    return f"{name}.{written[0] if written else 0}"
