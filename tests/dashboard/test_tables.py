"""Tables are HTML, in which whatever a record says is text; of a long one a reader sees a part at a time."""

from __future__ import annotations

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from roofwatch.dashboard.tables.markup import Column, table_html
from roofwatch.dashboard.tables.part import in_order_of, part_title, rows_with

HOSTILE = "<img src=x onerror=alert(1)>"


def test_numbers_are_written_in_their_unit_and_what_is_missing_is_a_dash() -> None:
    frame = pd.DataFrame({"time": [1.5, None], "case": ["a", None], "count": [1, 2]})
    written = table_html(frame, formats={"time": "{:.1f} ms".format}, columns={"case": Column(help="of what")})
    assert '<td class="rw-number">1.5 ms</td><td>a</td><td class="rw-number">1</td>' in written
    assert '<td class="rw-number">–</td><td>–</td><td class="rw-number">2</td>' in written
    assert '<abbr title="of what">case</abbr>' in written


def test_text_of_a_record_is_text_in_headings_cells_and_addresses() -> None:
    frame = pd.DataFrame({HOSTILE: [HOSTILE], "open": [f'"{HOSTILE}']})
    written = table_html(frame, formats={}, columns={HOSTILE: Column(help=HOSTILE), "open": Column(link_text=HOSTILE)})
    assert "<img" not in written
    assert '<a href="&quot;&lt;img' in written


def test_a_table_without_rows_has_its_headings() -> None:
    assert "<tbody></tbody>" in table_html(pd.DataFrame({"case": []}), formats={}, columns={})


MIXED = pd.DataFrame(
    {"case": ["b/n=2", "A/n=1", None], "time": [2.0, None, 10.0], "open": ["/run?b", "/run?a", "/run?n"]}
)


@pytest.mark.parametrize(
    ("words", "rows"), [("", [0, 1, 2]), ("  a/N ", [1]), ("10.0 ms", [2]), ("10.00", []), ("run", []), ("nan", [])]
)
def test_words_are_looked_for_as_they_are_written_but_not_in_addresses(words: str, rows: list[int]) -> None:
    found = rows_with(MIXED, words, formats={"time": "{:.1f} ms".format}, columns=["case", "time"])
    assert found.index.tolist() == rows


def test_an_order_is_by_size_or_by_letters_and_what_is_missing_comes_last() -> None:
    assert in_order_of(MIXED, "time", is_descending=False).index.tolist() == [0, 2, 1]
    assert in_order_of(MIXED, "time", is_descending=True).index.tolist() == [2, 0, 1]
    assert in_order_of(MIXED, "case", is_descending=True).index.tolist() == [0, 1, 2]
    equal = pd.DataFrame({"kernel": ["a", "a", "a"]}, index=[5, 3, 4])
    assert in_order_of(equal, "kernel", is_descending=True).index.tolist() == [5, 3, 4]


def test_a_part_says_which_rows_it_has() -> None:
    assert part_title(0, 450, 200) == "Rows 1 to 200 of 450"
    assert part_title(1_200, 1_250, 200) == "Rows 1,201 to 1,250 of 1,250"


def long_table() -> None:
    import pandas as pd

    from roofwatch.dashboard.tables.markup import Column
    from roofwatch.dashboard.tables.table import show_table

    frame = pd.DataFrame({"open": [f"/run?{number}" for number in range(450)], "time": [*range(450)]})
    show_table(frame, formats={"time": "{:.0f} ms".format}, columns={"open": Column(link_text="open")})
    show_table(frame[:200], columns={"open": Column(link_text="open")})


def times(app: AppTest) -> list[int]:
    """Those of the long table, from the top."""
    return [int(cell.split(" ms")[0]) for cell in app.get("html")[0].proto.body.split('<td class="rw-number">')[1:]]


def test_a_long_table_has_parts_and_an_order_and_words_to_look_for_and_a_short_one_none() -> None:
    app = AppTest.from_function(long_table).run()
    order, rows = app.selectbox
    (words,) = app.text_input
    assert times(app) == [*range(200)]
    assert rows.options == ["1", "201", "401"]
    assert app.text[0].value == "Rows 1 to 200 of 450"

    rows.set_value(400).run()
    assert times(app) == [*range(400, 450)]
    assert 'href="/run?400"' in app.get("html")[0].proto.body
    order.set_value("time").run()
    app.toggle[0].set_value(True).run()
    assert times(app) == [*reversed(range(50))]

    # of what is found there is one part: its first
    words.set_value("44").run()
    assert times(app) == [*range(449, 439, -1), 344, 244, 144, 44]
    assert app.selectbox[1].options == ["1"]
    assert app.text[0].value == "Rows 1 to 14 of 14"
    words.set_value("no such").run()
    assert times(app) == []
    assert app.text[0].value == "These words stand in no row of the table."
    assert not app.exception
