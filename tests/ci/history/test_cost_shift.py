"""Shares of a step that change are judged by the time of the step."""

from collections.abc import Sequence

from roofwatch.model.history import Regression, Series
from roofwatch.model.metrics import SHARE_OF_STEP, Better, imported_key
from roofwatch.model.verdict import Reason, Verdict
from tests.ci.values import judge_history, make_series, only, stepped

STEP = "transformer_inference/B=1,T=128/float32/fwd"
LENGTH = {"count": 40, "at": 20}
QUIET_NS = stepped(factor=1.0, **LENGTH)


def share(function: str, before: float, after: float, seed: int) -> Series:
    values = stepped(level_ns=before, factor=after / before, seed=seed, **LENGTH)
    return make_series(
        values, imported_key(SHARE_OF_STEP + function, "share", Better.LOWER), case_id=STEP
    )


def judge(times_ns: Sequence[float], *shares: Series) -> list[Regression]:
    return judge_history([make_series(times_ns, case_id=STEP), *shares])


def test_functions_that_trade_places_in_an_unchanged_step_raise_no_alert() -> None:
    note = only(
        judge(
            QUIET_NS,
            share("_norm_kernel", 0.1, 0.2, seed=1),
            share("_gate_kernel", 0.3, 0.2, seed=2),
        )
    )

    assert note.verdict is Verdict.INCONCLUSIVE
    assert not note.is_alert
    assert {change.series.definition.title for change in note.change_points} == {
        "share of step: _norm_kernel",
        "share of step: _gate_kernel",
    }
    assert {change.reason for change in note.change_points} == {Reason.COST_SHIFT}
    assert note.summary.endswith("; the time of the step did not change")


def test_only_the_function_that_makes_a_step_slower_is_evidence() -> None:
    slower = stepped(factor=1.4, **LENGTH)
    found = only(
        judge(
            slower,
            share("_norm_kernel", 0.2, 0.43, seed=1),
            share("_gate_kernel", 0.3, 0.21, seed=2),
        )
    )

    assert (found.verdict, found.is_alert) == (Verdict.REGRESSED, True)
    assert [change.series.definition.title for change in found.change_points] == [
        "time",
        "share of step: _norm_kernel",
    ]
