"""Values by an input's role: what they are, and kernels that are wrong only there."""

from pathlib import Path

import pytest
import torch

from roofwatch import cases
from roofwatch.collector.accuracy.evaluation import prepare
from roofwatch.collector.accuracy.regimes import in_regime, regimes_of
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import check_suite
from roofwatch.model.check_report import CheckReport, Regime
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from roofwatch.spec import Role
from tests.roofwatch.test_spec import declare

pytestmark = pytest.mark.usefixtures("forked_servers")

Reports = dict[tuple[str, Regime | None], CheckReport]
SUITE = Path(__file__).parents[2] / "suites" / "bench_regimes.py"


@pytest.fixture(scope="module")
def reports(fork_server: ForkServer) -> Reports:
    """Reports in the declared layout by kernel and regime."""
    plan = RunPlan(device="cpu", implementations=("triton",))
    checked = check_suite(SuiteSource(SUITE), plan, fork_server=fork_server).reports
    return {
        (report.case_id.split("/")[0], report.regime): report
        for report in checked
        if report.layout is None
    }


def test_a_gradient_that_is_wrong_where_one_logit_dominates_is_found(reports: Reports) -> None:
    assert reports["rounded", None].outcome is Outcome.OK
    peaked = reports["rounded", Regime.PEAKED]
    assert peaked.outcome is Outcome.INCORRECT
    assert [tensor.tensor for tensor in peaked.tensors if not tensor.passed] == ["grad_x"]


@pytest.mark.parametrize("regime", [None, Regime.PEAKED, Regime.EQUAL, Regime.INFINITE])
def test_a_right_gradient_passes_in_every_regime(reports: Reports, regime: Regime | None) -> None:
    assert not reports["right", regime].outcome.is_failure, reports["right", regime].message


def test_a_sum_in_bfloat16_is_interpreted_in_bfloat16(reports: Reports) -> None:
    assert reports["narrow_sum", None].outcome is Outcome.INCORRECT
    assert reports["wide_sum", None].outcome is Outcome.OK


def test_roles_choose_the_regimes_and_the_default_is_any_value() -> None:
    spec = declare(
        inputs=lambda case, make: {
            "x": make.normal(4, case["n"]),
            "gate": make.gates(4, case["n"]),
            "weight": make.weights(case["n"]),
        },
        reference=lambda x, gate, weight: x * gate.sigmoid() * weight,
        cases=cases(shapes=[{"n": 16}]),
    )
    prepared = prepare(spec, spec.cases[0], "cpu")
    assert prepared.roles == {"x": Role.VALUES, "gate": Role.GATES, "weight": Role.WEIGHTS}
    assert regimes_of(prepared) == (Regime.SATURATED, Regime.SPARSE)

    saturated = in_regime(prepared, Regime.SATURATED)
    assert torch.equal(saturated.inputs["gate"], 16 * prepared.inputs["gate"])
    assert torch.equal(saturated.inputs["x"], prepared.inputs["x"])
    sparse = in_regime(prepared, Regime.SPARSE)
    assert float((sparse.inputs["x"] == 0).double().mean()) > 0.85
    assert torch.equal(sparse.inputs["weight"], prepared.inputs["weight"])


def test_special_roles_draw_the_same_numbers_as_normal() -> None:
    def values(name: str) -> torch.Tensor:
        spec = declare(
            inputs=lambda case, make: {"x": getattr(make, name)(4, case["n"])},
            reference=lambda x: x + 1,
            cases=cases(shapes=[{"n": 16}]),
        )
        drawn = prepare(spec, spec.cases[0], "cpu").inputs["x"]
        assert isinstance(drawn, torch.Tensor)
        return drawn

    for name in ("logits", "scores", "gates", "terms", "weights"):
        assert torch.equal(values(name), values("normal"))
