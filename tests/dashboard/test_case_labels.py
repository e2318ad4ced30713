"""Short names of cases."""

from __future__ import annotations

from roofwatch.dashboard.case_labels import case_labels
from roofwatch.model.history import SeriesKey
from roofwatch.model.metrics import Better, imported_key
from tests.builders import PROJECT

SPEED = imported_key("speed", "ms", Better.LOWER)
IMPORTED = "NVIDIA H100, imported from liger"


def test_what_all_cases_of_an_imported_kernel_have_in_common_is_left_out() -> None:
    first = 'softmax/x_name=N,x_value=128,config={"a": 1, "b": 2}'
    second = 'softmax/x_name=N,x_value=256,config={"a": 1, "b": 2}'
    only = "array.copy/suite=Benchmarks"
    keys = [
        SeriesKey(PROJECT, case_id, "ours", SPEED, runner_class=IMPORTED)
        for case_id in (first, second, only)
    ]

    assert case_labels(keys) == {first: "x_value=128", second: "x_value=256", only: ""}


def test_our_own_cases_keep_all_after_the_kernel() -> None:
    key = SeriesKey(PROJECT, "rms_norm/n=128/bfloat16/fwd", "triton", "median_ns")

    assert case_labels([key]) == {key.case_id: "n=128/bfloat16/fwd"}
