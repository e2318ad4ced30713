from typing import Any

from roofwatch.ci.ab.side_by_side import find_best
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement, Timer
from roofwatch.db.values import Verdict
from tests.builders import make_blocks, make_measurement


def timed(implementation: str, *medians_ns: float, **fields: Any) -> Measurement:
    return make_measurement(implementation=implementation, blocks=make_blocks(medians_ns), **fields)


def test_the_fastest_is_best_and_its_lead_over_the_next_is_judged() -> None:
    (best,) = find_best(
        [
            timed("eager", *[1_500.0] * 8),
            timed("triton", *[1_000.0, 1_002.0] * 4),
            timed("compile", *[1_200.0, 1_203.0] * 4),
        ]
    )

    assert (best.implementation, best.runner_up, best.median_ns) == ("triton", "compile", 1_001.0)
    assert best.comparison is not None
    assert best.comparison.verdict is Verdict.IMPROVED
    assert best.comparison.speedup > 1.19
    assert best.is_clear


def test_a_lead_within_the_noise_is_not_clear() -> None:
    (best,) = find_best(
        [timed("eager", 900.0, 1_100.0, 1_000.0, 1_050.0), timed("triton", 1_100.0, 890.0, 1_010.0, 950.0)]
    )

    assert best.comparison is not None
    assert best.comparison.verdict is Verdict.INCONCLUSIVE
    assert not best.is_clear


def test_what_was_timed_otherwise_is_no_runner_up() -> None:
    (best,) = find_best([timed("eager", 1_000.0), timed("triton", 900.0, timer=Timer.CUPTI)])

    assert (best.implementation, best.runner_up, best.comparison, best.is_clear) == ("triton", None, None, False)


def test_what_failed_takes_no_part() -> None:
    failed = make_measurement(implementation="triton", outcome=Outcome.CRASHED)

    assert find_best([failed]) == []
    assert [best.implementation for best in find_best([failed, timed("eager", 1_000.0)])] == ["eager"]


def test_sides_with_unequal_numbers_of_blocks_are_compared_by_as_many_as_both_have() -> None:
    (best,) = find_best([timed("eager", *[2_000.0] * 9), timed("triton", *[1_000.0] * 4)])

    assert best.comparison is not None
    assert best.comparison.block_count == 4
