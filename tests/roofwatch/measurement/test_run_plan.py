"""The plan from the options of `roofwatch run`."""

import pytest
from typer.main import get_command

from roofwatch.cli.main import app
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.options import RunOptions

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
