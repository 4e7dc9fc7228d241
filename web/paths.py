"""Paths of the web page, beside those of the API on the same server."""

#: The form that takes the token.
SIGN_IN = "/sign-in"

#: First segments of the paths that the web page serves.
SEGMENTS = frozenset(
    {
        "compare",
        "comparisons",
        "data",
        "device",
        "favicon.ico",
        "invitation",
        "models",
        "operations",
        "pipelines",
        "projects",
        "register",
        "runtimes",
        "sign-in",
        "sign-out",
        "simulations",
        "static",
        "submit",
    }
)


def is_page(path: str) -> bool:
    """Return whether a path belongs to the web page; all others belong to the API, the files of `/docs` too."""
    return path in {"/", "/docs"} or (path.startswith("/") and path[1:].partition("/")[0] in SEGMENTS)
