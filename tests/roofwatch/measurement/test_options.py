"""Options of the commands that measure, the plan from them, and the outcome of a run."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.commands.options import RunOptions
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import EFFORTS, Preset
from roofwatch.reporting.records import nothing_done
from tests.builders import make_accuracy, make_case, make_measurement, make_record
from tests.roofwatch.command import SUITES

PAIRS = [
    ["ab", str(SUITES / "bench_good.py"), "--base", "HEAD"],
    ["calibrate", str(SUITES / "bench_good.py")],
]


class MeasuredNothingError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunPlan]:
    """The plans of commands, which measure nothing."""
    plans: list[RunPlan] = []

    def measure(path: object, revisions: object, plan: RunPlan, **_: object) -> None:
        plans.append(plan)
        raise MeasuredNothingError

    monkeypatch.setattr("roofwatch.measurement.run.measure_revisions", measure)
    monkeypatch.setattr("roofwatch.measurement.revisions.has_same_source", lambda *_: False)
    return plans


def run(*words: str) -> None:
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, MeasuredNothingError), done.output


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_a_pair_has_at_least_eight_blocks(words: list[str], asked: list[RunPlan]) -> None:
    run(*words)
    run(*words, "--preset", "quick")
    run(*words, "--preset", "gate")

    survey, quick, gate = asked
    assert (survey.block_count, quick.block_count, gate.block_count) == (8, 8, 10)
    assert survey.sampling == EFFORTS[Preset.SURVEY].sampling
    assert quick.sampling == EFFORTS[Preset.QUICK].sampling
    assert gate.sampling == EFFORTS[Preset.GATE].sampling
    assert survey.timeout_s == 300


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_only_the_gate_refuses_an_unfit_device(words: list[str], asked: list[RunPlan]) -> None:
    run(*words)
    run(*words, "--preset", "quick")
    run(*words, "--preset", "gate")

    assert [plan.device_check for plan in asked] == [None, None, "refuse"]


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_options_count_before_the_preset(words: list[str], asked: list[RunPlan]) -> None:
    run(*words, "--preset", "gate", "--device-check", "warn", "--blocks", "12", "--timeout", "60")

    (plan,) = asked
    assert (plan.block_count, plan.device_check, plan.timeout_s) == (12, "warn", 60)


def plan(**options: object) -> RunPlan:
    return RunOptions(targets="", **options).plan()  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_sets_the_effort(preset: Preset) -> None:
    effort = EFFORTS[preset]

    assert (plan(preset=preset).sampling, plan(preset=preset).block_count) == (
        effort.sampling,
        effort.block_count,
    )


@pytest.mark.parametrize("preset", Preset)
def test_a_number_of_blocks_replaces_that_of_the_preset(preset: Preset) -> None:
    assert plan(preset=preset, blocks=7).block_count == 7
    assert plan(preset=preset, blocks=7).preset is preset


NO_GPU, TOO_SMALL = "torch sees no GPU here", "a launch touches 8 bytes"
CASES = [f"rms_norm/n_rows=64,n_cols={width}/float32/fwd" for width in (1, 2, 3)]


def refused(
    case_id: str = CASES[0], message: str = TOO_SMALL, implementation: str = "torch"
) -> RunRecord:
    measurement = make_measurement(
        case_id=case_id, implementation=implementation, outcome=Outcome.UNSUPPORTED, message=message
    )
    return record_of(measurements=(measurement,))


def record_of(**fields: Any) -> RunRecord:
    nothing: dict[str, Any] = {"accuracies": (), "static_facts": (), "measurements": ()}
    return make_record(cases=tuple(map(make_case, CASES)), **nothing | fields)


def checked(executor: str, outcome: Outcome = Outcome.OK) -> RunRecord:
    accuracy = make_accuracy(
        case_id=CASES[0], implementation="torch", executor=executor, outcome=outcome
    )
    return refused().model_copy(update={"accuracies": (accuracy,)})


def test_a_run_without_times_has_a_reason() -> None:
    assert nothing_done([checked("device")]) == f"nothing could be timed: {TOO_SMALL}"
    other = refused(CASES[1], NO_GPU).measurements
    mixed = checked("device").model_copy(update={"measurements": (*other, *refused().measurements)})
    assert nothing_done([mixed]) == f"nothing could be timed: {TOO_SMALL}", "the other never ran"
    assert (
        nothing_done([refused(message=NO_GPU)])
        == f"nothing could be checked, compiled or timed: {NO_GPU}"
    )
    assert nothing_done([refused(), refused()]) is not None


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["table", "json"])
def test_an_exit_with_status_2_lists_reasons_with_counts(
    as_json: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [refused(CASES[0]), refused(CASES[1]), refused(CASES[2], NO_GPU)]
    record = record_of(measurements=tuple(one for part in parts for one in part.measurements))
    monkeypatch.setattr(
        "roofwatch.measurement.run.measure_suite", lambda *_, **__: [(Path("record.json"), record)]
    )

    done = CliRunner().invoke(app, ["run", str(SUITES / "bench_good.py"), *as_json])

    assert done.exit_code == 2
    assert f"nothing could be checked, compiled or timed: {TOO_SMALL}" in done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    if not as_json:
        assert lines.index(f"2 unsupported: {TOO_SMALL}") + 1 == lines.index(
            f"1 unsupported: {NO_GPU}"
        )
