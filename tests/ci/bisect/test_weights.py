"""What commits are made from, and how likely that makes them."""

import pytest

from roofwatch.ci.bisect.search import SAME_CODE, SAME_CODE_WEIGHT, SAME_SOURCES, MadeFrom, weigh

BROKEN = MadeFrom(trouble="does not import")


def test_the_same_sources_cannot_matter_and_the_same_machine_code_hardly() -> None:
    made = [MadeFrom("a", "x"), MadeFrom("a", "x"), MadeFrom("b", "x"), MadeFrom("c", "y")]

    found = weigh(made)

    assert [each.weight for each in found] == [0, SAME_CODE_WEIGHT, 1]
    assert [each.reason for each in found] == [SAME_SOURCES, SAME_CODE, ""]


@pytest.mark.parametrize(("after", "weights"), [("a", [0, 0, 0]), ("b", [1, 1, 1])])
def test_what_lies_between_two_that_are_the_same_cannot_matter_either(after: str, weights: list[float]) -> None:
    made = [MadeFrom("a"), BROKEN, BROKEN, MadeFrom(after), MadeFrom("z")]

    assert [each.weight for each in weigh(made)] == [*weights, 1]


def test_what_is_not_known_counts() -> None:
    assert [each.weight for each in weigh([MadeFrom(), MadeFrom(), BROKEN])] == [1, 1]


def test_where_by_their_sources_none_could_matter_all_may() -> None:
    assert [each.weight for each in weigh([MadeFrom("a")] * 3)] == [1, 1]
