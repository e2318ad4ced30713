from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roofwatch.dashboard.wording import certainty_text, code_span
from roofwatch.model.history import ChangePoint
from tests.builders import make_change_point, make_regression, make_series_key


@given(st.text(alphabet="`a [](<>)\n*:$"))
def test_a_code_span_cannot_be_left_and_shows_hidden_controls(text: str) -> None:
    span = code_span(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    inside = span[len(fence) : -len(fence)]
    assert span.endswith(fence)
    assert fence not in inside
    assert "\n" not in span
    assert code_span("x\u202eevil") == "`x\ufffdevil`"


def test_the_certainty_names_where_the_evidence_is_from_and_which_runners_are_doubtful() -> None:
    def on(device_name: str, **fields: Any) -> ChangePoint:
        return make_change_point(
            series=make_series_key(runner_class=f"{device_name}, 80 GiB"), **fields
        )

    points = (
        on("H200", standard_errors=28.4),
        on("H100", standard_errors=12.0),
        on("RTX 4090", standard_errors=40.0, degraded_by=("heat",)),
    )
    found = certainty_text(make_regression(change_points=points))
    assert found == "H200, 28 σ; the same on H100; RTX 4090 throttled or contended"
    assert certainty_text(make_regression(change_points=(on("H200"),))) == "H200, exact"
