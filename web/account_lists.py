"""Lists of accounts as pages show them: members, tokens, projects and users."""

import msgspec


class ShownMember(msgspec.Struct, frozen=True):
    """A member of a project."""

    user: str
    role: str
    service: bool
    since: str


class ShownMembers(msgspec.Struct, frozen=True):
    """The members of a project."""

    items: list[ShownMember]


class ShownToken(msgspec.Struct, frozen=True):
    """A token, or a session of a browser."""

    id: str
    name: str
    user: str
    role: str | None
    verbs: list[str] | None
    session: bool
    created_by: str
    created_at: str
    expires_at: str | None
    used_at: str | None
    used_from: str | None


class ShownTokens(msgspec.Struct, frozen=True):
    """Tokens and sessions."""

    items: list[ShownToken]


class ShownShare(msgspec.Struct, frozen=True):
    """A share: a model, a dataset or a simulation that another project may read."""

    owner: str
    shared_with: str
    kind: str
    name: str
    version: str | None
    reference: str
    created_at: str

    @property
    def thing(self) -> str:
        """Its name for the API, in the project that has it."""
        return f"{self.kind}/{self.version or self.name}"

    @property
    def page(self) -> str:
        """Path of its page, for who reads it there."""
        folder = {"datasets": "data"}.get(self.kind, self.kind)
        return f"/{folder}/{self.reference}"


class ShownShares(msgspec.Struct, frozen=True):
    """Shares."""

    items: list[ShownShare]


class ShownName(msgspec.Struct, frozen=True):
    """A project, or a user."""

    name: str
    created_by: str
    created_at: str
    state: str = ""
    operator: bool = False
    service: str | None = None


class ShownNames(msgspec.Struct, frozen=True):
    """A page of projects, or of users."""

    items: list[ShownName]
    next: str | None = None

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [item.name for item in self.items]


class PlatformQuery(msgspec.Struct, frozen=True):
    """The query of the page of the platform: where its two lists go on."""

    projects_after: str = ""
    users_after: str = ""
