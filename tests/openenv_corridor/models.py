"""Actions and observations of the corridor."""

from typing import Literal

from openenv.core.env_server.types import Action, Observation
from pydantic import BaseModel, Field


class CorridorAction(Action):
    """A move, and how far."""

    move: Literal["stay", "left", "right"] = Field(..., description="Direction")
    stride: float = Field(1.0, ge=0.0, le=2.0, description="Metres")


class Door(BaseModel):
    """Where the door is."""

    position: float
    open: bool


class CorridorObservation(Observation):
    """What the walker sees."""

    position: float = Field(0.0, ge=-10.0, le=10.0)
    door: Door = Door(position=0.0, open=False)
    walls: list[float] = Field(default_factory=list, description="Distances to the left and right wall")
    light: Literal["off", "on"] = "off"
    episodes: int = Field(0, ge=0, description="Episodes of this process: 1, unless state outlives a scenario")
