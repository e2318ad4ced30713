"""How the commands that measure pairs sample: as they are told, and as ever where they are told nothing."""

import pytest
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.measurement.pair import PairPlan
from tests.roofwatch.command import SUITES

PAIRS = [["ab", str(SUITES / "bench_good.py"), "--base", "HEAD"], ["calibrate", str(SUITES / "bench_good.py")]]


class MeasuredNothingError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PairPlan]:
    """What commands would have measured, which they do not."""
    plans: list[PairPlan] = []

    def measure(plan: PairPlan, *_: object, **__: object) -> None:
        plans.append(plan)
        raise MeasuredNothingError

    monkeypatch.setattr("roofwatch.measurement.pair.measure_revisions", measure)
    return plans


def run(*words: str) -> None:
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, MeasuredNothingError), done.output


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_a_pair_has_eight_blocks_per_side_by_default(words: list[str], asked: list[PairPlan]) -> None:
    run(*words)
    plan = asked[0].plan
    assert (plan.sampling, plan.block_count) == (EFFORTS[Preset.SURVEY].sampling, 8)
    assert (plan.device_check, plan.launch_timeout_s) == (None, 10)


@pytest.mark.parametrize("words", PAIRS, ids=["ab", "calibrate"])
def test_the_gate_preset_refuses_an_unfit_device(words: list[str], asked: list[PairPlan]) -> None:
    run(*words, "--preset", "gate")
    run(*words, "--preset", "quick")
    run(*words, "--preset", "gate", "--device-check", "warn", "--blocks", "12", "--launch-timeout", "60")
    gate, quick, warned = (each.plan for each in asked)
    assert (gate.sampling, gate.block_count, gate.device_check) == (EFFORTS[Preset.GATE].sampling, 10, "refuse")
    assert (quick.sampling, quick.block_count, quick.device_check) == (EFFORTS[Preset.QUICK].sampling, 8, None)
    assert (warned.block_count, warned.device_check, warned.launch_timeout_s) == (12, "warn", 60)
