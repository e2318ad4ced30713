"""What the options of `roofwatch run` stand for."""

import pytest
from typer.main import get_command

from roofwatch.cli.main import app
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.options import RunOptions

COMPILING = {"run", "ab", "backfill", "diagnose", "static"}
TIME_OUTS_OF: dict[str, set[str]] = {"check": {"check_timeout"}, "static": set()}


def plan(**options: object) -> RunPlan:
    return RunOptions(targets="", **options).plan()  # type: ignore[arg-type]


def test_what_is_left_out_is_what_a_plan_is_by_itself() -> None:
    asked = plan()

    assert (asked.sampling, asked.block_count) == (RunPlan().sampling, RunPlan().block_count)
    assert (asked.timer, asked.cache) == (None, None)


@pytest.mark.parametrize("command", ["run", "ab", "calibrate", "bisect", "backfill", "diagnose", "check", "static"])
def test_a_time_out_that_a_command_offers_is_by_itself_that_of_a_plan(command: str) -> None:
    static = get_command(app).commands["static"].commands["compile"]  # type: ignore[attr-defined]
    found = static if command == "static" else get_command(app).commands[command]  # type: ignore[attr-defined]
    offered = {option.name: option.default for option in found.params if option.name.endswith("_timeout")}

    assert offered == {name: getattr(RunPlan(), f"{name}_s") for name in offered}
    assert set(offered) == TIME_OUTS_OF.get(command, {"launch_timeout", "preparation_timeout", "check_timeout"}) | (
        {"compile_timeout"} if command in COMPILING else set()
    )


def test_every_time_out_of_a_plan_that_a_kernel_can_meet_may_be_moved() -> None:
    given = {"launch_timeout": 1.0, "preparation_timeout": 2.0, "check_timeout": 3.0, "compile_timeout": 4.0}
    asked = plan(**given)

    assert {name: getattr(asked, f"{name}_s") for name in given} == given


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_says_how_long_and_how_often_unless_blocks_are_given(preset: Preset) -> None:
    effort = EFFORTS[preset]

    assert (plan(preset=preset).sampling, plan(preset=preset).block_count) == (effort.sampling, effort.block_count)
    assert plan(preset=preset, blocks=7).block_count == 7
    assert plan(preset=preset, blocks=7).preset is preset


def test_presets_cost_more_and_more_and_ask_for_no_less() -> None:
    survey, quick, gate = (EFFORTS[preset].sampling for preset in Preset)

    assert survey.warmup_ms < quick.warmup_ms < gate.warmup_ms
    assert survey.relative_width > quick.relative_width >= gate.relative_width
    assert survey.patience_ms < quick.patience_ms < gate.patience_ms


def test_only_what_is_to_be_confirmed_is_refused_on_an_unfit_device_unless_something_else_is_asked_for() -> None:
    assert [plan(preset=preset).unfit_device for preset in Preset] == [None, None, "refuse"]
    assert plan(preset=Preset.GATE, unfit_device="warn").unfit_device == "warn"
    assert plan(unfit_device="refuse").unfit_device == "refuse"
