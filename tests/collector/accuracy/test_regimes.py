"""Values by an input's role: what they are, and kernels that are wrong only there."""

from pathlib import Path

import pytest
import torch

from roofwatch import cases
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.evaluation import PreparedCase, prepare
from roofwatch.collector.accuracy.regimes import in_regime, regimes_of
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.measurement.check import check_suite
from roofwatch.model.check_report import CheckReport
from roofwatch.model.machine import Outcome
from roofwatch.model.regime import Regime
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import CheckAccuracy, WorkerSettings
from roofwatch.spec import Role
from tests.roofwatch.spec.test_spec import declare

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


def test_padding_that_counts_below_all_logits_is_found(reports: Reports) -> None:
    assert reports["padded_high", None].outcome is Outcome.OK
    assert reports["padded_high", Regime.LOWERED].outcome is Outcome.INCORRECT
    for regime in (Regime.LOWERED, Regime.DISTANT):
        assert reports["padded_low", regime].outcome is Outcome.OK


def test_a_run_keeps_the_accuracy_with_other_values(fork_server: ForkServer) -> None:
    settings = WorkerSettings(source=SuiteSource(SUITE), mode=Mode.INTERPRETER, device="cpu")
    case_id = "padded_high/n_rows=4,n_cols=60/float32/fwd"
    job = CheckAccuracy(case_id=case_id, implementation="triton", is_exact=True, with_regimes=True)
    with WorkerPool(fork_server, settings) as workers:
        checked = workers.request(job, timeout_s=120).checked

    assert checked is not None
    accuracy = checked.report.accuracy(case_id, checked.errors)
    assert accuracy.outcome is Outcome.OK
    passed = {error.regime: error.passed for error in accuracy.regimes}
    assert passed[Regime.LOWERED] is False
    assert passed[Regime.PEAKED] is True


def test_weights_leave_the_choice_to_other_inputs() -> None:
    spec = declare(
        inputs=lambda case, make: {
            "x": make.normal(4, case["n"]),
            "weight": make.weights(case["n"]),
        },
        reference=lambda x, weight: x * weight,
        cases=cases(shapes=[{"n": 16}]),
    )
    regimes = regimes_of(prepare(spec, spec.cases[0], "cpu"))
    assert regimes == (Regime.SHIFTED, Regime.PEAKED, Regime.SPARSE)


def test_a_sum_in_bfloat16_is_interpreted_in_bfloat16(reports: Reports) -> None:
    assert reports["narrow_sum", None].outcome is Outcome.INCORRECT
    assert reports["wide_sum", None].outcome is Outcome.OK


def gated_case() -> PreparedCase:
    spec = declare(
        inputs=lambda case, make: {
            "x": make.normal(4, case["n"]),
            "gate": make.gates(4, case["n"]),
            "weight": make.weights(case["n"]),
        },
        reference=lambda x, gate, weight: x * gate.sigmoid() * weight,
        cases=cases(shapes=[{"n": 16}]),
    )
    return prepare(spec, spec.cases[0], "cpu")


def test_an_input_without_a_role_may_have_any_value() -> None:
    roles = gated_case().roles

    assert roles == {"x": Role.VALUES, "gate": Role.GATES, "weight": Role.WEIGHTS}


def test_roles_choose_the_regimes() -> None:
    assert regimes_of(gated_case()) == (Regime.SATURATED, Regime.SPARSE)


def test_a_regime_changes_only_inputs_of_its_role() -> None:
    prepared = gated_case()

    saturated = in_regime(prepared, Regime.SATURATED)
    assert torch.equal(saturated.inputs["gate"], 16 * prepared.inputs["gate"])
    assert torch.equal(saturated.inputs["x"], prepared.inputs["x"])
    sparse = in_regime(prepared, Regime.SPARSE)
    assert float((sparse.inputs["x"] == 0).double().mean()) > 0.85
    assert torch.equal(sparse.inputs["weight"], prepared.inputs["weight"])


def test_rows_of_a_mask_that_keep_nothing_are_tried_unless_the_reference_has_no_result() -> None:
    def reference(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shares = x.masked_fill(~mask, -torch.inf).softmax(-1)
        return shares.masked_fill(~mask.any(-1, keepdim=True), 0)

    def without_empty_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(~mask, -torch.inf).softmax(-1)

    outcomes = []
    for expected in (reference, without_empty_rows):
        spec = declare(
            inputs=lambda case, make: {
                "x": make.logits(8, case["n"]),
                "mask": make.mask(8, case["n"]),
            },
            reference=expected,
            cases=cases(shapes=[{"n": 16}]),
        )
        spec.implementation("triton")(without_empty_rows)
        report = check_case(
            spec,
            spec.cases[0],
            spec.implementations["triton"],
            CheckCache(),
            device="cpu",
            regime=Regime.MASKED,
        )
        outcomes.append(report.outcome)

    assert outcomes == [Outcome.INCORRECT, Outcome.UNSUPPORTED]


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


@pytest.mark.parametrize("regime", [Regime.PEAKED, Regime.LOWERED, Regime.EQUAL])
def test_a_right_loss_of_one_number_passes_in_each_regime(reports: Reports, regime: Regime) -> None:
    assert reports["right_loss", regime].outcome is Outcome.OK, reports[
        "right_loss", regime
    ].message


def test_a_loss_of_one_number_that_is_wrong_below_zero_is_found(reports: Reports) -> None:
    assert reports["padded_loss", None].outcome is Outcome.OK
    assert reports["padded_loss", Regime.LOWERED].outcome is Outcome.INCORRECT
