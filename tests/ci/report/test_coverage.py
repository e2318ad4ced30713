"""Gaps of coverage by kernel and runner class."""

from __future__ import annotations

from roofwatch.ci.report.coverage import CoverageGap, Gap, coverage_gaps
from roofwatch.collector.record.machine import Outcome

OK = frozenset({Outcome.OK})


def gaps(**cases: dict[str, frozenset[Outcome]]) -> dict[tuple[str, str], CoverageGap]:
    return {(one.runner_class, one.gap): one for one in coverage_gaps(cases)}


def test_a_case_with_a_failing_implementation_is_failing() -> None:
    found = gaps(cpu={"softmax/1": frozenset({Outcome.OK, Outcome.CRASHED, Outcome.TIMED_OUT}), "softmax/2": OK})
    assert found["cpu", Gap.FAILING].outcomes == (Outcome.CRASHED, Outcome.TIMED_OUT)
    assert found["cpu", Gap.FAILING].case_ids == ("softmax/1",)
    assert found["cpu", Gap.FAILING].case_count == 2


def test_a_case_without_a_result_is_a_gap() -> None:
    found = gaps(cpu={"softmax/1": OK, "softmax/2": frozenset()}, gpu={"softmax/2": OK})
    assert found["cpu", Gap.NEVER_MEASURED].case_ids == ("softmax/2",)
    assert found["gpu", Gap.NEVER_MEASURED].case_ids == ("softmax/1",)
