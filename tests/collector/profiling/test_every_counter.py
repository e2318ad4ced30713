"""A report with every counter that roofwatch names, from the file to the record."""

from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.model.results import Counters
from tests.collector.profiling.every_counter import EVERY_COUNTER, EXPECTED, EXPECTED_RAW

pytest.importorskip(
    "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
)


@pytest.fixture(scope="module")
def counters() -> Counters:
    (kernel,) = counters_of(
        read_profile(EVERY_COUNTER)["kernels"], "matmul/n=1024/bfloat16/fwd", "triton"
    )
    return kernel


@pytest.mark.parametrize("name", EXPECTED)
def test_a_counter_that_engineers_expect_has_a_name_of_ours(name: str, counters: Counters) -> None:
    assert counters.values[name] == pytest.approx(EXPECTED[name])


@pytest.mark.parametrize("name", EXPECTED_RAW)
def test_what_a_value_is_calculated_from_stays_under_its_raw_name(
    name: str, counters: Counters
) -> None:
    assert counters.values[name] == EXPECTED_RAW[name]


def test_the_report_is_what_its_generator_writes(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from tests.collector.profiling.made_report import write_report

    write_report(tmp_path / "again.ncu-rep")

    assert read_profile(tmp_path / "again.ncu-rep") == read_profile(EVERY_COUNTER)
