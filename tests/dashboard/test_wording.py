from hypothesis import given
from hypothesis import strategies as st

from roofwatch.dashboard.wording import (
    code_span,
    worst_change_point,
)
from tests.builders import make_change_point, make_regression, make_series_key


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
