"""Trusted runs: simulations whose model ran in the evaluator's process, and what people are told about them."""


def trusted_notice(first: bool, second: bool) -> str | None:
    """Return what a reader of two simulations has to know; None if both are isolated.

    ``first`` and ``second``: whether each of them is trusted.
    """
    if not (first or second):
        return None
    if first and second:
        return (
            "Both are trusted: each model ran in the evaluator's process and could have changed its own score."
            " Simulate both without `trusted` before it decides anything."
        )
    trusted, isolated = ("first", "second") if first else ("second", "first")
    return (
        f"The {trusted} is trusted and the {isolated} is isolated: the model of the {trusted} ran in the evaluator's"
        f" process and could have changed its own score. Simulate the {trusted} without `trusted` before it decides"
        " anything."
    )
