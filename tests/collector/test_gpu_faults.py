"""Kernels that really break the GPU's context: each costs its own case, and the device is usable again after it."""

from collections.abc import Iterator

import pytest

from collector.nursery import Nursery
from collector.part import Outcome
from collector.record import RunRecord
from collector.revision import SuiteAt
from collector.run import collect_run
from collector.run_plan import RunPlan
from collector.sampling import SamplingPlan
from collector.suite_source import SuiteSource
from tests.builders import make_commit
from tests.roofwatch.command import SUITES

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def record() -> Iterator[RunRecord]:
    suite = SuiteAt(SuiteSource(SUITES / "bench_gpu_faults.py"), make_commit(), "example")
    plan = RunPlan(
        device="cuda",
        targets=(),
        block_count=1,
        sampling=SamplingPlan(warmup_ms=1, budget_ms=5, max_samples=20),
        check_timeout_s=30,
    )
    with Nursery() as nursery:
        yield collect_run(suite, plan, nursery=nursery)


def test_each_way_to_break_a_gpu_is_one_outcome_and_the_next_case_is_measured(record: RunRecord) -> None:
    assert {m.case_id.split("/")[0]: m.outcome for m in record.measurements} == {
        "illegal_access": Outcome.CRASHED,
        "works_first": Outcome.OK,
        "device_assertion": Outcome.CRASHED,
        "works_second": Outcome.OK,
        "infinite_loop": Outcome.TIMED_OUT,
        "works_third": Outcome.OK,
        "exhausts_memory": Outcome.OUT_OF_MEMORY,
        "never_compiles": Outcome.COMPILE_ERROR,
        "works_last": Outcome.OK,
    }


def test_the_message_says_what_the_device_said(record: RunRecord) -> None:
    messages = {m.case_id.split("/")[0]: m.message or "" for m in record.measurements}
    assert "illegal memory access" in messages["illegal_access"]
    assert "device-side assert" in messages["device_assertion"]
    assert "not done after 30 s" in messages["infinite_loop"]
    assert "blocks of seven" in messages["never_compiles"]
