"""Fields of a submission for the client and the web page, which do not import the class that declares them.

`python -m scripts.sync_client` writes the module to both.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, get_args, get_origin

from core.domain.submissions.declared_members import DeclaredMember, WholeOrAuto
from core.domain.submissions.submission import MEMBERS

#: Members that `simulations.submit` takes in another way: by place, or as people write them.
OTHERWISE = frozenset({"dataset", "model", "model_reference", "scenarios"})
HEAD = '''# Generated from core/domain/submissions/submission.py by scripts/sync_client.py; a field is a line.
# ruff: noqa: E501
# fmt: off
"""Fields of a submission, as its document has them, and the words with which people and agents are asked for each."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

'''
#: The client's types of its options.
OPTIONS = '''
class SubmissionFields(TypedDict, total=False):
    """Fields of a submission that are the same in its document."""

{}

'''
FIELDS = '''
class DescribedField(NamedTuple):
    """A field: the option of the command line and the label in the form are empty where people are not asked for it."""

    name: str
    type: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    option: str = ""
    metavar: str | None = None
    help: str = ""
    label: str = ""
    placeholder: str = ""
    agents: bool = False


FIELDS = (
{}
)
'''


def client_module() -> str:
    """Return the module of the client: types, and descriptions of fields."""
    types = "\n".join(f"    {member.name}: {_type(member.type)} | None" for member in _taken())
    return HEAD + OPTIONS.format(types) + _descriptions()


def page_module() -> str:
    """Return the module of the web page: descriptions of fields."""
    return HEAD.replace(", TypedDict", "") + _descriptions()


def _descriptions() -> str:
    return FIELDS.format("\n".join(f"    DescribedField({', '.join(_arguments(member))})," for member in _taken()))


def _taken() -> list[DeclaredMember]:
    return [member for member in MEMBERS if member.name not in OTHERWISE]


def _arguments(member: DeclaredMember) -> Iterator[str]:
    """Yield what is said of a member as arguments of DescribedField, without those that are the defaults."""
    limits, option, form = member.facts, member.option, member.form
    yield f"name={member.name!r}"
    yield f"type={_type(member.type)}"
    yield f"description={member.facts.description!r}"
    values: dict[str, object] = {"low": limits.low, "high": limits.high, "choices": limits.choices}
    if option is not None:
        flag = f"--{(option.name or member.name).replace('_', '-')}"
        values |= {"option": flag, "metavar": option.metavar, "help": option.help, "agents": option.agents}
    if form is not None:
        values |= {"label": form.label, "placeholder": form.placeholder}
    for name, value in values.items():
        if value not in (None, "", ()) and value is not False:
            yield f"{name}={value!r}"


def _type(kind: object) -> str:
    """Return a type as the client has it."""
    if get_origin(kind) is Annotated:
        return _type(get_args(kind)[0])
    if kind is object:
        return "Any"
    if kind == WholeOrAuto:
        return 'int | Literal["auto"]'
    parts = ", ".join(map(_type, get_args(kind)))
    if get_origin(kind) is Mapping:
        return f"Mapping[{parts}]"
    return f"Sequence[{parts}]" if get_origin(kind) is list else str(getattr(kind, "__name__", kind))
