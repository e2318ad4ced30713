"""Medians and quartiles of many measurements at once are those that each of them tells."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.record.measurement import Block
from roofwatch.db.ingest.sample_summary import summarise
from tests.builders import NOON, make_measurement

positive = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(positive, min_size=1, max_size=9), min_size=1, max_size=4))
def test_the_summary_is_equal_to_the_bit_to_what_each_measurement_tells(samples_ns: list[list[float]]) -> None:
    alone = [make_measurement(blocks=(Block(started_at=NOON, samples_ns=tuple(some)),)) for some in samples_ns]

    summary = summarise(np.array([sample for some in samples_ns for sample in some]), list(map(len, samples_ns)))

    assert summary.medians.tolist() == [one.median_ns for one in alone]
    quartiles = zip(summary.first_quartiles.tolist(), summary.third_quartiles.tolist(), strict=True)
    assert list(quartiles) == [one.quartiles_ns for one in alone]


def test_the_samples_keep_their_order() -> None:
    samples_ns = np.array([3.0, 1.0, 2.0])

    summarise(samples_ns, [3])

    assert samples_ns.tolist() == [3.0, 1.0, 2.0]


def test_no_measurements_have_no_summary() -> None:
    assert summarise(np.array([]), []).medians.shape == (0,)
