from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.dashboard.wording import (
    age_text,
    code_span,
    headline_text,
    worst_change_point,
)
from tests.builders import NOON, make_change_point, make_regression, make_series_key


@pytest.mark.parametrize(
    ("metric", "before", "after", "text"),
    [
        ("median_ns", 10_000.0, 14_200.0, "+42.0%"),
        ("median_ns", 10_000.0, None, "✕ fails"),
        ("rmse_ratio", 1e-7, None, "✕ incorrect"),
        ("local_bytes", 0.0, 96.0, "0 B → 96 B"),
        ("median_ns", None, 10_000.0, "failed → 10 µs"),
    ],
)
def test_a_headline_says_what_happened(metric: str, before: float | None, after: float | None, text: str) -> None:
    change = make_change_point(series=make_series_key(metric), before=before, after=after)
    assert headline_text(change) == text


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=23, minutes=59), "23 hours ago"),
        (timedelta(days=29), "29 days ago"),
        (timedelta(days=61), "2 months ago"),
        (timedelta(days=800), "2 years ago"),
        (timedelta(hours=-1), "just now"),
    ],
)
def test_ages_are_whole_units(age: timedelta, text: str) -> None:
    assert age_text(NOON - age, now=NOON) == text


@given(st.text(alphabet="`a [](<>)\n*:$"))
def test_a_code_span_cannot_be_left(text: str) -> None:
    span = code_span(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    inside = span[len(fence) : -len(fence)]
    assert span.endswith(fence)
    assert fence not in inside
    assert "\n" not in span


def test_a_failure_is_the_worst_then_the_largest_change_of_a_time_then_machine_code() -> None:
    failed = make_change_point(after=None)
    small, large = make_change_point(after=11_000.0), make_change_point(after=19_000.0)
    spills = make_change_point(series=make_series_key("local_bytes"), before=0.0, after=96.0)
    assert worst_change_point(make_regression(change_points=(spills, small, large, failed))) is failed
    assert worst_change_point(make_regression(change_points=(spills, small, large))) is large
    memory = make_change_point(series=make_series_key("peak_allocated_bytes"), before=1.0, after=9.0)
    assert worst_change_point(make_regression(change_points=(memory, spills, large))) is large
    assert worst_change_point(make_regression(change_points=(memory, spills))) is spills
