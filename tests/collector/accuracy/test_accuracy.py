"""What the check before timing lets pass and what it rejects, shown with kernels that are really
so.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from roofwatch import Case, InputMaker, KernelSpec, Tolerance, cases
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.model.check_report import Arrangement, CheckReport, Layout
from roofwatch.model.machine import Outcome
from roofwatch.model.regime import Regime
from roofwatch.spec import (
    BASELINE_FACTOR,
    TOLERANCES,
    Direction,
    Implementation,
    Language,
    SpecError,
)
from tests.roofwatch.spec.test_spec import declare

N = 1000
UPSTREAM_TRANSPOSED = Layout(tensor="upstream", arrangement=Arrangement.TRANSPOSED)
UPSTREAM_EXPANDED = Layout(tensor="upstream", arrangement=Arrangement.EXPANDED)

Launch = Callable[..., Any]


def spec_of(
    launch: Launch, *, dtype: str = "float32", direction: str = "fwd", **fields: Any
) -> KernelSpec:
    declared = cases(shapes=[{"n": N}], dtypes=[dtype], directions=[direction])
    spec = declare(**{"reference": lambda x: x * x, "cases": declared} | fields)
    spec.implementation("torch")(launch)
    return spec


def check(launch: Launch, **fields: Any) -> CheckReport:
    spec = spec_of(launch, **fields)
    return check_case(spec, spec.cases[0], spec.implementations["torch"], CheckCache())


def check_beside_eager(
    launch: Launch, eager: Launch = lambda x: x * x, **fields: Any
) -> CheckReport:
    """Check a launch against the eager baseline that the spec has."""
    spec = spec_of(eager, **fields)
    language = Language.TRITON  # so that its buffers are poisoned
    candidate = Implementation("candidate", language, launch, frozenset(Direction))
    return check_case(spec, spec.cases[0], candidate, CheckCache())


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (torch.zeros_like, "out is zero everywhere"),
        (lambda x: x.clone(), "out: RMS error"),
        (lambda x: (x * x).roll(1), "out: RMS error"),
        (
            lambda x: torch.cat([(x * x)[:-1], torch.zeros(1)]),
            "out: RMS error",
        ),  # one element not written
        (lambda x: (x * x)[:, None], "shape (1000, 1)"),
        (lambda x: (x * x).long(), "dtype torch.int64"),
        (lambda x: x.tolist(), "returned list"),
        (lambda x: (x * x, x), "returned out0, out1; the reference returns out"),
        (lambda x: x.mul_(x), "changes its input x"),
        (lambda x: (x * x).half().float(), "out: RMS error"),  # half precision in a float32 kernel
        (
            lambda x: (x * x).half(),
            "out has dtype torch.float16; the torch implementation has torch.float32",
        ),
        (torch.empty_like, "1000 of 1000 elements are NaN or infinite on one side only"),
        (
            lambda x: torch.empty_like(x).index_copy_(0, torch.arange(N - 8), (x * x)[:-8]),
            "the first at (992,)",
        ),
        (lambda x: (x * x).masked_fill(x > 2, torch.inf), "are NaN or infinite on one side only"),
        (lambda x: (x * x).to("meta"), "out is on meta; the inputs are on cpu"),
    ],
)
def test_a_wrong_result_is_rejected_with_a_reason(launch: Launch, expected: str) -> None:
    checked = check_beside_eager(launch)
    assert checked.outcome is Outcome.INCORRECT
    assert expected in (checked.message or "")


@pytest.mark.parametrize(
    ("dtype", "is_wrong"), [(torch.float64, True), (torch.float32, False), (torch.float16, False)]
)
def test_an_accidental_float64_is_wrong_without_a_torch_implementation_too(
    dtype: torch.dtype, is_wrong: bool
) -> None:
    spec = declare(reference=lambda x: x * x, cases=cases(shapes=[{"n": N}]))
    spec.implementation("torch", name="mine")(lambda x: (x.half() * x.half()).to(dtype))
    (implementation,) = spec.implementations.values()

    checked = check_case(spec, spec.cases[0], implementation, CheckCache())

    complaint = "out has dtype torch.float64; the inputs have torch.float32"
    assert (complaint in (checked.message or "")) == is_wrong


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x


def test_every_gradient_is_compared() -> None:
    right = check(lambda x: x * x, direction="bwd")
    # torch 2.11 takes no keyword arguments there
    wrong = check(lambda x: WrongGradient.apply(x), direction="bwd")  # type: ignore[no-untyped-call]
    assert [tensor.tensor for tensor in right.tensors] == ["out", "grad_x"]
    assert right.outcome is Outcome.OK
    assert wrong.outcome is Outcome.INCORRECT
    assert [tensor.passed for tensor in wrong.tensors] == [True, False]
    assert "grad_x: RMS error 5.00e-01" in (wrong.message or "")


def test_a_result_without_a_graph_is_rejected_with_a_remedy() -> None:
    without_graph = check(lambda x: (x * x).detach(), direction="bwd")
    assert without_graph.outcome is Outcome.INCORRECT
    assert "directions=('fwd',)" in (without_graph.message or "")


def test_a_spec_may_set_its_own_tolerance() -> None:
    loose = {"float32": Tolerance(elementwise=1.0, rmse_ratio=0.1)}
    assert check(lambda x: x * x * 1.05).outcome is Outcome.INCORRECT
    assert check(lambda x: x * x * 1.05, tolerances=loose).outcome is Outcome.OK


def test_an_rms_error_beyond_the_limit_is_explained_as_low_precision() -> None:
    signs = torch.tensor([1, -1]).repeat(N // 2)
    (tensor,) = check(lambda x: x * x + 5e-5 * signs).tensors
    assert tensor.errors.elementwise < tensor.limits.elementwise
    assert tensor.errors.rmse_ratio > tensor.limits.rmse_ratio
    assert tensor.wrong_count > N / 2
    assert "precision too low" in (tensor.values or "")


def test_only_floating_point_inputs_have_gradients() -> None:
    with pytest.raises(
        SpecError, match="cannot differentiate weight; the floating-point inputs are x"
    ):
        check(lambda x: x * x, direction="bwd", gradients=("weight",))


LOW_PRECISION = ["float32", "float16", "bfloat16"]


RIGHT_LAUNCHES: tuple[Launch, ...] = (
    lambda x: x * x,
    lambda x: (x.double() * x.double()).to(x.dtype),
    lambda x: (x.float() ** 2).to(x),
)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_an_error_like_that_of_the_eager_baseline_passes(dtype: str) -> None:
    for launch in RIGHT_LAUNCHES:
        checked = check_beside_eager(launch, dtype=dtype)
        assert checked.outcome is Outcome.OK, checked.message
        assert checked.tensors[0].baseline is not None


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_an_empty_result_passes(dtype: str) -> None:
    for launch in RIGHT_LAUNCHES:
        empty = check_beside_eager(launch, cases=cases(shapes=[{"n": 0}], dtypes=[dtype]))
        assert empty.outcome is Outcome.OK, empty.message


def off_by(share: float) -> Launch:
    """Wrong by a share of each element, in random directions."""
    signs = torch.randint(0, 2, (N,), generator=torch.Generator().manual_seed(0)) * 2 - 1
    return lambda x: (x.double() ** 2 * (1 + share * signs)).to(x.dtype)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_the_limit_is_twice_the_baseline_plus_the_floor_up_to_the_cap(dtype: str) -> None:
    tolerance = TOLERANCES[dtype]
    exact = lambda x: (x.double() ** 2).to(x.dtype)  # noqa: E731  an eager that is as good as its dtype allows
    baseline = check_beside_eager(exact, exact, dtype=dtype).tensors[0].errors.rmse_ratio
    limit = min(BASELINE_FACTOR * baseline + tolerance.rmse_floor, tolerance.rmse_ratio)
    within, beyond = (
        check_beside_eager(off_by(share * limit), exact, dtype=dtype) for share in (0.7, 1.3)
    )
    assert within.outcome is Outcome.OK, within.message
    assert beyond.outcome is Outcome.INCORRECT

    poor = off_by(0.8 * tolerance.rmse_ratio)  # an eager that is nearly as bad as can be borne
    capped = check_beside_eager(off_by(1.2 * tolerance.rmse_ratio), poor, dtype=dtype)
    assert capped.outcome is Outcome.INCORRECT
    assert "the cap; torch has" in (capped.message or "")


@pytest.mark.parametrize(
    ("eager", "why"),
    [
        (lambda x: x[N + 1], "the torch implementation failed: IndexError"),
        (
            lambda x: (x * x)[:, None],
            "the torch implementation returns other tensors than the reference",
        ),
    ],
)
def test_without_a_baseline_only_the_caps_apply(eager: Launch, why: str) -> None:
    assert check_beside_eager(off_by(1e-5), eager).outcome is Outcome.OK
    beyond = check_beside_eager(off_by(1e-3), eager)
    assert beyond.outcome is Outcome.INCORRECT
    assert f"only the caps apply because {why}" in (beyond.message or "")


def test_inputs_that_an_implementation_changed_are_restored_for_the_next() -> None:
    spec = spec_of(lambda x: 2 * x, reference=lambda x: 2 * x)
    spec.implementation("torch", name="in_place")(lambda x: x.mul_(2))
    cache = CheckCache()

    in_place = check_case(spec, spec.cases[0], spec.implementations["in_place"], cache)
    after_it = check_case(spec, spec.cases[0], spec.implementations["torch"], cache)

    assert in_place.outcome is Outcome.INCORRECT
    assert after_it.outcome is Outcome.OK


def test_the_reference_of_a_case_is_evaluated_once() -> None:
    evaluated = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        evaluated.append(x)
        return 2 * x

    spec = spec_of(lambda x: 2 * x, reference=reference)
    spec.implementation("torch", name="in_place")(lambda x: x.mul_(2))
    cache = CheckCache()

    for name in ("in_place", "torch"):
        check_case(spec, spec.cases[0], spec.implementations[name], cache)

    assert len(evaluated) == 1
    cache.free()
    cache.prepare(spec, spec.cases[0], "cpu")
    assert len(evaluated) == 2


def test_numbers_of_a_case_are_drawn_once_for_all_implementations_and_variations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_counts: list[int] = []
    original = torch.randn

    def counted(length: int, **options: Any) -> torch.Tensor:
        drawn_counts.append(length)
        return original(length, **options)

    spec = spec_of(lambda x: x * x, direction="bwd", inputs=matrix)
    spec.implementation("torch", name="promising", deterministic=True)(lambda x: x.pow(2))
    spec.implementation("torch", name="upcasting")(lambda x: x.double().square().float())
    cache = CheckCache()
    monkeypatch.setattr(torch, "randn", counted)

    for implementation in spec.implementations.values():
        check = partial(check_case, spec, spec.cases[0], implementation, cache)
        for layout in (None, UPSTREAM_TRANSPOSED, UPSTREAM_EXPANDED):
            assert check(layout=layout).outcome is Outcome.OK
        assert check(regime=Regime.SPARSE).outcome is Outcome.OK

    # the input, and its upstream gradient
    assert drawn_counts == [4 * N, 4 * N]


def matrix(case: Case, make: InputMaker) -> dict[str, torch.Tensor]:
    return {"x": make.normal(4, case["n"])}


def test_an_implementation_cannot_change_the_upstream_gradient_of_the_next() -> None:
    spec = spec_of(lambda x: x * x, direction="bwd")
    spec.implementation("torch", name="scales_in_place")(ScalesUpstream.apply)
    cache = CheckCache()

    outcomes = [
        check_case(spec, spec.cases[0], spec.implementations[name], cache).outcome
        for name in ("scales_in_place", "torch")
    ]

    assert outcomes == [Outcome.OK, Outcome.OK]


class ScalesUpstream(torch.autograd.Function):
    """The square, whose gradient is written over the upstream gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return upstream.mul_(2 * x)


