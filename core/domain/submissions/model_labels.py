"""Labels of models in sentences: names that differ."""

from core.domain.submissions.records import ModelRef


def told_apart(first: ModelRef, second: ModelRef) -> tuple[str, str]:
    """Return the names of two models for sentences, which differ: by their versions, or as the first and the second."""
    names = first.name, second.name
    if names[0] == names[1] and first.version != second.version:
        names = f"{first.name}@{first.version}", f"{second.name}@{second.version}"
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
