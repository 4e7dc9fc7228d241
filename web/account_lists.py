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
    models: list[str] | None
    datasets: list[str] | None
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


class ShownRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule by which a project deletes what is old. Ages in seconds."""

    kind: str
    older_than: int | None = None
    unused_for: int | None = None
    keep_last: int | None = None
    labels: dict[str, str] = {}
    states: list[str] = []
    name: str | None = None


class ShownRetention(msgspec.Struct, frozen=True):
    """Decisions of a project about what it keeps."""

    bin: bool
    rules: list[ShownRule]


class ShownBinItem(msgspec.Struct, frozen=True):
    """Something in the bin."""

    kind: str
    id: str
    name: str
    version: str | None
    bytes: int
    made_by: str
    binned_by: str | None
    rule: str | None
    binned_at: str
    until: str


class ShownBin(msgspec.Struct, frozen=True):
    """The bin: its newest items, and the number and the bytes of all."""

    items: list[ShownBinItem]
    count: int
    bytes: int


class TakenAmount(msgspec.Struct, frozen=True):
    """How much rules would take of a kind."""

    count: int
    bytes: int


class ShownTrial(msgspec.Struct, frozen=True):
    """The effect that the rules of a project would have now."""

    taken: dict[str, TakenAmount]
    spared: dict[str, int]


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