def test_a_result_of_a_wrong_shape_is_explained_in_the_backward_direction_too() -> None:
    spec = spec_of(lambda x: x * x, direction="bwd")
    spec.implementation("torch", name="shorter")(lambda x: (x * x)[1:])
    cache = CheckCache()

    report = check_case(spec, spec.cases[0], spec.implementations["shorter"], cache)

    assert report.outcome is Outcome.INCORRECT
    assert report.message == f"out has shape ({N - 1},); the reference has ({N},)"


def test_a_case_is_freed_with_everything_that_was_drawn_for_it() -> None:
    spec = spec_of(lambda x: x * x, direction="bwd")
    cache = CheckCache()
    prepared = cache.prepare(spec, spec.cases[0], "cpu")
    upstream = prepared.upstream.of({"out": prepared.expected["out"].requires_grad_(True)})
    references = [
        weakref.ref(tensor)
        for tensor in (*prepared.inputs.values(), *prepared.expected.values(), *upstream)
    ]
    references.append(weakref.ref(prepared.upstream))
    del prepared, upstream

    cache.free()

    assert [reference() for reference in references] == [None] * 5


def deterministic(launch: Launch) -> CheckReport:
    spec = spec_of(lambda x: x * x)
    promising = Implementation(
        "promising", Language.TORCH, launch, frozenset(Direction), is_deterministic=True
    )
    return check_case(spec, spec.cases[0], promising, CheckCache())


