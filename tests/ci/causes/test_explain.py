"""Possible causes of a step from the runs around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from roofwatch.ci.ab.compare import compare
from roofwatch.ci.causes.explain import ChangeContext, CodeObservation, explain, explain_outcome
from roofwatch.ci.causes.odds import Odds, combine, weigh
from roofwatch.model.history import Cause, RunSetting, SeriesPoint, Suspect, TunedChoice
from tests.builders import make_commit_ref
from tests.ci.values import make_point

OLD = RunSetting(
    harness_version="1",
    driver_version="570.86",
    toolchain=(("torch", "2.12.0"), ("triton", "3.6.0")),
    machine=(("os", "Linux 6.1"),),
)
UNCHANGED = CodeObservation(changed_targets=0, known_targets=2, facts="", is_worse=False)


def runs(first: int, value: float, *, count: int = 6, **fields: Any) -> list[SeriesPoint]:
    """Runs of one level, from the numbered commit on."""
    return [
        make_point(number, value, **{"setting": OLD} | fields)
        for number in range(first, first + count)
    ]


def around(
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    **fields: Any,
) -> ChangeContext:
    """A step at commit 6 from 1 ms, 20 % slower."""
    defaults: dict[str, Any] = {
        "before": runs(0, 1e6, **before or {}),
        "after": runs(6, 1.2e6, **after or {}),
        "log_change": math.log(1.2),
        "candidates": frozenset({make_commit_ref(6)}),
        "code": None,
    }
    return ChangeContext(**defaults | fields)


def weights(suspects: Sequence[Suspect]) -> dict[Cause, float]:
    return {suspect.cause: suspect.weight for suspect in suspects}


@pytest.mark.parametrize(
    ("changed", "cause", "sentence"),
    [
        ({"driver_version": "570.124"}, Cause.DRIVER, "driver 570.86 → 570.124"),
        (
            {"toolchain": (("torch", "2.12.0"), ("triton", "3.7.1"))},
            Cause.TOOLCHAIN,
            "triton 3.6.0 → 3.7.1",
        ),
        (
            {"toolchain": (*OLD.toolchain, ("TRITON_DEFAULT_FP_FUSION", "0"))},
            Cause.TOOLCHAIN,
            "TRITON_DEFAULT_FP_FUSION unset → 0",
        ),
        ({"harness_version": "2"}, Cause.HARNESS, "harness 1 → 2"),
        ({"machine": (("os", "Linux 6.8"),)}, Cause.RUNNER, "os Linux 6.1 → Linux 6.8"),
    ],
)
def test_a_setting_that_changed_at_the_step_is_the_first_suspect(
    changed: dict[str, Any], cause: Cause, sentence: str
) -> None:
    suspect = explain(around(after={"setting": replace(OLD, **changed)}))[0]

    assert suspect.cause is cause
    assert sentence in suspect.sentence
    assert suspect.weight < 0.95


def test_a_setting_that_changed_at_a_neighbouring_candidate_weighs_less() -> None:
    step = around(
        after={"setting": replace(OLD, driver_version="570.124")},
        candidates=frozenset({make_commit_ref(6), make_commit_ref(7)}),
    )
    later = replace(step, after=[replace(step.after[0], setting=OLD), *step.after[1:]])

    exact, nearby = weights(explain(step))[Cause.DRIVER], weights(explain(later))[Cause.DRIVER]

    assert exact > nearby > 0.4


def test_a_confirming_pair_leaves_only_the_commit() -> None:
    paired = compare([[1e6, 1.01e6]] * 8, [[1.2e6, 1.21e6]] * 8)
    step = around(paired=paired, after={"setting": replace(OLD, driver_version="570.124")})

    suspects = explain(step)

    assert suspects[0].cause is Cause.CODE
    assert suspects[0].weight > 0.95
    assert Cause.DRIVER not in weights(suspects)


# --- clocks


def test_a_change_that_is_gone_in_clock_cycles_suspects_the_clock() -> None:
    suspect = explain(around(before={"sm_clock_mhz": 1_980.0}, after={"sm_clock_mhz": 1_650.0}))[0]

    assert suspect.cause is Cause.CLOCK
    assert "from 1980 to 1650 MHz, and in clock cycles the change is" in suspect.sentence


def test_throttled_runs_suspect_the_clock_with_the_reason() -> None:
    suspect = explain(around(after={"degraded_by": ("sw_thermal_slowdown",)}))[0]

    assert suspect.cause is Cause.CLOCK
    assert (
        "6 of 6 runs on the slower level were held back by sw_thermal_slowdown" in suspect.sentence
    )


# --- the autotuner


def chose(configuration: str) -> dict[str, Any]:
    return {"choices": (TunedChoice("_kernel", "4096", configuration),)}


def test_a_configuration_that_flipped_is_a_suspect() -> None:
    suspect = explain(around(before=chose("BLOCK=128"), after=chose("BLOCK=64"), code=UNCHANGED))[0]

    assert suspect.cause is Cause.AUTOTUNE
    assert "_kernel chose BLOCK=64 after it, BLOCK=128 before" in suspect.sentence


# --- weights


def test_the_suspects_of_many_series_are_the_mean_of_each() -> None:
    driver, code = (
        weigh({Cause.DRIVER: Odds(9.0, "driver")}),
        weigh({Cause.CODE: Odds(9.0, "code")}),
    )

    found = combine([driver, driver, driver, code])

    assert weights(found)[Cause.DRIVER] == pytest.approx(0.75 * 0.9)
    assert "(3 of 4 series)" in found[0].sentence


def test_a_failure_that_begins_with_another_driver_suspects_it_as_much_as_the_code() -> None:
    before = make_point(0, 1e6, setting=OLD)
    after = make_point(1, None, setting=replace(OLD, driver_version="570.124"))

    found = weights(explain_outcome(before, after, "it worked at the commit before"))

    assert found[Cause.DRIVER] == pytest.approx(found[Cause.CODE])
