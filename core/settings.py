"""Every setting, with its default; read from the environment by composition roots alone."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

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

#: Settings by their former names, refused with the present one.
RENAMED: Mapping[str, str] = {
    "DRIVERS_HOST": "RUNNER_API_HOST",
    "DRIVERS_PORT": "RUNNER_API_PORT",
    "DRIVERS_URL": "RUNNER_API_URL",
    "WARM_CREWS": "WARM_RUNNERS",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """An empty URL means: embedded, under ``home``. Durations are given in seconds, sizes in bytes."""

    #: Where everything lies that the platform keeps on this machine.
    home: Path = Path("var")
    #: The address served; any other than loopback needs a token.
    host: str = "127.0.0.1"
    #: Where people and their clients ask.
    port: int = 5000
    #: Where runners lease and report; a listener of its own, so that streams cannot starve it.
    runner_api_port: int = 5001
    #: The address runners are listened to at; any other than loopback only where a network policy keeps others away.
    runner_api_host: str = "127.0.0.1"
    #: What runners are told to ask; empty: the two above.
    runner_api_url: str = ""
    #: SQLAlchemy's URL: SQLite or PostgreSQL (``postgresql+psycopg://``).
    database_url: str = ""
    #: The notifier and the jobs' queue.
    redis_url: str = ""
    #: ``file:///folder``, or ``s3://bucket/prefix?endpoint=http://host:port``, with the two keys below.
    object_store_url: str = ""
    #: Never part of the URL, which is shown.
    object_store_access_key: str = ""
    #: As above.
    object_store_secret_key: str = field(default="", repr=False)
    #: The object storage that datasets may be registered from, with its credentials: JSON, readable by its owner alone.
    #: Empty: ``connections.json`` under ``home``.
    connections: str = ""
    #: The places that simulations run in: JSON, ``{"executors": [{"name", "kind", "workers", "options"}]}``. Empty:
    #: this machine alone.
    executors: str = ""
    #: Evaluator and host pairs at work at once; 0 is one for each core.
    workers: int = 0
    #: Event and result streams open at once; the next is answered 503.
    streams: int = 1000
    #: The largest body of one request that is no resumable upload.
    max_upload: int = 4 << 30
    #: The largest resumable upload.
    max_resumable: int = 64 << 30
    #: How long an unfinished upload is kept after its last byte, and a finished one that nothing was made of.
    upload_ttl: timedelta = timedelta(days=1)
    #: What staged datasets and models may fill on this node; 0 is no limit.
    cache_capacity: int = 0
    #: The cache service's nodes: ``http://host:port``, or ``zone=http://host:port``; in a cluster
    #: ``kubernetes://namespace/service``.
    scs_nodes: tuple[str, ...] = ()
    #: The zone this node lies in; nodes of the same zone are asked.
    scs_zone: str = ""
    #: The cache service's bucket for staged files.
    scs_bucket: str = "private"
    #: A file with the bearer token for the cache service; read again when it changes.
    scs_token_file: str = ""
    #: Where this machine's own cache service listens; 0: it is not started.
    scs_port: int = 5080
    #: Its configuration, a JSON file; empty: a laptop's.
    scs_config: str = ""
    #: Further host names this server answers for.
    names: tuple[str, ...] = ()
    #: What every request must bring as its bearer token; needed as soon as others than this machine can reach it.
    token: str = field(default="", repr=False)
    #: Whoever reaches the address may do everything, without a token: ``yes``, for a trial in a closed network.
    anonymous: bool = False
    #: ``auto``: the strongest the machine allows, refusing code where that is weak; ``none``: no sandbox at all.
    sandbox: str = "auto"
    #: Where dispatch tells Prometheus how executors answer; 0: nowhere. The API's own are at its ``/metrics``.
    metrics_port: int = 0
    #: How long a lease lives without a beat.
    lease_ttl: timedelta = timedelta(seconds=10)
    #: How often the dispatcher looks when no notifier rings.
    dispatch_interval: timedelta = timedelta(seconds=1)
    #: Kinds of warm runner of which a spare one is kept warm, most recently used first.
    warm_runners: int = 2
    #: Of the JSON logs under ``home/logs``.
    log_level: str = "INFO"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Read ``WINDTUNNEL_*``; an unknown name is an error, for a misspelt setting is a silent one."""
        kinds = get_type_hints(cls)
        known = {PREFIX + one.name.upper(): one.name for one in fields(cls)}
        if renamed := [
            f"{PREFIX}{old} is called {PREFIX}{new} now" for old, new in RENAMED.items() if PREFIX + old in env
        ]:
            raise ValueError("; ".join(renamed))
        if unknown := sorted(key for key in env if key.startswith(PREFIX) and key not in known):
            raise ValueError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        given = {}
        for key, name in known.items():
            if key in env:
                try:
                    given[name] = PARSE[kinds[name]](env[key])
                except KeyError:
                    raise ValueError(f"{key}: 'yes' or 'no', not {env[key]!r}") from None
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from None
        settings = cls(**given)
        if settings.sandbox not in {"auto", "none"}:
            raise ValueError(f"{PREFIX}SANDBOX: 'auto' or 'none', not {settings.sandbox!r}")
        if settings.host not in LOOPBACK and not settings.token and not settings.anonymous:
            raise ValueError(
                f"{PREFIX}HOST: {settings.host} can be reached by others; set {PREFIX}TOKEN to a secret first"
            )
        return settings

    @property
    def max_workers(self) -> int:
        """Workers at once on this machine."""
        return self.workers or os.cpu_count() or 1

    @property
    def runner_api_address(self) -> str:
        """URL of the runner API."""
        host = LOCAL if self.runner_api_host in {"0.0.0.0", "::"} else self.runner_api_host
        return self.runner_api_url or f"http://{host}:{self.runner_api_port}"

    @property
    def run_dir(self) -> Path:
        """Sockets and locks; mode 0700."""
        return self.home.resolve() / "run"

    @property
    def database(self) -> str:
        """SQLAlchemy's URL of the database."""
        return self.database_url or f"sqlite:///{self.home.resolve() / 'windtunnel.db'}"

    @property
    def redis_socket(self) -> Path:
        """The embedded valkey's socket."""
        return self.run_dir / "valkey.sock"

    @property
    def objects(self) -> str:
        """URL of the object store."""
        return self.object_store_url or f"file://{self.home.resolve() / 'objects'}"

    @property
    def connections_file(self) -> Path:
        """What an operator says of object storage elsewhere; it need not be there."""
        return Path(self.connections) if self.connections else self.home.resolve() / "connections.json"

    @property
    def environments(self) -> Path:
        """Prepared environments of runtimes and simulators."""
        return self.home.resolve() / "environments"

    @property
    def cache(self) -> Path:
        """Staged models and files."""
        return self.home.resolve() / "cache"
