"""Times over a library's time, at base and head."""

from __future__ import annotations

import pytest

from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.judge.ratios import judge_library_ratios
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.model.measurement import with_references
from roofwatch.model.record import RunRecord
from roofwatch.tables.comparison import judgement_tables
from tests.builders import make_measurement, make_record


def record(number: int, *, torch_ns: float | None, triton_ns: float) -> RunRecord:
    rows = [make_measurement(implementation="triton", median_ns=triton_ns)]
    if torch_ns is not None:
        rows.append(make_measurement(implementation="torch", median_ns=torch_ns))
    return make_record(number, measurements=with_references(rows))


def test_a_slower_machine_leaves_the_ratio_as_it_is() -> None:
    base = record(1, torch_ns=10_000, triton_ns=5_000)
    head = record(2, torch_ns=20_000, triton_ns=10_000)

    (ratio,) = judge_library_ratios(Pairing(base, head))

    assert (ratio.implementation, ratio.evidence.library) == ("triton", "torch")
    assert ratio.relative_change == pytest.approx(0)


def judge_a_slower_kernel() -> PullRequestJudgement:
    base = record(1, torch_ns=10_000, triton_ns=5_000)
    head = record(2, torch_ns=10_000, triton_ns=7_500)
    return judge_pull_request(base, head)


def test_a_slower_kernel_raises_the_ratio_of_the_judgement() -> None:
    (ratio,) = judge_a_slower_kernel().library_ratios

    assert [ratio.base, ratio.head] == pytest.approx([0.5, 0.75])


def test_the_table_of_a_judgement_has_the_ratio_of_both_sides() -> None:
    judgement = judge_a_slower_kernel()

    table = next(table for table in judgement_tables(judgement) if "library" in str(table.title))
    cells = [next(iter(column.cells)) for column in table.columns]
    assert [str(cell) for cell in cells[1:]] == ["triton", "torch", "0.5", "0.75", "+50.0%"]


def test_a_side_without_the_library_has_no_ratio_to_compare() -> None:
    base = record(1, torch_ns=None, triton_ns=5_000)
    head = record(2, torch_ns=10_000, triton_ns=7_500)

    assert judge_library_ratios(Pairing(base, head)) == []
