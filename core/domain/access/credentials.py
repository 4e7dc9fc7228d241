"""Credentials: the texts by which a user shows who he is, of which the platform keeps the digest alone.

A token is `wt_`, 40 random letters and digits, and six that follow from these by CRC-32, so that a scanner of
secrets finds tokens by their form and knows those that are none without asking (as GitHub's tokens, 2021).
"""

import hashlib
import secrets
import string
import zlib

PREFIX = "wt_"
#: A session's cookie, and an invitation: they are no tokens, and are not accepted as one.
SESSION_PREFIX, INVITATION_PREFIX = "wts_", "wti_"
#: What shows that a sign-in began in the same browser, that a browser is known, and that a device has asked.
TICKET_PREFIX, BROWSER_PREFIX, DEVICE_PREFIX = "wtt_", "wtb_", "wtd_"
_ALPHABET = string.digits + string.ascii_letters
_RANDOM, _CHECK = 40, 6


def new_credential(prefix: str = PREFIX) -> str:
    """Return a new text with 238 random bits."""
    text = prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return text + _check_digits(text)


def is_well_formed(text: str, prefix: str = PREFIX) -> bool:
    """Return whether a text can be one that `new_credential` has made."""
    body, check = text[:-_CHECK], text[-_CHECK:]
    return text.startswith(prefix) and len(body) == len(prefix) + _RANDOM and check == _check_digits(body)


def digest_of(text: str | bytes) -> str:
    """Return what the platform keeps of a credential: its SHA-256; no salt, because it is as random as one."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def _check_digits(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK):
        number, place = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[place]
    return digits
