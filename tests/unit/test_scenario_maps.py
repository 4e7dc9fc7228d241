"""Maps of scenarios: which street is read, and where the car and the route are drawn."""

from dataclasses import dataclass
from math import pi
from typing import Any, cast

import pytest

from api.rendering.scenario_map import place, route_of
from common.errors import NotFound
from core.domain.access.scopes import LOCAL_CALLER, Caller
from core.services.datasets.datasets import Datasets
from core.services.datasets.scenario_maps import STREETS, ScenarioMaps
from datasets.catalogue.car_street.street_outline import StreetOutline, Strip

CORNER = ((0.0, 0.0), (10.0, 0.0), (10.0, 5.0))


@dataclass(frozen=True)
class OneScenario:
    """Datasets with one scenario, whatever is in it."""

    scenario: dict[str, Any]

    def scenarios(
        self, caller: Caller, ref: str, *, after: int = 0, limit: int = 100
    ) -> tuple[list[dict[str, Any]], None]:
        return [self.scenario], None

    def map_names(self, caller: Caller, ref: str) -> tuple[()]:
        return ()


@pytest.mark.parametrize("street", ["../nets/crosswalk", "/etc/passwd", "", "nowhere"])
def test_only_known_streets_are_read(street: str) -> None:
    maps = ScenarioMaps(cast(Datasets, OneScenario({"street": street, "route": ["wk"]})))
    with pytest.raises(NotFound, match="no map of the street"):
        maps.find(LOCAL_CALLER, "any", 0)


def test_a_route_that_is_not_on_its_street_has_no_map() -> None:
    assert "crosswalk" in STREETS
    maps = ScenarioMaps(cast(Datasets, OneScenario({"street": "crosswalk", "route": ["elsewhere"]})))
    with pytest.raises(NotFound, match="not on its street"):
        maps.find(LOCAL_CALLER, "any", 0)


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(0.0, (0.0, 0.0, 0.0)), (4.0, (4.0, 0.0, 0.0)), (12.0, (10.0, 2.0, pi / 2)), (99.0, (10.0, 5.0, pi / 2))],
)
def test_a_place_on_a_line_has_a_point_and_a_direction(distance: float, expected: tuple[float, float, float]) -> None:
    assert place(CORNER, distance) == pytest.approx(expected)


def test_the_route_keeps_to_the_lane_of_the_start_where_there_is_that_lane() -> None:
    right, left, onward = (
        Strip(CORNER, 3.2),
        Strip(((0.0, 3.0), (10.0, 3.0)), 3.2),
        Strip(((20.0, 0.0), (30.0, 0.0)), 3.2),
    )
    outline = StreetOutline(lanes={"a": (right, left), "b": (onward,)}, junctions=(), crossings=(), pavements=())
    scenario = {"route": ["a", "b"], "start": {"lane": 1, "pos": 2.0}}
    assert route_of(scenario, outline) == left.shape + onward.shape
