"""Hardware counters beside a step: what they say, and what they change about its cause."""

from collections.abc import Mapping

import pytest

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.history import analyse_series
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.results import Counters
from roofwatch.db.queries.counted_values import CountedRun
from roofwatch.db.values import Cause
from tests.builders import CASE_ID, make_commit_ref
from tests.ci.values import RUNNER_CLASS, make_series, stepped

BEFORE = {"dram_bytes": 1e6, "instruction_count": 5e3, "stall_long_scoreboard_share": 0.2, "duration_ns": 1e4}
AFTER = {"dram_bytes": 1.31e6, "instruction_count": 5e3, "stall_long_scoreboard_share": 0.4, "duration_ns": 1.4e4}


def counted(number: int, values: Mapping[str, float]) -> CountedRun:
    counters = Counters(case_id=CASE_ID, implementation="eager", function="kernel", values=dict(values))
    return CountedRun(CASE_ID, "eager", RUNNER_CLASS, make_commit_ref(number), (counters,))


def step_with(*runs: CountedRun) -> TrendFinding:
    """A slowdown at commit 8 of 16, with what was counted."""
    series = make_series(stepped())
    (finding,) = analyse_series([series], SupportingEvidence(counted=runs), Thresholds()).findings
    return finding


def weight_of_code(finding: TrendFinding) -> float:
    return next(suspect.weight for suspect in finding.suspects if suspect.cause is Cause.CODE)


def sentence_of_code(finding: TrendFinding) -> str:
    return next(suspect.sentence for suspect in finding.suspects if suspect.cause is Cause.CODE)


def test_the_counters_that_moved_with_a_time_are_named_the_most_first() -> None:
    sentence = sentence_of_code(step_with(counted(3, BEFORE), counted(12, AFTER)))

    assert "stall long scoreboard 20% to 40%, dram bytes +31%" in sentence
    assert "duration" not in sentence
    assert "instruction" not in sentence


def test_equal_work_speaks_against_the_code() -> None:
    same, nothing_counted = step_with(counted(3, BEFORE), counted(12, BEFORE)), step_with()

    assert weight_of_code(same) < weight_of_code(nothing_counted)
    assert "the same within 2 %" in sentence_of_code(same)


def test_counters_never_make_a_cause_certain() -> None:
    assert weight_of_code(step_with(counted(3, BEFORE), counted(12, AFTER))) == weight_of_code(step_with())


@pytest.mark.parametrize("numbers", [(3, 5), (10, 12), (3,), (12,)], ids=str)
def test_counters_of_one_level_alone_say_nothing(numbers: tuple[int, ...]) -> None:
    finding = step_with(*(counted(number, BEFORE) for number in numbers))

    assert finding.suspects == step_with().suspects


def test_the_counters_next_to_the_step_count() -> None:
    old = BEFORE | {"dram_bytes": 1e3}

    sentence = sentence_of_code(step_with(counted(1, old), counted(7, BEFORE), counted(8, AFTER), counted(15, old)))

    assert "dram bytes +31%" in sentence
