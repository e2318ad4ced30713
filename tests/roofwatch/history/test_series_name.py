"""One series of a suite, as people name it."""

import pytest

from roofwatch.collector.errors import SuiteError
from roofwatch.history.plan import literal_pattern, parse_series


def test_a_series_is_a_case_with_or_without_an_implementation() -> None:
    assert parse_series("total/n=500/float32/fwd") == ("total/n=500/float32/fwd", None)
    assert parse_series("total/n=500/float32/bwd/eager") == ("total/n=500/float32/bwd", "eager")


@pytest.mark.parametrize("text", ["total", "total/n=500", "total/fwd/x/y", ""])
def test_what_names_no_direction_is_no_series(text: str) -> None:
    with pytest.raises(SuiteError, match="write KERNEL/CASE/fwd"):
        parse_series(text)


def test_a_pattern_of_a_name_matches_it_alone() -> None:
    from fnmatch import fnmatchcase

    assert fnmatchcase("a*[b]?", literal_pattern("a*[b]?"))
    assert not fnmatchcase("axb", literal_pattern("a*b"))
