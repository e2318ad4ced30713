"""Sampling options and defaults of the commands that measure pairs."""

import pytest
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
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
