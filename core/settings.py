"""Settings with their defaults; composition roots alone read them from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from common.bearer_tokens import token_fault
from common.client_addresses import networks
from common.former_names import refuse_former_names
from common.near_names import near_names, suggestion
from core.domain.access import cluster_accounts
from core.domain.scheduling.job_kinds import JobKind, configured
from core.domain.usage.usage_sums import Prices, parsed_prices

PREFIX = "WINDTUNNEL_"
LOCAL = "127.0.0.1"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

PARSE: Mapping[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: lambda text: {"yes": True, "true": True, "no": False, "false": False}[text.lower()],
    Path: Path,
    timedelta: lambda text: timedelta(seconds=float(text)),
    tuple[str, ...]: lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
}

#: Former names of settings -> present names; a former name is refused with an error that has the present name.
RENAMED: Mapping[str, str] = {
    "DRIVERS_HOST": "RUNNER_API_HOST",
    "DRIVERS_PORT": "RUNNER_API_PORT",
    "DRIVERS_URL": "RUNNER_API_URL",
    "WARM_CREWS": "WARM_RUNNERS",
}


#: Variables of the command line and the client, which a server that is started from the same shell ignores.
OF_CLIENTS = frozenset({"URL", "CONTEXT", "CONFIG", "PROJECT"})


#: Fewest characters of a key that secrets are made of.
SHORTEST_KEY = 32
#: Ports that move with PORT, unless they are set themselves, and their distance from it.
OFFSETS: Mapping[str, int] = {"runner_api_port": 1, "scs_port": 80}


def beside(port: int, offset: int) -> int:
    """Return the port at a distance from another, above it or, where there is none, below it."""
    return port + offset if port + offset < 1 << 16 else port - offset


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """An empty URL means: embedded, under ``home``. Durations are values in seconds, sizes in bytes."""

    #: Folder of all data that the platform stores on this machine.
    home: Path = Path("var")
    #: Address of the public API; any address other than loopback needs a token.
    host: str = "127.0.0.1"
    #: Port of the public API; if it is set, the two ports below that are not set have the same distance from it.
    port: int = 5000
    #: Port of the runner API (`PORT` + 1), separate from the public API so that streams cannot starve it.
    runner_api_port: int = 5001
    #: Address of the runner API; other than loopback only where a network policy restricts access to runners.
    runner_api_host: str = "127.0.0.1"
    #: URL of the runner API that runners use; empty: built from the two settings above.
    runner_api_url: str = ""
    #: SQLAlchemy's URL: SQLite or PostgreSQL (``postgresql+psycopg://``).
    database_url: str = ""
    #: Redis URL of the notifier and the job queue.
    redis_url: str = ""
    #: ``file:///folder``, or ``s3://bucket/prefix?endpoint=http://host:port``, with the two keys below.
    object_store_url: str = ""
    #: Access key of the object store; not part of the URL, because the URL is shown.
    object_store_access_key: str = ""
    #: Secret key of the object store; not part of the URL either.
    object_store_secret_key: str = field(default="", repr=False)
    #: JSON file of the object storage that datasets may be registered from, with credentials; readable by its owner
    #: alone. Empty: ``connections.json`` under ``home``.
    connections: str = ""
    #: JSON file of the executors, ``{"executors": [{"name", "kind", "workers", "options"}]}``. Empty: this machine
    #: alone.
    executors: str = ""
    #: Most workers at the same time on this machine; 0: one per core.
    workers: int = 0
    #: Most open event and result streams; a further stream is answered 503.
    streams: int = 1000
    #: Most of these that one project has, where people sign in, and twice as many as one user in it has by scripts;
    #: further ones are answered 429. 0: half of ``streams``.
    project_streams: int = 0
    #: Most requests a second of one project, where people sign in, to each process of the API; further ones are
    #: answered 429. 0: no limit.
    project_rate: int = 200
    #: Most requests of one project that are served at once after a pause, before ``project_rate`` holds.
    project_burst: int = 1000
    #: Largest model, whichever way it is sent, and largest body of a request that is not a resumable upload, in bytes.
    max_upload: int = 4 << 30
    #: Largest resumable upload, in bytes; one of several partial uploads too.
    max_resumable: int = 64 << 30
    #: Most bytes of the files of a model that is an archive (zip, tar).
    max_unpacked: int = 4 << 30
    #: Most bytes of the files that a task of a program leaves, and of each of its checkpoints.
    max_output: int = 1 << 30
    #: Most bytes of the packages of a model's own Python environment, and of their download.
    max_environment: int = 8 << 30
    #: Package indexes that packages of Python models come from, the first that has a package is used for it; empty:
    #: models cannot have dependencies.
    package_indexes: tuple[str, ...] = ("https://pypi.org/simple",)
    #: URLs of further hosts that the files of these indexes are on.
    package_hosts: tuple[str, ...] = ("https://files.pythonhosted.org",)
    #: Patterns of the names of packages that models may have.
    allowed_packages: tuple[str, ...] = ("*",)
    #: Mirrors that Debian packages of simulators come from, the first that has a file is used; empty: none but those
    #: that the object store has already.
    debian_mirrors: tuple[str, ...] = ("http://deb.debian.org/debian",)
    #: Suite of Debian in which the packages of users' own cases are looked for.
    debian_suite: str = "bookworm"
    #: Keyring by which the signature of that suite's index is verified, with the program gpgv.
    debian_keyring: Path = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    #: Patterns of the names of Debian packages that users' own cases may name; the packages of the platform's datasets
    #: are always allowed.
    debian_packages: tuple[str, ...] = ()
    #: Seconds without a byte of a request's body after which the request is answered 408.
    body_timeout: timedelta = timedelta(seconds=30)
    #: Fewest bytes per second, on average, of a body that lasts longer than that; a resumable upload may be slower.
    body_rate: int = 1024
    #: Most unfinished request bodies that threads read, and as many resumable uploads again; others are answered 503.
    bodies: int = 256
    #: Most bytes of a dataset that are copied into the object store: the unpacked files of an archive, or its uploads.
    #: Objects of a bucket are not copied and have no limit.
    max_dataset: int = 1 << 40
    #: Most bytes of a map of a dataset (OpenDRIVE, OpenStreetMap and others), unpacked.
    max_map: int = 64 << 20
    #: Most edges for cars of the network that is made of a map; each scenario of it reads them all.
    max_map_edges: int = 20_000
    #: Free bytes of the disks of ``home`` and of an object store in a folder, below which uploads, models and
    #: registrations are answered 507 while running simulations continue. 0: 2 % of the disk, between 1 and 10 GiB, at
    #: most an eighth of the disk.
    disk_floor: int = 0
    #: Seconds that an unfinished upload is kept after its last byte, and an unused finished upload after its end.
    upload_ttl: timedelta = timedelta(days=1)
    #: Seconds that entries of the audit log are kept: 400 days. A platform without accounts has none.
    audit_retention: timedelta = timedelta(days=400)
    #: Seconds for which what is in the bin may come back: a week.
    bin_term: timedelta = timedelta(days=7)
    #: Most unfinished uploads of a caller: of an IPv4 address, or of a /64 of IPv6 addresses.
    uploads_per_caller: int = 500
    #: Most unfinished dry runs (``POST /v1/checks``) of a project: each occupies a thread of an API process and takes
    #: a worker before queued simulations; others are answered 429.
    dry_runs: int = 16
    #: Addresses and networks of reverse proxies (``10.0.0.0/8``), whose ``X-Forwarded-For`` names the caller. The
    #: clients of any other proxy count as one caller.
    trusted_proxies: tuple[str, ...] = ()
    #: Capacity of this node's cache of datasets and models, in bytes; 0: no limit.
    cache_capacity: int = 0
    #: Eviction policy of this node's cache: a module of ``datasets/eviction/policies``.
    cache_eviction: str = "lru"
    #: Nodes of the cache service: ``http://host:port``, or ``zone=http://host:port``; in a cluster
    #: ``kubernetes://namespace/service``.
    scs_nodes: tuple[str, ...] = ()
    #: Zone of this node; only cache service nodes of the same zone are used.
    scs_zone: str = ""
    #: Bucket of the cache service for staged files.
    scs_bucket: str = "private"
    #: File with the bearer token for the cache service; read again when it changes.
    scs_token_file: str = ""
    #: Port of this machine's own cache service (`PORT` + 80); 0: it is not started.
    scs_port: int = 5080
    #: JSON file with the configuration of this machine's own cache service; empty: a default for laptops.
    scs_config: str = ""
    #: Further host names that this server answers for.
    names: tuple[str, ...] = ()
    #: Bearer token that every request must have; required when other machines can reach the server.
    token: str = field(default="", repr=False)
    #: ``yes``: people sign in, and what they have belongs to projects (docs/accounts.md). Without, all who have the
    #: token are one person.
    multi_user: bool = False
    #: JSON file of the identity providers that people sign in with (docs/sign-in.md). Empty:
    #: ``identity-providers.json`` under ``home``, which need not exist.
    identity_providers: str = ""
    #: Roles of service accounts of a Kubernetes cluster, whose bound tokens for the audience ``windtunnel`` are
    #: accepted: ``NAMESPACE=PROJECT:ROLE`` or ``NAMESPACE/ACCOUNT=PROJECT:ROLE``. Empty: none is.
    cluster_accounts: tuple[str, ...] = ()
    #: Kubeconfig of the API server that reviews these tokens; empty: the service account of this pod.
    cluster_kubeconfig: str = ""
    #: The project in which requests of API 1.0 without a token submit, on a platform where people sign in. Without it,
    #: they need a token.
    legacy_project: str = ""
    #: ``yes``: serve every client without a token, for a trial in a closed network.
    anonymous: bool = False
    #: ``auto``: the strongest sandbox of this machine, refusing models with code if it is weak; ``none``: no sandbox.
    sandbox: str = "auto"
    #: Whether submissions may have ``trusted: true``, which runs a model in the evaluator's process, where it can
    #: change its own score: ``yes``, ``no``, or ``auto``, which allows it on a laptop alone: a server on loopback,
    #: without further names, proxies and executors.
    trusted: str = "auto"
    #: Whether people may look into tasks of programs while they run: their folders, growing files, and what each rank
    #: prints. Each look is recorded.
    look_inside: bool = False
    #: Ports of programs that people may connect to while they run, such as ``6006,8888``, if they may look inside;
    #: empty: none. Each connection is recorded.
    forwarded_ports: tuple[str, ...] = ()
    #: Prices of an hour of a core, of a GiB of memory and of a GPU, as ``core=0.04,memory=0.005,gpu=2.5``; what is left
    #: out costs nothing. Empty: usage has no cost.
    prices: tuple[str, ...] = ()
    #: Currency of the prices, as usage shows it.
    currency: str = ""
    #: Whether time has its price that the platform lost, because it repeats the work.
    price_lost: bool = False
    #: Key of which the secrets of webhooks are made, at least 32 characters, the same for all processes; empty: the one
    #: in the file ``webhook-key`` under ``home``, which is made when it is needed.
    webhook_key: str = field(default="", repr=False)
    #: Private addresses and networks (``10.1.0.0/16``) where webhooks may be, beside the public Internet.
    webhook_networks: tuple[str, ...] = ()
    #: URL under which people and programs find this platform, as webhooks name it; empty: addresses without a host.
    public_url: str = ""
    #: Port of the dispatcher's Prometheus metrics of executors; 0: none. The API's metrics are at its ``/metrics``.
    metrics_port: int = 0
    #: Port of the jobs role's Prometheus metrics of queues and workers; 0: none.
    jobs_metrics_port: int = 0
    #: Worker processes per jobs role and kind of job, as ``collect=8``; docs/jobs.md lists kinds and defaults.
    job_concurrency: tuple[str, ...] = ()
    #: Seconds after which an attempt of a job of a kind is ended, as ``prefetch=172800``.
    job_timeouts: tuple[str, ...] = ()
    #: Seconds after which a lease without a heartbeat expires.
    lease_ttl: timedelta = timedelta(seconds=10)
    #: Seconds between two polls of the dispatcher when no notification arrives.
    dispatch_interval: timedelta = timedelta(seconds=1)
    #: Number of kinds of warm runner that have a spare warm runner, most recently used kinds first; more than one of a
    #: kind in a rush.
    warm_runners: int = 2
    #: Most bytes of memory of all warm runners that wait, and of what they are forked from. Fewer are kept while the
    #: machine, or its control group, is short of memory.
    warm_memory: int = 512 << 20
    #: Fork the processes of warm runners from processes that have imported their libraries (decision 43); "no": start
    #: and confine each process before it imports anything.
    warm_forks: bool = True
    #: Level of the JSON logs under ``home/logs``.
    log_level: str = "INFO"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Read ``WINDTUNNEL_*``; an unknown name is an error, because a misspelt setting would be ignored silently."""
        kinds = get_type_hints(cls)
        known = {PREFIX + setting.name.upper(): setting.name for setting in fields(cls)}
        refuse_former_names(env, {PREFIX + old: PREFIX + new for old, new in RENAMED.items()})
        ignored = {PREFIX + name for name in OF_CLIENTS}
        if unknown := sorted(key for key in env if key.startswith(PREFIX) and key not in known and key not in ignored):
            names = [name.removeprefix(PREFIX) for name in known]
            near = [PREFIX + name for key in unknown for name in near_names(key.removeprefix(PREFIX), names)]
            raise ValueError(
                f"unknown settings: {', '.join(unknown)}. " + suggestion(near, "docs/settings.md lists the settings.")
            )
        values = {}
        if env.get(f"{PREFIX}HOME") == "":
            raise ValueError(
                f"{PREFIX}HOME: an empty text names no folder; name one, or leave the variable out for the default"
            )
        for key, name in known.items():
            if key in env:
                try:
                    values[name] = PARSE[kinds[name]](env[key])
                except KeyError:
                    raise ValueError(f"{key}: 'yes' or 'no', not {env[key]!r}") from None
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from None
        if "port" in values:  # one variable moves a server with all its ports
            for name, offset in OFFSETS.items():
                values.setdefault(name, beside(values["port"], offset))
        settings = cls(**values)
        if settings.sandbox not in {"auto", "none"}:
            raise ValueError(f"{PREFIX}SANDBOX: 'auto' or 'none', not {settings.sandbox!r}")
        if settings.trusted not in {"auto", "yes", "no"}:
            raise ValueError(f"{PREFIX}TRUSTED: 'auto', 'yes' or 'no', not {settings.trusted!r}")
        try:
            _ = settings.job_kinds
        except ValueError as error:
            raise ValueError(f"{PREFIX}JOB_CONCURRENCY or {PREFIX}JOB_TIMEOUTS: {error}") from None
        try:
            _ = settings.usage_prices
        except ValueError as error:
            raise ValueError(f"{PREFIX}PRICES: {error}") from None
        try:
            _ = cluster_accounts.parse(settings.cluster_accounts)
        except ValueError as error:
            raise ValueError(f"{PREFIX}CLUSTER_ACCOUNTS: {error}") from None
        if settings.legacy_project and not settings.multi_user:
            raise ValueError(f"{PREFIX}LEGACY_PROJECT: there are projects with {PREFIX}MULTI_USER=yes alone")
        if settings.token and (fault := token_fault(settings.token)):
            raise ValueError(f"{PREFIX}TOKEN: {fault}")
        if settings.webhook_key and len(settings.webhook_key) < SHORTEST_KEY:
            raise ValueError(
                f"{PREFIX}WEBHOOK_KEY: at least {SHORTEST_KEY} characters, such as of `openssl rand -hex 32`"
            )
        if settings.public_url and not settings.public_url.startswith(("http://", "https://")):
            raise ValueError(f"{PREFIX}PUBLIC_URL: an address such as https://sim.example.com")
        for name in ("body_rate", "bodies"):
            if getattr(settings, name) < 1:
                raise ValueError(f"{PREFIX}{name.upper()}: at least 1, not {getattr(settings, name)}")
        for name in ("project_streams", "project_rate", "project_burst"):
            if getattr(settings, name) < 0:
                raise ValueError(f"{PREFIX}{name.upper()}: at least 0, not {getattr(settings, name)}")
        if settings.body_timeout <= timedelta(0):
            raise ValueError(f"{PREFIX}BODY_TIMEOUT: more than 0 seconds are needed")
        if wrong := [text for text in settings.forwarded_ports if not (text.isdecimal() and 0 < int(text) < 1 << 16)]:
            raise ValueError(f"{PREFIX}FORWARDED_PORTS: {', '.join(wrong)}: ports are numbers from 1 to 65535")
        try:
            networks(settings.trusted_proxies)
        except ValueError as error:
            raise ValueError(f"{PREFIX}TRUSTED_PROXIES: {error}") from None
        try:
            networks(settings.webhook_networks)
        except ValueError as error:
            raise ValueError(f"{PREFIX}WEBHOOK_NETWORKS: {error}") from None
        if settings.host not in LOOPBACK and not (settings.token or settings.anonymous or settings.multi_user):
            raise ValueError(
                f"{PREFIX}HOST: {settings.host} can be reached by others; set {PREFIX}TOKEN to a secret first"
            )
        return settings

    @property
    def max_workers(self) -> int:
        """Workers at once on this machine."""
        return self.workers or os.cpu_count() or 1

    @property
    def project_share(self) -> int | None:
        """Streams of a process that one project may have; None: all, for they are of one project."""
        return (self.project_streams or max(1, self.streams // 2)) if self.multi_user else None

    @property
    def allows_trusted(self) -> bool:
        """Whether a submission may have its model run in the evaluator's process."""
        laptop = self.host in LOOPBACK and not (self.names or self.trusted_proxies or self.executors)
        return self.trusted == "yes" or (self.trusted == "auto" and laptop)

    @property
    def ports_of_programs(self) -> frozenset[int]:
        """Ports of programs that people may connect to."""
        return frozenset(map(int, self.forwarded_ports)) if self.look_inside else frozenset()

    @property
    def runner_api_address(self) -> str:
        """URL of the runner API."""
        host = LOCAL if self.runner_api_host in {"0.0.0.0", "::"} else self.runner_api_host
        return self.runner_api_url or f"http://{host}:{self.runner_api_port}"

    @property
    def job_kinds(self) -> tuple[JobKind, ...]:
        """Kinds of background job, with the settings of their workers."""
        return configured(self.job_concurrency, self.job_timeouts)

    @property
    def usage_prices(self) -> Prices:
        """Prices of what simulations use."""
        return parsed_prices(self.prices, self.currency, lost=self.price_lost)

    @property
    def run_dir(self) -> Path:
        """Sockets and locks; mode 0700."""
        return self.home.resolve() / "run"

    @property
    def database(self) -> str:
        """SQLAlchemy's URL of the database."""
        return self.database_url or f"sqlite:///{self.home.resolve() / 'windtunnel.db'}"

    @property
    def objects(self) -> str:
        """URL of the object store."""
        return self.object_store_url or f"file://{self.home.resolve() / 'objects'}"

    @property
    def identity_providers_file(self) -> Path:
        """JSON file of identity providers; it need not exist."""
        return Path(self.identity_providers) if self.identity_providers else self.home / "identity-providers.json"

    @property
    def connections_file(self) -> Path:
        """JSON file of object storage connections; it need not exist."""
        return Path(self.connections) if self.connections else self.home.resolve() / "connections.json"

    @property
    def environments(self) -> Path:
        """Prepared environments of runtimes and simulators."""
        return self.home.resolve() / "environments"

    @property
    def cache(self) -> Path:
        """Staged models and files."""
        return self.home.resolve() / "cache"
