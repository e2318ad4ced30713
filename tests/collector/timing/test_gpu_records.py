"""The comparison page of `bench/gpu_records.py`, and the commands it runs."""

from pathlib import Path

import pytest
import typer

from bench.gpu_records import KERNELS, calibrate_command, compare_runs, compare_timers, count_command
from roofwatch.ci.ab.noise_floor import CaseNoise, NoiseFloor
from roofwatch.cli.main import app
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import Timer
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.timing.method import Preset
from tests.builders import CASE_ID, make_blocks, make_case, make_measurement, make_record


def run(*medians_ns: float) -> RunRecord:
    """A run of one case with a block for each median."""
    return make_record(measurements=[make_measurement(blocks=make_blocks(medians_ns))])


def floor_of(record: RunRecord, noise_floor: float) -> NoiseFloor:
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


@pytest.mark.parametrize(("second_ns", "agree"), [(1_020, "yes"), (1_080, "no")])
def test_two_runs_agree_within_the_noise_floor(second_ns: float, agree: str) -> None:
    first = run(700, 1_000, 1_300)

    *rows, _, summary = compare_runs(first, run(second_ns), floor_of(first, 0.01))

    assert rows[-1].startswith(f"| {CASE_ID} | eager | 1 µs |")
    assert rows[-1].endswith(f"| 3.00% | {agree} |")
    assert summary.startswith(f"{int(agree == 'yes')} of 1 agree within the noise floor")


def parsed(words: list[str]) -> dict[str, object]:
    """Parameters that the command line reads from a command."""
    command = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    return dict(command.make_context(words[0], words[1:]).params)


def test_the_commands_are_accepted_by_the_command_line(tmp_path: Path) -> None:
    case_id = "softmax/n=8/float32/fwd"
    record = make_record(
        measurements=[make_measurement(case_id=case_id)], cases=(make_case(case_id, kernel="softmax"),)
    )
    file = tmp_path / "quick-1.json.gz"

    calibrating = parsed(calibrate_command(tmp_path, KERNELS, "cuda", Preset.QUICK))
    counting = parsed(count_command(record, file))

    assert (calibrating["kernel"], calibrating["device"], calibrating["preset"]) == (list(KERNELS), "cuda", "quick")
    assert calibrating["output"] == tmp_path / "calibration"
    assert (counting["case"], counting["path"], counting["record"]) == (case_id, None, file)
    with pytest.raises(SuiteError, match="softmax: no case was timed"):
        count_command(run(1_000), file)


def test_timers_are_compared() -> None:
    none = make_record(measurements=[])

    rows = list(compare_timers({Timer.CUPTI: run(1_000), Timer.CUDA_GRAPH: none, Timer.CUDA_EVENT: run(1_100)}))

    assert rows[0] == "| case | implementation | cupti | cuda_graph | cuda_event | difference |"
    assert rows[2] == f"| {CASE_ID} | eager | 1 µs |  | 1.1 µs | 10.0% |"
