"""Bearer tokens that an operator chooses: characters that a header can have, and a length that cannot be guessed."""

import re

#: Fewest characters of a token. 16 random letters and digits have 95 bits.
SHORTEST = 16
_CHARACTERS = re.compile(r"[\x21-\x7e]*")


def token_fault(token: str, *, shortest: int = SHORTEST) -> str | None:
    """Return why a token cannot be used, without the token; None if it can."""
    if not _CHARACTERS.fullmatch(token):
        return (
            "the token has characters other than printable ASCII without spaces, so no request's Authorization header "
            "could match it"
        )
    if len(token) < shortest:
        return f"the token has {len(token)} characters; at least {shortest} are needed (try `openssl rand -hex 16`)"
    return None
