"""Tags: which texts are tags, how many a version gets at once, and how an error lists those that there are."""

import pytest

from common.errors import Invalid
from core.domain.submissions.tags import MOST, MOST_LISTED, check_tags, unknown_version


def test_tags_of_a_version_are_each_once_and_in_order() -> None:
    assert check_tags(["stable", "gold", "v1.2_x-3", "gold"]) == ["gold", "stable", "v1.2_x-3"]
    assert len(check_tags([f"t{number}" for number in range(MOST)] * 2)) == MOST
    with pytest.raises(Invalid, match=f"at most {MOST} tags"):
        check_tags([f"t{number}" for number in range(MOST + 1)])


@pytest.mark.parametrize("tag", ["", "latest", "12", "a@b", "sha256:00", "é", "gold\n", "x" * 101])
def test_a_text_that_cannot_be_told_from_another_reference_is_not_a_tag(tag: str) -> None:
    with pytest.raises(Invalid, match="is not a tag"):
        check_tags([tag])


def test_a_long_list_of_tags_is_cut_in_the_error() -> None:
    tags = [f"t{number:02}" for number in range(MOST_LISTED + 1)]
    assert unknown_version("model", "prod", "x", tags).endswith(f"{tags[MOST_LISTED - 1]} and others.")
    assert unknown_version("dataset", "drives", "y" * 99, []) == (
        f"The dataset drives has no version or tag {'y' * 80!r}. It has no tags but `latest`."
    )
