"""Accesses out of bounds and races, in real workers: each found and located, or right to pass."""

from pathlib import Path

import pytest

from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import check_suite
from roofwatch.model.check_report import CheckReport
from roofwatch.model.machine import Outcome
from roofwatch.model.memory_fault import MemoryFault
from roofwatch.model.suite_source import SuiteSource
from tests.suites.offset_kernels import HAS_BLOCK_POINTERS

pytestmark = pytest.mark.usefixtures("forked_servers")

SUITE = Path(__file__).parents[2] / "suites" / "bench_memory_faults.py"
N_ELEMENTS = 600
"""Of every operand."""


@pytest.fixture(scope="module")
def reports(fork_server: ForkServer) -> dict[str, CheckReport]:
    """Reports of the cases as declared, by kernel."""
    plan = RunPlan(device="cpu", implementations=("triton",))
    checked = check_suite(SuiteSource(SUITE), plan, fork_server=fork_server).reports
    return {report.case_id.split("/")[0]: report for report in checked if report.layout is None}


def line_of(text: str) -> int:
    lines = SUITE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def only_fault(report: CheckReport) -> MemoryFault:
    assert report.outcome is Outcome.INCORRECT
    (fault,) = report.faults
    assert report.message is not None
    assert report.message.startswith(fault.message)
    return fault


def test_a_read_whose_value_is_discarded_is_found(reports: dict[str, CheckReport]) -> None:
    fault = only_fault(reports["read_one"])
    assert (fault.access, fault.operand, fault.kernel) == ("load", "x_ptr", "_mask_kernel")
    assert (fault.offset, fault.length, fault.program) == (N_ELEMENTS, N_ELEMENTS, (2, 0, 0))
    assert (fault.file, fault.line) == ("bench_memory_faults.py", line_of("a read too far"))
    assert all(tensor.passed for tensor in reports["read_one"].tensors)


def test_a_mask_that_lets_one_element_too_many_through_is_found(
    reports: dict[str, CheckReport],
) -> None:
    past_the_end, race = reports["written_one"].faults
    assert past_the_end.message == (
        f"wrote past the end of `y_ptr`: element 600 of 600 (_mask_kernel, "
        f"bench_memory_faults.py:{line_of('a write too far')}, program (2, 0, 0); 1 element)"
    )
    assert (race.other_program, race.program, race.offset) == ((0, 0, 0), (1, 0, 0), 200)


def test_a_store_in_a_function_that_the_kernel_calls_is_located(
    reports: dict[str, CheckReport],
) -> None:
    fault = reports["helper"].faults[0]
    assert (fault.kernel, fault.operand) == ("_helper_kernel", "y_ptr")
    assert fault.line == line_of("without a mask")
    assert fault.count == 256 - 200


@pytest.mark.skipif(
    not HAS_BLOCK_POINTERS, reason="Triton 3.9 removed block pointers for tensor descriptors"
)
def test_a_block_pointer_keeps_its_operand(reports: dict[str, CheckReport]) -> None:
    fault = reports["block_pointer"].faults[0]
    assert (fault.access, fault.operand) == ("store", "y_ptr")
    assert fault.line == line_of("columns are not checked")


def test_programs_that_store_different_values_to_an_element_race(
    reports: dict[str, CheckReport],
) -> None:
    fault = only_fault(reports["racing"])
    assert (fault.other_program, fault.program, fault.offset) == ((0, 0, 0), (1, 0, 0), 0)
    assert fault.line == line_of("# a race")
    assert "without an atomic" in fault.message


@pytest.mark.parametrize("kernel", ["atomic", "locked", "flagged"])
def test_ordered_accesses_are_no_race(reports: dict[str, CheckReport], kernel: str) -> None:
    assert reports[kernel].outcome is Outcome.OK
    assert reports[kernel].faults == ()


def test_launches_of_kernels_are_counted(reports: dict[str, CheckReport]) -> None:
    assert reports["without_kernel"].outcome is Outcome.OK
    assert reports["without_kernel"].launch_count == 0
    assert reports["atomic"].launch_count > 0


def test_accesses_are_seen_without_a_reference(reports: dict[str, CheckReport]) -> None:
    report = reports["unwritten"]
    assert report.outcome is Outcome.UNSUPPORTED
    assert report.message == "UnsupportedError: write the reference"
    assert report.launch_count == 1


def test_an_access_out_of_bounds_is_found_without_a_reference(
    reports: dict[str, CheckReport],
) -> None:
    fault = only_fault(reports["unwritten_and_wrong"])
    assert (fault.access, fault.operand) == ("load", "x_ptr")


def test_accesses_of_an_implementation_that_fails_are_not_all_seen(
    reports: dict[str, CheckReport],
) -> None:
    report = reports["unwritten_and_failing"]
    assert report.outcome is Outcome.UNSUPPORTED
    assert report.launch_count == 0
