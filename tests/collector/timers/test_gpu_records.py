"""What the page says beside records of real runs on a GPU."""

import pytest

from bench.gpu_records import agreement, cross_check, page
from collector.measurement import Timer
from collector.record import RunRecord
from tests.builders import CASE_ID, make_blocks, make_environment, make_measurement, make_record


def run(*medians_ns: float) -> RunRecord:
    """A run of one case with a block for each median."""
    return make_record(measurements=[make_measurement(blocks=make_blocks(medians_ns))])


@pytest.mark.parametrize(("second_ns", "said"), [(1_020, "yes"), (1_080, "no")])
def test_two_runs_agree_if_they_lie_no_further_apart_than_blocks_of_one_run(second_ns: float, said: str) -> None:
    first, second = run(980, 1_000, 1_029), run(second_ns, second_ns, second_ns)

    *rows, _, summary = agreement(first, second)

    assert rows[-1].startswith(f"| {CASE_ID} | eager | 1 µs |")
    assert rows[-1].endswith(f"| 5.00% | {said} |")
    assert summary == f"{int(said == 'yes')} of 1 agree within the noise floor."


def test_timers_stand_side_by_side_with_how_far_they_lie_apart() -> None:
    rows = list(cross_check({Timer.CUPTI: run(1_000), Timer.CUDA_GRAPH: run(1_030), Timer.CUDA_EVENT: run(1_100)}))

    assert rows[0] == "| case | implementation | cupti | cuda_graph | cuda_event | apart |"
    assert rows[2] == f"| {CASE_ID} | eager | 1 µs | 1.03 µs | 1.1 µs | 10.0% |"


def test_a_case_that_one_timer_cannot_take_is_left_empty_there() -> None:
    other = make_record(measurements=[])

    *_, row = cross_check({Timer.CUPTI: run(1_000), Timer.CUDA_GRAPH: other})

    assert row == f"| {CASE_ID} | eager | 1 µs |  |  |"


def test_the_page_names_the_device_and_the_versions() -> None:
    machine = make_environment(device_kind="cuda", device_name="Example GPU", driver_version="570.86.15")
    first = make_record(environment=machine, measurements=[make_measurement()])

    told = page(first, first, {Timer.CUPTI: first})

    assert told.startswith("# Example GPU\n\nDriver 570.86.15, torch 2.13.0, triton 3.7.1, roofwatch ")
    assert "1 of 1 agree" in told
