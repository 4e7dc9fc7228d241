"""Page of the errors: docs/reference/errors.md, from the error classes; `make reference` writes it."""

from api.problems import catalogue, status_of

HEAD = """# Errors

Generated from `errors.py` and `api/problems.py` by `make reference`. A response with an error is a problem document
(RFC 9457) whose `type` is `/problems/SLUG`; [problems](../problems.md) explains each at length. The `detail` of a
response is about the request at hand and replaces the text here.

| slug | status | meaning | next step |
|---|--:|---|---|
"""


def page() -> str:
    """Return the page: a row for each type of problem, by status and slug."""
    rows = []
    classes = catalogue()
    for slug in sorted(classes, key=lambda slug: (status_of(classes[slug]), slug)):
        text = " ".join((classes[slug].__doc__ or "").split())
        meaning, _, step = text.partition(". ")
        rows.append(
            f"| [`{slug}`](../problems.md#{slug}) | {status_of(classes[slug])} | {meaning.rstrip('.')} | {step} |\n"
        )
    return HEAD + "".join(rows)
