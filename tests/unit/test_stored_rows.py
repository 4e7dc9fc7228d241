"""Records of rows: each has the types of the columns that its statement selects."""

import importlib
import pkgutil
import types
import typing

import pytest
from sqlalchemy import Table

from core import store
from core.store.rows import StoredRow

MODULES = [importlib.import_module(f"core.store.{module.name}") for module in pkgutil.iter_modules(store.__path__)]
FIELDS = [
    pytest.param(module, record, field, id=f"{record.__name__}.{field}")
    for module in MODULES
    for record in vars(module).values()
    if isinstance(record, type) and issubclass(record, StoredRow) and record.__module__ == module.__name__
    for field in record.__struct_fields__
]


@pytest.mark.parametrize(("module", "record", "field"), FIELDS)
def test_a_field_of_a_record_has_the_type_of_its_column(
    module: types.ModuleType, record: type[StoredRow], field: str
) -> None:
    tables = {value for value in vars(module).values() if isinstance(value, Table)}
    columns = [table.c[field] for table in tables if field in table.c]
    declared = typing.get_type_hints(record)[field]
    members = typing.get_args(declared) or (declared,)
    found = [{column.type.python_type, *([types.NoneType] if column.nullable else [])} for column in columns]
    assert not columns or set(members) in found
