"""Short tables are HTML, in which whatever a record says is text."""

from __future__ import annotations

import pandas as pd

from dashboard.tables.markup import Column, table_html

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
    assert '<a class="rw-view" href="&quot;&lt;img' in written


def test_a_table_without_rows_has_its_headings() -> None:
    assert "<tbody></tbody>" in table_html(pd.DataFrame({"case": []}), formats={}, columns={})
