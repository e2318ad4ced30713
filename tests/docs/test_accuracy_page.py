"""docs/accuracy.md against the code that it describes."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from roofwatch.collector.accuracy import check_report
from roofwatch.spec import BASELINE_FACTOR, TOLERANCES
from tests.docs.markdown import ROOT, fences, table_under
from tests.docs.test_example import EXAMPLE, FILE_NAME
from tests.roofwatch.command import roofwatch

PAGE = ROOT / "docs" / "accuracy.md"
PARTS = [check_report.CheckReport, check_report.Layout, check_report.TensorReport, check_report.WrongElement]
RULE, FAILURE = (fence.text for fence in fences(PAGE) if fence.language == "text")


def test_the_table_is_the_one_that_results_are_judged_by() -> None:
    assert table_under(PAGE, "Tolerances") == [
        [dtype, *map(str, (row.rmse_ratio, row.rmse_floor, row.elementwise, row.elementwise_floor))]
        for dtype, row in TOLERANCES.items()
    ]


def test_the_rule_names_the_factor() -> None:
    assert f"{BASELINE_FACTOR:g} x the baseline's error + floor" in RULE


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_of_the_json_is_described(part: type[BaseModel]) -> None:
    rows = table_under(PAGE, f"`{part.__name__}`")

    assert [row[0] for row in rows] == list(part.model_fields)
    assert all(meaning for _, meaning in rows)


@pytest.mark.slow
def test_the_failure_is_what_the_command_prints(tmp_path: Path) -> None:
    faulty = EXAMPLE.replace("(triton.cdiv(x.numel(), 1024),)", "(triton.cdiv(x.numel(), 1024) - 1,)")
    assert faulty != EXAMPLE
    (tmp_path / FILE_NAME).write_text(faulty)

    done = roofwatch("check", FILE_NAME, cwd=tmp_path)

    assert done.status == 1, done.error
    assert FAILURE in done.output


@pytest.mark.slow
def test_the_example_is_right_in_every_layout(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(EXAMPLE)

    done = roofwatch("check", FILE_NAME, "--json", cwd=tmp_path)

    assert done.status == 0, done.error
    layouts = {(report["layout"] or {}).get("arrangement") for report in done.parsed["reports"]}
    assert layouts == {None, "row_strided", "transposed"}
    assert {report["outcome"] for report in done.parsed["reports"]} == {"ok"}
