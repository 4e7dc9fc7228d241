"""Identity providers: who signs people in for the platform (OpenID Connect), and what their groups may do here.

Values and pure decisions: which members a provider's groups make, and which name its people get.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from core.domain.access.identities import MEMBERS, NAME
from core.domain.access.roles import AccessRole

#: Scopes that are asked for, unless the provider's entry says others; `offline_access` gives the token by which groups
#: are read again while nobody is there (OpenID Connect Core 1.0, section 11).
DEFAULT_SCOPES = ("openid", "profile", "email", "offline_access")
#: Most groups of a person that are looked at.
MOST_GROUPS = 2000
_LONGEST_NAME = 40
_MOST_NAMESAKES = 1000


class GroupRights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rights of the members of a group: roles by project, and whether they are operators of the platform."""

    projects: dict[str, AccessRole] = {}
    operator: bool = False


class IdentityProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider that people sign in with.

    ``admits_all``: also who is in none of the ``groups`` and was not invited becomes a user, who is in no project.
    ``groups_claim``, ``name_claim``: claims with the groups and with the name that a person is shown by.
    ``parameters``: further ones of the request for authentication, such as ``{"prompt": "consent"}`` where a provider
    gives no token for later without (Core 1.0, section 11).
    """

    name: str
    issuer: str
    client_id: str
    title: str = ""
    client_secret: str = ""
    client_secret_file: str = ""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    groups_claim: str = "groups"
    name_claim: str = "preferred_username"
    groups: dict[str, GroupRights] = {}
    admits_all: bool = False
    parameters: dict[str, str] = {}

    @property
    def shown(self) -> str:
        """Text on its button."""
        return self.title or self.name


class _Providers(msgspec.Struct, forbid_unknown_fields=True):
    """The file of providers."""

    providers: list[IdentityProvider]


def parse(text: str | bytes) -> dict[str, IdentityProvider]:
    """Return the providers of a file, by name. Raise ValueError, which says what is wrong with it."""
    try:
        known = msgspec.json.decode(text, type=_Providers).providers
    except msgspec.MsgspecError as error:
        raise ValueError(f"the file of identity providers cannot be read: {error}") from None
    for one in known:
        if fault := _fault(one):
            raise ValueError(f"identity provider {one.name!r}: {fault}")
    by_name = {one.name: one for one in known}
    if len(by_name) < len(known):
        raise ValueError("two identity providers have the same name")
    return by_name


def _fault(one: IdentityProvider) -> str:
    if not NAME.fullmatch(one.name):
        return "its name has up to 40 lower-case letters, digits and dashes"
    scheme, _, rest = one.issuer.partition("://")
    host = rest.partition("/")[0]
    near = host.partition(":")[0] in {"localhost", "127.0.0.1"} or host.startswith("[::1]")
    if not host or not (scheme == "https" or (scheme == "http" and near)):
        return "its issuer is an address with https; with http on this machine alone"
    if bool(one.client_secret) == bool(one.client_secret_file):
        return "it needs a client_secret_file or a client_secret"
    if "openid" not in one.scopes:
        return "its scopes need `openid`"
    if odd := [role for rights in one.groups.values() for role in rights.projects.values() if role not in MEMBERS]:
        return f"members of a project are {', '.join(MEMBERS)}, not {odd[0]}"
    return ""


@dataclass(frozen=True, slots=True)
class ProvidedPerson:
    """A person as a provider describes him; ``subject`` is never given to another one by the same issuer.

    ``refresh``: the token by which he can be asked for again; None: there is none.
    """

    subject: str
    names: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    refresh: str | None = field(default=None, repr=False)


#: Claims by which a person may be named who has none of the name that the provider's entry says.
_OTHER_NAMES = ("email", "name")


def person_of(
    provider: IdentityProvider, subject: str, claims: Mapping[str, object], refresh: str | None
) -> ProvidedPerson:
    """Return the person whom claims describe, which have been verified; of an address of mail, its local part."""
    texts = [claims.get(name) for name in (provider.name_claim, *_OTHER_NAMES)]
    names = [text.partition("@")[0] for text in texts if isinstance(text, str)]
    return ProvidedPerson(
        subject=subject,
        names=tuple(name for name in names if name),
        groups=groups_of(claims.get(provider.groups_claim)),
        refresh=refresh,
    )


def groups_of(claim: object) -> frozenset[str]:
    """Return the groups of a claim, which is a list of names, or one name; anything else names none."""
    if isinstance(claim, str):
        return frozenset({claim})
    if isinstance(claim, list):
        return frozenset(name for name in claim[:MOST_GROUPS] if isinstance(name, str))
    return frozenset()


def rights_of(provider: IdentityProvider, groups: Collection[str]) -> GroupRights:
    """Return what the groups of a person give together: in each project the highest role."""
    projects: dict[str, AccessRole] = {}
    given = [rights for group, rights in provider.groups.items() if group in groups]
    for rights in given:
        for project, role in rights.projects.items():
            before = projects.get(project, role)
            projects[project] = max(before, role, key=MEMBERS.index)
    return GroupRights(projects, any(rights.operator for rights in given))


def is_admitted(provider: IdentityProvider, groups: Collection[str]) -> bool:
    """Return whether a person who was not invited becomes a user."""
    return provider.admits_all or any(group in groups for group in provider.groups)


def candidate_names(names: Collection[str]) -> Iterator[str]:
    """Yield names for a new user, the nearest to his own first: DNS labels of at most 40 characters.

    A name that another one has is not his: then he is `ada-2`.
    """
    labels = [label for name in names if (label := _label(name))] or ["user"]
    yield labels[0]
    for number in range(2, _MOST_NAMESAKES):
        ending = f"-{number}"
        yield labels[0][: _LONGEST_NAME - len(ending)].rstrip("-") + ending


def _label(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")
