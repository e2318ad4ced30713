import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.report.markdown import code


@given(text=st.text(max_size=300))
def test_untrusted_text_never_leaves_its_code_span(text: str) -> None:
    span = code(text)

    assert re.fullmatch(r"`[^`|\r\n]+`", span)
    assert len(span) <= 162
    assert span.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax/n=1", "`softmax/n=1`"),
        ("", "` `"),
        ("a `b` | c", "`a 'b' ¦ c`"),
        ("two\nlines\tand tabs", "`two lines and tabs`"),
        ("\u202eesrever\x1b[31m\u200b", "`�esrever�[31m�`"),
    ],
)
def test_characters_that_end_a_span_or_a_cell_are_replaced(text: str, expected: str) -> None:
    assert code(text) == expected
