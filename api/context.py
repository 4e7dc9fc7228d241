"""Context of the application: the services, and the limits and checks that the composition root has chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
from flask import Flask, current_app, g, request

from api.identification import Identification, OneToken, identity_of, project_of
from api.request_rates import RequestRates
from api.stream_slots import StreamSlots
from common.client_addresses import Network, address_of
from common.errors import AccountsOff, BadRequest, UnknownProject
from core.domain.access.identities import ProjectState, UserIdentity
from core.domain.access.scopes import Caller
from core.services.service_groups import (
    AccessServices,
    AnalysisServices,
    CatalogueServices,
    ComparisonServices,
    FileServices,
    OperationServices,
    PipelineServices,
    SignInServices,
    SubmissionServices,
)

EXTENSION = "windtunnel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Services, limits and checks of an application. ``heartbeat`` is in seconds, ``max_upload`` in bytes."""

    files: FileServices
    catalogue: CatalogueServices
    submissions: SubmissionServices
    analysis: AnalysisServices
    comparisons: ComparisonServices
    pipelines: PipelineServices
    operations: OperationServices
    names: tuple[str, ...] = ()
    identification: Identification = field(default_factory=lambda: OneToken(""))
    #: None on a platform without accounts.
    access: AccessServices | None = None
    sign_in: SignInServices | None = None
    max_upload: int = 4 << 30
    spool: Path | None = None
    heartbeat: float = 15.0
    #: Most streams that are open at the same time.
    streams: int = 1000
    #: Most of them that one project has; None: as many.
    project_share: int | None = None
    #: Most requests of a project a second, after a burst; 0: no limit.
    project_rate: int = 0
    project_burst: int = 1
    request_rates: RequestRates = field(init=False)
    stream_slots: StreamSlots = field(init=False)
    #: Sandbox level of this machine and the missing layers, as /readyz reports them.
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    #: Proxies whose X-Forwarded-For names the caller.
    proxies: tuple[Network, ...] = ()
    #: Readiness checks by component; each returns None, or a message about the problem.
    checks: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    #: Components whose problem makes the process unready; without the other components it is only slower.
    vital: frozenset[str] = frozenset({"database", "roles"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream_slots", StreamSlots(self.streams, self.project_share))
        object.__setattr__(self, "request_rates", RequestRates(self.project_rate, self.project_burst))


def context_of(app: Flask) -> Context:
    """Return the context of an application."""
    return cast(Context, app.extensions[EXTENSION])


def context() -> Context:
    """Return the context of the current application."""
    return context_of(current_app)


def file_services() -> FileServices:
    """Return the current application's services of uploads and models."""
    return context().files


def catalogue_services() -> CatalogueServices:
    """Return the current application's services of datasets and runtimes."""
    return context().catalogue


def submission_services() -> SubmissionServices:
    """Return the current application's services of simulations."""
    return context().submissions


def analysis_services() -> AnalysisServices:
    """Return the current application's services of results."""
    return context().analysis


def sign_in_services() -> SignInServices:
    """Return the current application's services of sign-in; raise AccountsOff where there are no accounts."""
    services = context().sign_in
    if services is None:
        raise AccountsOff
    return services


def access_services() -> AccessServices:
    """Return the current application's services of accounts; raise AccountsOff where there are none."""
    if (access := context().access) is None:
        raise AccountsOff
    return access


def pipeline_services() -> PipelineServices:
    """Return the current application's services of pipelines."""
    return context().pipelines


def comparison_services() -> ComparisonServices:
    """Return the current application's services of comparisons of models."""
    return context().comparisons


def operation_services() -> OperationServices:
    """Return the current application's services of operators."""
    return context().operations


class _Addressed(msgspec.Struct):
    """The parameters of an address, as far as they decide who may ask for it."""

    project: str | None = None


def identity() -> UserIdentity:
    """Return who this request is."""
    return identity_of(request.environ)


def client_address() -> str:
    """Return where this request came from."""
    forwarded = ",".join(request.headers.getlist("X-Forwarded-For"))
    return address_of(request.environ.get("REMOTE_ADDR", ""), forwarded, context().proxies)


def caller() -> Caller:
    """Return on whose behalf this request acts: in the project of its address, or that it names, or in its only one.

    Raise UnknownProject for a project that is not its own.
    """
    if "caller" not in g:
        addressed, named = msgspec.convert(request.view_args or {}, _Addressed).project, project_of(request.environ)
        if addressed is not None and named not in (None, addressed):
            raise BadRequest("The request names two projects: that of its address, and another one.")
        named = addressed or named
        address, closed = client_address(), False
        acting = identity().act_in(named, address)
        if named is not None and named not in identity().projects:  # an operator's
            if (state := context().identification.project_state(named)) is None:
                raise UnknownProject
            closed = state is ProjectState.CLOSED
        g.caller = identity().act_in(named, address, closed=True) if closed else acting
    return cast(Caller, g.caller)
