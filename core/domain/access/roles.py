"""Roles: what a member of a project may do, as a table of verbs; `docs/reference/roles.md` is made of it.

Each route has a verb, and each token a role and perhaps fewer verbs. A request needs the verb in the project in which
it acts, of its token and of the token's maker.
"""

from collections.abc import Mapping
from enum import StrEnum


class Verb(StrEnum):
    """An act that a request does."""

    READ = "read"
    UPLOAD = "upload"
    SUBMIT = "submit"
    CHANGE = "change"
    CHANGE_OTHERS = "change-others"
    ADMINISTER = "administer"
    OPERATE = "operate"


class AccessRole(StrEnum):
    """The part of a user in a project, or in the platform, from the least to the most."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    MAINTAINER = "maintainer"
    OPERATOR = "operator"


#: What each verb means, in the words of the documentation.
MEANINGS: Mapping[Verb, str] = {
    Verb.READ: "List, read and download models, datasets, simulations, comparisons, pipelines and results.",
    Verb.UPLOAD: "Upload files; register models and datasets; import models.",
    Verb.SUBMIT: "Check and submit simulations, comparisons and pipelines; retry them; prefetch datasets.",
    Verb.CHANGE: "Cancel, resize, tag and delete one's own; connect to ports of one's own programs.",
    Verb.CHANGE_OTHERS: "The same with everybody's in the project.",
    Verb.ADMINISTER: "Members, tokens, quotas, shares and retention of the project.",
    Verb.OPERATE: "Projects, users, executors, storage and metrics of the platform.",
}
_VIEWER = frozenset({Verb.READ})
_SUBMITTER = _VIEWER | {Verb.UPLOAD, Verb.SUBMIT, Verb.CHANGE}
_MAINTAINER = _SUBMITTER | {Verb.CHANGE_OTHERS, Verb.ADMINISTER}
#: The one place that decides: which verbs a role has.
VERBS: Mapping[AccessRole, frozenset[Verb]] = {
    AccessRole.VIEWER: _VIEWER,
    AccessRole.SUBMITTER: _SUBMITTER,
    AccessRole.MAINTAINER: _MAINTAINER,
    AccessRole.OPERATOR: _MAINTAINER | {Verb.OPERATE},
}
