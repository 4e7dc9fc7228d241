"""Former names of settings and options: refused with their present names, so that no old configuration is ignored."""

from collections.abc import Container, Mapping


def refuse_former_names(names: Container[str], present: Mapping[str, str], *, where: str = "", quote: str = "") -> None:
    """Raise ValueError with the present name of every former name in ``names``; ``present``: by former names."""
    former = [(quote + old + quote, quote + new + quote) for old, new in present.items() if old in names]
    if former:
        raise ValueError(where + "; ".join(f"{old} is called {new} now" for old, new in former))
