"""Patterns of texts that callers send: names, references, one line."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
#: The name of another project and a slash, before what that shares.
_OF_PROJECT = r"(?:[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?/)?"
#: A name, also one that another project has: ``team-a/brake``.
SHARED_NAME = rf"^{_OF_PROJECT}[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}$"
#: A name, ``name@version``, an id, or ``sha256:`` and hexadecimal digits, also of what another project shares.
REFERENCE = rf"^{_OF_PROJECT}[A-Za-z0-9][A-Za-z0-9._@:-]{{0,199}}$"
#: The name of a connection, and as a pattern of a whole text.
CONNECTION_NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
CONNECTION = f"^{CONNECTION_NAME}$"
#: One line of text without control characters.
LINE = r"^[^\x00-\x1f\x7f]*$"
#: Most characters of a reference to a model, such as an address.
MODEL_REFERENCE_LENGTH = 2000
