"""Options of the commands that measure, and the plan from them."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.options import RunOptions
from tests.roofwatch.command import SUITES

PAIRS = [["ab", str(SUITES / "bench_good.py"), "--base", "HEAD"], ["calibrate", str(SUITES / "bench_good.py")]]


class MeasuredNothingError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunPlan]:
    """The plans of commands, which measure nothing."""
    plans: list[RunPlan] = []

    def measure(path: object, revisions: object, plan: RunPlan, **_: object) -> None:
        plans.append(plan)
        raise MeasuredNothingError

    monkeypatch.setattr("roofwatch.measurement.pair.measure_revisions", measure)
    return plans


def run(*words: str) -> None:
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, MeasuredNothingError), done.output


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_a_pair_has_eight_blocks_per_side_by_default(words: list[str], asked: list[RunPlan]) -> None:
    run(*words)
    plan = asked[0]
    assert (plan.sampling, plan.block_count) == (EFFORTS[Preset.SURVEY].sampling, 8)
    assert (plan.device_check, plan.launch_timeout_s) == (None, 10)


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_the_gate_preset_refuses_an_unfit_device(words: list[str], asked: list[RunPlan]) -> None:
    run(*words, "--preset", "gate")
    run(*words, "--preset", "quick")
    run(*words, "--preset", "gate", "--device-check", "warn", "--blocks", "12", "--launch-timeout", "60")
    gate, quick, warned = asked
    assert (gate.sampling, gate.block_count, gate.device_check) == (EFFORTS[Preset.GATE].sampling, 10, "refuse")
    assert (quick.sampling, quick.block_count, quick.device_check) == (EFFORTS[Preset.QUICK].sampling, 8, None)
    assert (warned.block_count, warned.device_check, warned.launch_timeout_s) == (12, "warn", 60)


COMPILING = {"run", "ab", "backfill", "diagnose", "static"}
TIMEOUTS_OF: dict[str, set[str]] = {"check": {"check_timeout"}, "static": set()}


def plan(**options: object) -> RunPlan:
    return RunOptions(targets="", **options).plan()  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["run", "ab", "calibrate", "bisect", "backfill", "diagnose", "check", "static"])
def test_timeout_options_default_to_those_of_a_plan(command: str) -> None:
    static = get_command(app).commands["static"].commands["compile"]  # type: ignore[attr-defined]
    found = static if command == "static" else get_command(app).commands[command]  # type: ignore[attr-defined]
    offered = {option.name: option.default for option in found.params if option.name.endswith("_timeout")}

    assert offered == {name: getattr(RunPlan(), f"{name}_s") for name in offered}
    assert set(offered) == TIMEOUTS_OF.get(command, {"launch_timeout", "preparation_timeout", "check_timeout"}) | (
        {"compile_timeout"} if command in COMPILING else set()
    )


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_sets_sampling_and_blocks(preset: Preset) -> None:
    effort = EFFORTS[preset]

    assert (plan(preset=preset).sampling, plan(preset=preset).block_count) == (effort.sampling, effort.block_count)
    assert plan(preset=preset, blocks=7).block_count == 7
    assert plan(preset=preset, blocks=7).preset is preset
