"""Text of values on pages."""

from datetime import UTC, datetime, timedelta

import pytest

from web import formatting
from web.paths import is_page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0"),
        (12, "12"),
        (288.0, "288"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
    ],
)
def test_a_number_has_four_digits(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (1, "100 %"), (0.5, "50 %"), (0.0001, "< 0.1 %"), (0.9999, "> 99.9 %")]
)
def test_a_share_that_is_not_all_is_not_shown_as_all(share: float, text: str) -> None:
    assert formatting.percent(share) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5 TiB")]
)
def test_a_size_has_a_binary_unit(count: int, text: str) -> None:
    assert formatting.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "just now"), (5.2, "5 s ago"), (59.9, "59 s ago"), (200.0, "3 min 20 s ago")]
)
def test_a_time_ago_has_whole_seconds(seconds: float, text: str) -> None:
    assert formatting.ago((datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()) == text


def test_a_number_that_counts_has_no_unit() -> None:
    assert [formatting.unit(text, " ") for text in (None, "", "count", "m/s")] == ["", "", "", " m/s"]
    assert [formatting.unit(text) for text in ("m/s2", "m3", "H2", "1/s2 m")] == ["m/s²", "m³", "H2", "1/s² m"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", True),
        ("/simulations", True),
        ("/simulations/x/tasks/1", True),
        ("/v1/simulations", False),
        ("/simulationsx", False),
        ("//simulations", False),
        ("simulations", False),
        ("/1.0/simluation/tests", False),
        ("", False),
    ],
)
def test_pages_have_paths_of_their_own(path: str, expected: bool) -> None:
    assert is_page(path) is expected


def test_a_sparkline_has_its_least_value_at_the_bottom() -> None:
    assert formatting.sparkline([0.0, 10.0, 5.0], 102, 22) == "1.0,21.0 51.0,1.0 101.0,11.0"


def test_a_sparkline_of_a_constant_is_a_line_in_the_middle() -> None:
    assert formatting.sparkline([7.0], 102, 22) == "1.0,11.0 101.0,11.0"
