from hypothesis import given
from hypothesis import strategies as st

from roofwatch.dashboard.wording import code_span


@given(st.text(alphabet="`a [](<>)\n*:$"))
def test_a_code_span_cannot_be_left(text: str) -> None:
    span = code_span(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    inside = span[len(fence) : -len(fence)]
    assert span.endswith(fence)
    assert fence not in inside
    assert "\n" not in span


def test_a_code_span_shows_hidden_controls() -> None:
    assert code_span("x\u202eevil") == "`x\ufffdevil`"
