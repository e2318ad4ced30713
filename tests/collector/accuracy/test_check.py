"""The full check: real wrong kernels in real workers, each found and explained."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from roofwatch import Case, InputMaker, cases
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.evaluation import PreparedCase, prepare
from roofwatch.collector.accuracy.layouts import in_layout, layouts_of, rearranged
from roofwatch.collector.compile.pretended_device import as_on_gpu
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.check import Depth, check_suite, select_jobs
from roofwatch.model.check_report import Arrangement, CheckReport, Layout
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import CaseKind, CheckableCase, Checked, Reply, SuiteInfo
from tests.builders import (
    make_check_report,
    make_implementation_info,
    make_kernel_info,
    make_tensor_report,
)
from tests.roofwatch.spec.test_spec import declare

pytestmark = pytest.mark.usefixtures("forked_servers")

X_ROWS_APART = Layout(tensor="x", arrangement=Arrangement.ROW_STRIDED)
X_TRANSPOSED = Layout(tensor="x", arrangement=Arrangement.TRANSPOSED)


@pytest.fixture(scope="module")
def broken(fork_server: ForkServer) -> dict[tuple[str, str, Layout | None], CheckReport]:
    """Reports of the broken suite by kernel, implementation and layout; edges left out."""
    source = SuiteSource(Path(__file__).parents[2] / "suites" / "bench_broken.py")
    suite = check_suite(
        source, RunPlan(device="cpu", cases=("*n_rows=[34]*",)), fork_server=fork_server
    )
    declared_values = [each for each in suite.reports if each.regime is None]
    return {
        (each.case_id.split("/")[0], each.implementation, each.layout): each
        for each in declared_values
    }


def test_a_correct_kernel_passes_in_each_layout_that_it_supports(broken: Any) -> None:
    assert broken["sound", "triton", None].outcome is Outcome.OK
    assert broken["sound", "triton", None].executor == "interpreter"
    assert broken["sound", "torch", None].executor == "device"
    assert broken["sound", "triton", X_ROWS_APART].outcome is Outcome.OK


def test_a_layout_is_refused_with_a_message(broken: Any) -> None:
    refused = broken["sound", "triton", X_TRANSPOSED]
    assert refused.outcome is Outcome.UNSUPPORTED
    assert refused.message == (
        "refuses: sound: x must be contiguous along its last dim; call x.contiguous()"
    )
    assert not refused.outcome.is_failure


def test_a_refusal_without_a_message_is_incorrect(broken: Any) -> None:
    silent = broken["silent", "triton", X_TRANSPOSED]
    assert silent.outcome is Outcome.INCORRECT
    assert (
        silent.message == "refuses with AssertionError without a message; say what to call instead"
    )


def test_a_bare_assertion_that_an_input_is_contiguous_is_a_refusal(broken: Any) -> None:
    refused = broken["terse", "triton", X_TRANSPOSED]
    assert refused.outcome is Outcome.UNSUPPORTED
    assert refused.message.startswith("refuses: assert x.is_contiguous() (")
    assert broken["terse", "triton", None].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("kernel", "wrong_count", "where", "values"),
    [
        ("tail", 24, "after the last whole tile of 64: is a mask missing?", "never written"),
        (
            "tile",
            192,
            "columns 64 to 127 (one tile of 64)",
            "the values that belong one index after along dim 1",
        ),
        ("causal", 40, "the diagonal where column - row == 0", "zero"),
    ],
)
def test_a_fault_is_located(
    broken: Any, kernel: str, wrong_count: int, where: str, values: str
) -> None:
    report = broken[kernel, "triton", None]
    assert report.outcome is Outcome.INCORRECT
    (tensor,) = report.tensors
    assert (tensor.tensor, tensor.wrong_count) == ("out", wrong_count)
    assert where in tensor.where
    assert values in tensor.values
    assert len(tensor.worst) == 5
    assert tensor.baseline.rmse_ratio == 0.0
    assert (kernel, "triton", X_ROWS_APART) not in broken


def test_a_kernel_that_ignores_strides_fails_in_other_layouts(broken: Any) -> None:
    assert broken["strides", "triton", None].outcome is Outcome.OK
    report = broken["strides", "triton", X_ROWS_APART]
    assert report.outcome is Outcome.INCORRECT
    assert report.tensors[0].where == "from row 1 to the end"
    assert broken["strides", "triton", X_TRANSPOSED].outcome is Outcome.INCORRECT


def test_a_report_with_nan_is_serialised() -> None:
    tensor = make_tensor_report(worst=({"index": (0, 1), "expected": 1.0, "got": float("nan")},))
    report = make_check_report(outcome="incorrect", tensors=(tensor,))
    sent = Reply(checked=Checked(report=report, layouts=())).model_dump_json()
    received = Reply.model_validate_json(sent).checked
    assert received is not None
    assert math.isnan(received.report.tensors[0].worst[0].got)
    assert report.model_dump(mode="json")["tensors"][0]["worst"][0]["got"] == "nan"


def info(device: str) -> SuiteInfo:
    def case(
        case_id: str, kind: CaseKind, *tags: str, stand_in: str = "", direction: Any = "fwd"
    ) -> CheckableCase:
        return CheckableCase(
            case_id=case_id,
            kind=kind,
            direction=direction,
            tags=tags,
            stand_in_id=stand_in or case_id,
            rank_count=1,
        )

    kernel = make_kernel_info(
        "k",
        implementations=(
            make_implementation_info("torch"),
            make_implementation_info("compile", is_compiled=True),
            make_implementation_info("triton", language="triton"),
        ),
        checkable=(
            case("k/quick/f32/fwd", "declared", "quick", stand_in="k/tiny/f32/fwd"),
            case("k/full/f32/fwd", "declared", "full", stand_in="k/tiny/f32/fwd"),
            case("k/untagged/f32/fwd", "declared", stand_in="k/tiny/f32/fwd"),
            case("k/backward/f32/bwd", "declared", "quick", direction="bwd"),
            case("k/edge/f32/fwd", "edge"),
            case("k/tiny/f32/fwd", "stand_in"),
        ),
    )
    return SuiteInfo(device=device, kernels=(kernel,))


def chosen(device: str, **plan: Any) -> list[tuple[str, str, str]]:
    jobs = select_jobs(info(device), RunPlan(**plan))
    return [(job.case_id, job.implementation, str(mode)) for job, mode in jobs.items()]


def test_without_a_gpu_triton_is_interpreted_at_the_cases_that_torch_is_checked_at() -> None:
    assert chosen("cpu") == [
        ("k/tiny/f32/fwd", "torch", "device"),
        ("k/tiny/f32/fwd", "compile", "device"),
        ("k/tiny/f32/fwd", "triton", "interpreter"),
        ("k/edge/f32/fwd", "torch", "device"),
        ("k/edge/f32/fwd", "triton", "interpreter"),
    ]


def test_torch_compile_runs_for_one_case_of_each_kind_unless_everything_is_checked() -> None:
    def compiled(depth: Depth) -> list[str]:
        jobs = select_jobs(info("cpu"), RunPlan(), depth)
        return [job.case_id for job in jobs if job.implementation == "compile"]

    assert compiled(Depth.QUICK) == ["k/tiny/f32/fwd"]
    assert compiled(Depth.FULL) == ["k/tiny/f32/fwd", "k/edge/f32/fwd"]


def test_a_selected_case_is_interpreted_as_its_stand_in() -> None:
    assert chosen("cpu", cases=("k/full/f32/fwd",)) == [
        ("k/full/f32/fwd", "torch", "device"),
        ("k/full/f32/fwd", "compile", "device"),
        ("k/tiny/f32/fwd", "triton", "interpreter"),
    ]
    fast = [case_id for case_id, name, _ in chosen("cuda") if name == "triton"]
    assert fast == ["k/quick/f32/fwd", "k/untagged/f32/fwd", "k/edge/f32/fwd"]
    assert chosen("cuda", cases=("k/full/f32/fwd",), implementations=("*",)) == [
        ("k/full/f32/fwd", "torch", "device"),
        ("k/full/f32/fwd", "compile", "device"),
        ("k/full/f32/fwd", "triton", "device"),
    ]


def test_a_launcher_that_needs_a_gpu_runs_as_on_one() -> None:
    seen: list[tuple[str, int]] = []

    def launch(x: torch.Tensor) -> torch.Tensor:
        if not torch.cuda.is_available():
            raise RuntimeError("no device")
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        seen.append((str(x.device), count))
        index: Any = torch.cuda.device(0)
        assert torch._C._cuda_getCurrentRawStream(index.idx) == 0
        return torch.zeros(x.shape, device=x.device) + 2 * x

    spec = declare(reference=lambda x: 2 * x, cases=cases(shapes=[{"n": 16}]))
    spec.implementation("triton")(launch)
    implementation = spec.implementations["triton"]
    pretend = partial(as_on_gpu, "sm_90")
    report = check_case(spec, spec.cases[0], implementation, CheckCache(), as_on_gpu=pretend)

    assert report.outcome is Outcome.OK, report.message
    assert seen == [("cuda:0", 132)]
    assert torch.zeros(1).device.type == "cpu"


def test_a_backward_pass_makes_tensors_on_the_gpu_that_is_not_there() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(_ctx: Any, *upstream: torch.Tensor) -> torch.Tensor:
            return upstream[0] * torch.tensor(2.0, device=torch.device("cuda", 0))

    doubled: Any = Doubled.apply
    x = torch.ones(3, requires_grad=True)
    with as_on_gpu("sm_90"):
        (gradient,) = torch.autograd.grad(doubled(x).sum(), x)

    assert gradient.tolist() == [2.0, 2.0, 2.0]


def test_torch_code_is_not_tried_where_an_input_of_its_own_no_longer_fits_the_others() -> None:
    def make_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        x = make.normal(4, case["n"])
        return {"x": x, "doubled": 2 * x}

    spec = declare(
        inputs=make_inputs,
        reference=lambda x, doubled: 2 * x + 0 * doubled,
        cases=cases(shapes=[{"n": 8}]),
    )
    spec.implementation("torch")(lambda x, doubled: doubled + 0 * x)
    expanded = Layout(tensor="x", arrangement=Arrangement.EXPANDED)

    report = check_case(
        spec, spec.cases[0], spec.implementations["torch"], CheckCache(), layout=expanded
    )

    assert report.outcome is Outcome.UNSUPPORTED, report.message


def suite_of_one_large_case() -> SuiteInfo:
    """No smaller case stands in for it."""
    large = CheckableCase(
        case_id="k/large/f32/fwd",
        kind="declared",
        direction="fwd",
        tags=("large",),
        stand_in_id="k/large/f32/fwd",
        rank_count=1,
    )
    kernel = make_kernel_info(
        "k",
        implementations=(make_implementation_info("triton", language="triton"),),
        checkable=(large,),
    )
    return SuiteInfo(device="cpu", kernels=(kernel,))


def test_a_large_case_without_a_smaller_one_is_not_run() -> None:
    with pytest.raises(SuiteError, match="nothing to check"):
        select_jobs(suite_of_one_large_case(), RunPlan())


def test_an_analysis_needs_no_case_to_run() -> None:
    assert select_jobs(suite_of_one_large_case(), RunPlan(), is_analysed=True) == {}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"kernels": ("j",)}, "no kernel matches j; the suite has k"),
        ({"cases": ("*/fp8/*",)}, "cases: k/quick"),
        ({"implementations": ("trlton",)}, "implementations: compile, torch, triton"),
    ],
)
def test_a_plan_that_matches_nothing_is_refused(plan: Any, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        select_jobs(info("cpu"), RunPlan(**plan))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "int64", "bool"])
@pytest.mark.parametrize("arrangement", [Arrangement.ROW_STRIDED, Arrangement.TRANSPOSED])
def test_rearranging_a_tensor_changes_only_its_strides(
    dtype: str, arrangement: Arrangement
) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    moved = rearranged(tensor, arrangement)
    assert moved.shape == tensor.shape
    assert moved.stride() != tensor.stride()
    assert moved.to(torch.float64).equal(tensor.to(torch.float64))


def scaled_forward_and_backward() -> tuple[PreparedCase, PreparedCase]:
    """`x` has two dims, `factor` one."""
    spec = declare(
        inputs=lambda case, make: {"x": make.normal(4, case["n"]), "factor": make.normal(1)},
        reference=lambda x, factor: x * factor,
        cases=cases(shapes=[{"n": 8}], directions=["fwd", "bwd"]),
    )
    forward, backward = (prepare(spec, case, "cpu") for case in spec.cases)
    return forward, backward


def test_layouts_cover_tensors_with_two_dims() -> None:
    forward, backward = scaled_forward_and_backward()

    assert {layout.tensor for layout in layouts_of(forward)} == {"x"}
    assert {layout.tensor for layout in layouts_of(backward)} == {"x", "upstream"}


def test_an_input_in_another_layout_still_has_a_gradient() -> None:
    _, backward = scaled_forward_and_backward()

    moved = in_layout(backward, X_TRANSPOSED).inputs["x"]

    assert moved.requires_grad
    assert moved.stride() == (1, 4)


def test_an_upstream_gradient_can_have_another_layout() -> None:
    _, backward = scaled_forward_and_backward()
    transposed = Layout(tensor="upstream", arrangement=Arrangement.TRANSPOSED)

    upstream = in_layout(backward, transposed).upstream.lay_out

    assert upstream(torch.zeros(4, 8)).stride() == (1, 4)


def softmax_in_expanded_layout(tensor: str) -> PreparedCase:
    spec = declare(
        inputs=lambda case, make: {"x": make.normal(4, case["n"])},
        reference=lambda x: x.softmax(-1),
        cases=cases(shapes=[{"n": 8}], directions=["bwd"]),
    )
    prepared = prepare(spec, spec.cases[0], "cpu")
    return in_layout(prepared, Layout(tensor=tensor, arrangement=Arrangement.EXPANDED))


def test_an_expanded_input_repeats_one_slice() -> None:
    rows = softmax_in_expanded_layout("x")

    assert rows.inputs["x"].stride() == (0, 1)
    assert torch.equal(rows.expected["out"][0], rows.expected["out"][3])


def test_an_expanded_upstream_gradient_has_its_own_reference() -> None:
    summed = softmax_in_expanded_layout("upstream")

    assert summed.upstream.lay_out(torch.zeros(4, 8)).stride() == (0, 0)
    # the gradient of a softmax's sum is zero but for rounding, so errors are relative to the usual
    assert float(summed.expected["grad_x"].abs().max()) < 1e-12
    assert summed.least_rms["grad_x"] > 1e-3


NEEDS_A_GPU = """
import torch
import triton
import triton.language as tl

from roofwatch import KernelSpec, cases


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 7, "blocks of seven")
    tl.store(y_ptr, tl.load(x_ptr))


def launch(x):
    y = torch.empty_like(x)
    with torch.cuda.device(x.device.index):
        kernel[(1,)](x, y, BLOCK=8)
    return y


copied = KernelSpec(
    name="copied",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x + 0,
    cases=cases(shapes=[{"n": 1}], dtypes=["float32"], directions=["fwd"], tags=["quick"]),
    flop_count=lambda case: 0,
    memory_bytes=lambda case: 0,
)
copied.implementation("triton")(launch)
"""


def test_an_error_within_a_kernel_is_reported_although_the_launcher_needs_a_gpu(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    suite = tmp_path / "bench_copied.py"
    suite.write_text(NEEDS_A_GPU)
    checked = check_suite(SuiteSource(suite), RunPlan(device="cpu"), fork_server=fork_server)
    (report,) = checked.reports
    assert report.outcome.is_failure
    assert report.message is not None
    assert "blocks of seven" in report.message
