"""Tables as files."""

from __future__ import annotations

from io import BytesIO

import pandas as pd
import pytest

from roofwatch.dashboard.export import to_csv, to_markdown, to_parquet

FRAME = pd.DataFrame(
    {
        "case": ["softmax/n=8", "=HYPERLINK(1)", "a|b`c <b>"],
        "median (ns)": [1234.5678, None, 1e9],
        "code": ["", "same", "changed"],
    }
)


@pytest.mark.parametrize("beginning", ["=", "+", "-", "@", "\t"])
def test_a_spreadsheet_takes_no_text_for_a_formula(beginning: str) -> None:
    csv = to_csv(pd.DataFrame({"kernel": [f"{beginning}1+1"]})).decode()

    assert f"'{beginning}1+1" in csv


def test_numbers_of_a_csv_are_as_exact_as_they_are_stored() -> None:
    read = pd.read_csv(BytesIO(to_csv(FRAME)))

    assert read["median (ns)"][0] == 1234.5678
    assert read["median (ns)"].isna().tolist() == [False, True, False]


def test_a_parquet_file_reads_back_as_it_was() -> None:
    pd.testing.assert_frame_equal(pd.read_parquet(BytesIO(to_parquet(FRAME))), FRAME)


def test_markdown_is_one_table_whatever_the_text_says() -> None:
    assert to_markdown(FRAME).decode().splitlines() == [
        "| case | median (ns) | code |",
        "| --- | --- | --- |",
        "| `softmax/n=8` | 1234.57 |  |",
        "| `=HYPERLINK(1)` |  | `same` |",
        "| `a¦b'c <b>` | 1e+09 | `changed` |",
    ]
