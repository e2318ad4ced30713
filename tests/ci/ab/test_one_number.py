"""One number for the time of a case: the median of its block medians."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.measurement import Block, Measurement
from tests.builders import NOON, make_measurement
from tests.ci.values import make_records

# twelve blocks of the base, two of them disturbed, which took most samples
BASE_US = (23.4, 23.6, 23.5, 24.1, 34.3, 23.8, 23.6, 37.4, 23.7, 23.9, 23.8, 23.7)
HEAD_US = (126.6, 127.0, 126.4, 127.3, 126.9, 127.1, 126.7, 127.2, 126.8, 127.0, 127.1, 126.7)


def blocks(medians_us: tuple[float, ...]) -> tuple[Block, ...]:
    counts = [660 if median_us in {34.3, 37.4} else 120 for median_us in medians_us]
    return tuple(
        Block(started_at=NOON, samples_ns=(median_us * 1e3,) * count)
        for median_us, count in zip(medians_us, counts, strict=True)
    )


def measured(medians_us: tuple[float, ...]) -> Measurement:
    return make_measurement(blocks=blocks(medians_us))


def test_a_disturbed_block_counts_once_however_many_samples_it_has() -> None:
    base = measured(BASE_US)

    assert np.median(base.samples_ns) > 23_900
    assert base.median_ns == pytest.approx(23_750)


def test_the_shown_times_have_the_shown_change_as_their_ratio() -> None:
    judgement = judge_pull_request(*make_records([measured(BASE_US)], [measured(HEAD_US)]))

    (case,) = judgement.cases
    comparison = case.evidence.comparison
    assert comparison is not None
    ratio = comparison.head_ns / comparison.base_ns - 1
    assert ratio == pytest.approx(comparison.relative_change, rel=0.01)
    assert case.evidence.base is not None
    assert case.base == case.evidence.base.median_ns
    assert comparison.change_of_medians is None
    written = to_markdown(judgement)
    assert "23.8 µs → 127 µs" in written
    assert "medians" not in written.partition("<details>")[0]


def test_times_whose_ratio_is_not_the_change_are_explained() -> None:
    # the machine becomes slower during the job, and one block of each side is disturbed
    base = (100.0, 104.0, 108.0, 112.0, 116.0, 120.0, 124.0, 128.0)
    head = (120.0, 124.8, 129.6, 134.4, 139.2, 144.0, 148.8, 400.0)

    judgement = judge_pull_request(*make_records([measured(base[::-1])], [measured(head[::-1])]))
    skewed = judge_pull_request(
        *make_records([measured(base)], [measured((*head[:4], *(900.0,) * 4))])
    )

    assert "medians" not in to_markdown(judgement).partition("<details>")[0]
    (case,) = skewed.cases
    assert case.evidence.comparison is not None
    shown = case.evidence.comparison.change_of_medians
    assert shown == pytest.approx(
        case.evidence.comparison.head_ns / case.evidence.comparison.base_ns - 1
    )
    assert "the change is of neighbouring blocks" in to_markdown(skewed)


@given(st.lists(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8), min_size=1, max_size=6))
def test_quartiles_enclose_the_median(samples: list[list[float]]) -> None:
    made: Any = tuple(Block(started_at=NOON, samples_ns=tuple(part)) for part in samples)
    measurement = make_measurement(blocks=made)

    assert measurement.quartiles_ns is not None
    low, high = measurement.quartiles_ns
    assert measurement.median_ns is not None
    assert 0 < low <= measurement.median_ns <= high
    if len({len(part) for part in samples}) == 1 and sum(map(len, samples)) > 1:
        every = [sample for part in samples for sample in part]
        expected = np.quantile(every, [0.25, 0.75])
        assert math.isclose(low, min(expected[0], measurement.median_ns), rel_tol=1e-9)
        assert math.isclose(high, max(expected[1], measurement.median_ns), rel_tol=1e-9)
