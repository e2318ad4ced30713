"""What the page says beside records of real runs on a GPU."""

from pathlib import Path

import pytest
import typer

from bench.gpu_records import KERNELS, agreement, calibrating, counting, cross_check, page
from roofwatch.ci.ab.noise_floor import CaseNoise, NoiseFloor
from roofwatch.cli.main import app
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import CaseRecord, Timer
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run_plan import RunPlan, select
from roofwatch.collector.timing.method import Preset
from roofwatch.collector.workers.kernel_info import describe_kernel
from roofwatch.collector.workers.protocol import SuiteInfo
from roofwatch.kernels.reduction.softmax import softmax_spec
from roofwatch.profiles.counting import select_calls
from tests.builders import CASE_ID, make_blocks, make_environment, make_measurement, make_record


def run(*medians_ns: float) -> RunRecord:
    """A run of one case with a block for each median."""
    return make_record(measurements=[make_measurement(blocks=make_blocks(medians_ns))])


def floor_of(record: RunRecord, noise_floor: float) -> NoiseFloor:
    """What a calibration would say that found this deviation of one block."""
    noise = CaseNoise(
        case_id=CASE_ID,
        implementation="eager",
        block_count=8,
        timing="perf_counter, hot",
        sample_count=1,
        noise_floor=noise_floor,
        detectable_change={8: 0.05},
        is_significant=False,
        is_false_alarm=False,
    )
    return NoiseFloor(
        project=record.project,
        runner_class=record.environment.runner_class,
        harness_version=record.harness_version,
        commit_sha=record.commit.sha,
        measured_at=record.finished_at,
        cases=(noise,),
    )


@pytest.mark.parametrize(("second_ns", "said"), [(1_020, "yes"), (1_080, "no")])
def test_two_runs_agree_if_they_lie_no_further_apart_than_a_change_that_the_noise_floor_lets_be_told(
    second_ns: float, said: str
) -> None:
    first, second = run(700, 1_000, 1_300), run(second_ns, second_ns, second_ns)

    *rows, _, summary = agreement(first, second, floor_of(first, 0.01))

    assert rows[-1].startswith(f"| {CASE_ID} | eager | 1 µs |")
    assert rows[-1].endswith(f"| 3.00% | {said} |"), "the floor counts, and not how far blocks of one process lie apart"
    assert summary.startswith(f"{int(said == 'yes')} of 1 agree within the noise floor")


def test_without_a_noise_floor_nothing_is_said_to_agree() -> None:
    *rows, _, summary = agreement(run(1_000), run(1_000), None)

    assert rows[-1].endswith("| 0.00% | unknown |  |")
    assert summary.startswith("0 of 0 agree")
    assert summary.endswith("1 have none.")


def quick_run(kernel: SuiteInfo) -> RunRecord:
    """What `--preset quick` on a GPU would have timed of a kernel, all of it."""
    found = select(kernel, RunPlan())
    cases: dict[str, CaseRecord] = {each.case.case_id: each.case for each in found}
    timed = [make_measurement(case_id=each.case.case_id, implementation=each.implementation.name) for each in found]
    return make_record(measurements=timed, cases=tuple(cases.values()))


def test_what_is_counted_is_a_case_that_the_run_holds_and_that_the_suite_knows_as_one(tmp_path: Path) -> None:
    suite = SuiteInfo(device="cuda", kernels=(describe_kernel(softmax_spec, None),))
    record = quick_run(suite)
    file = tmp_path / "quick-1.json.gz"

    verb, case_id, *options = counting(record, file)

    case, names = select_calls(suite, case_id, None)
    assert case in record.cases
    assert {(case_id, name) for name in names} <= {(each.case_id, each.implementation) for each in record.measurements}
    asked = _understood([verb, case_id, *options])
    assert (asked["case"], asked["path"], asked["record"]) == (case_id, None, file)


def test_nothing_is_counted_of_a_run_in_which_the_kernel_was_not_timed() -> None:
    with pytest.raises(SuiteError, match="softmax: no case of it was timed"):
        counting(run(1_000), Path("quick-1.json.gz"))


def test_the_noise_floor_is_measured_of_the_same_kernels_sampled_as_the_runs_are(tmp_path: Path) -> None:
    asked = _understood(calibrating(tmp_path, KERNELS, "cuda", Preset.QUICK))

    assert (asked["kernel"], asked["device"], asked["preset"]) == (list(KERNELS), "cuda", "quick")
    assert asked["output"] == tmp_path / "calibration"


def _understood(words: list[str]) -> dict[str, object]:
    """What the command line makes of a command."""
    verb = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    return dict(verb.make_context(words[0], words[1:]).params)


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

    told = page(first, first, {Timer.CUPTI: first}, floor_of(first, 0.01))

    assert told.startswith("# Example GPU\n\nDriver 570.86.15, torch 2.13.0, triton 3.7.1, roofwatch ")
    assert "1 of 1 agree" in told
