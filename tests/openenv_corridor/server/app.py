"""The application of the corridor, as `openenv init` writes it."""

from openenv.core.env_server.http_server import create_app

try:
    from ..models import CorridorAction, CorridorObservation
    from .corridor_environment import CorridorEnvironment
except ImportError:
    from models import CorridorAction, CorridorObservation

    from server.corridor_environment import CorridorEnvironment

app = create_app(CorridorEnvironment, CorridorAction, CorridorObservation, env_name="corridor", max_concurrent_envs=1)