def test_a_deterministic_implementation_must_repeat_its_bits() -> None:
    checked = deterministic(lambda x: x * x * (1 + 1e-6 * torch.rand_like(x)))
    assert checked.outcome is Outcome.INCORRECT
    assert "declared deterministic, but a second run differs in" in (checked.message or "")
    assert deterministic(lambda x: x * x).outcome is Outcome.OK


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """To 8 bits, and which elements are large."""
    return (x.float() * 30).to(torch.float8_e4m3fn), x.float() > 1


def test_an_output_of_lower_precision_has_a_wider_limit() -> None:
    fields = {"reference": lambda x: (x * 30, x > 1), "dtype": "bfloat16"}

    def at_the_neighbour(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, large = quantised(x)
        bits = values.view(torch.uint8).clone()
        bits[: N // 200] += 1
        return bits.view(torch.float8_e4m3fn), large

    def one_flag_wrong(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, large = quantised(x)
        return values, large ^ (torch.arange(N) == 7)

    assert check_beside_eager(quantised, quantised, **fields).outcome is Outcome.OK
    assert check_beside_eager(at_the_neighbour, quantised, **fields).outcome is Outcome.OK
    far_off = check_beside_eager(lambda x: (quantised(1.1 * x)[0], x > 1), quantised, **fields)
    assert far_off.outcome is Outcome.INCORRECT
    wrong = check_beside_eager(one_flag_wrong, quantised, **fields)
    assert (wrong.message or "").startswith("out1: RMS error")
