from collections.abc import Callable
from typing import Any

import pytest
import torch

from collector.accuracy import check_accuracy
from collector.record import Accuracy, Outcome
from roofwatch import KernelSpec, Tolerance, cases
from roofwatch.spec import SpecError

N = 1000


Launch = Callable[..., Any]


def spec_of(launch: Launch, *, dtype: str = "float32", direction: str = "fwd", **fields: Any) -> KernelSpec:
    defaults: dict[str, Any] = {
        "name": "square",
        "inputs": lambda case, make: {"x": make.normal(case["n"])},
        "reference": lambda x: x * x,
        "cases": cases(shapes=[{"n": N}], dtypes=[dtype], directions=[direction]),
        "flop_count": lambda case: case["n"],
        "memory_bytes": lambda case: case["n"],
    }
    spec = KernelSpec(**defaults | fields)
    spec.implementation("torch")(launch)
    return spec


def check(launch: Launch, **fields: Any) -> Accuracy:
    spec = spec_of(launch, **fields)
    return check_accuracy(spec, spec.implementations["eager"], spec.cases[0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_same_operation_passes_in_every_dtype(dtype: str) -> None:
    checked = check(lambda x: x * x, dtype=dtype)
    assert checked.outcome is Outcome.OK, checked.message
    assert [tensor.tensor for tensor in checked.tensors] == ["out"]


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (torch.zeros_like, "error 1.00e+00 of the reference's RMS"),
        (lambda x: x.clone(), "out: error"),
        (lambda x: (x * x).roll(1), "out: error"),
        (lambda x: torch.cat([(x * x)[:-1], torch.zeros(1)]), "out: error"),  # one element not written
        (lambda x: (x * x)[:, None], "shape (1000, 1)"),
        (lambda x: (x * x).long(), "dtype torch.int64"),
        (lambda x: (x * x) / (x - x), "that are NaN or infinite"),
        (lambda x: x.tolist(), "returned list"),
        (lambda x: (x * x, x), "returned out0, out1; the reference returns out"),
        (lambda x: x.mul_(x), "changes its input x"),
        (lambda x: (x * x).half().float(), "out: error"),  # half precision in a float32 kernel
    ],
)
def test_what_is_wrong_is_rejected_and_said(launch: Launch, expected: str) -> None:
    checked = check(launch)
    assert checked.outcome is Outcome.INCORRECT
    assert expected in (checked.message or "")


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
    wrong = check(WrongGradient.apply, direction="bwd")
    assert [tensor.tensor for tensor in right.tensors] == ["out", "grad_x"]
    assert right.outcome is Outcome.OK
    assert wrong.outcome is Outcome.INCORRECT
    assert [tensor.passed for tensor in wrong.tensors] == [True, False]
    assert "grad_x: error 5.00e-01" in (wrong.message or "")


def test_a_result_without_a_graph_has_no_gradient_and_says_what_to_do() -> None:
    checked = check(lambda x: (x * x).detach(), direction="bwd")
    assert checked.outcome is Outcome.INCORRECT
    assert "directions=('fwd',)" in (checked.message or "")


def test_infinities_that_the_reference_has_too_are_right() -> None:
    checked = check(
        lambda x: x.masked_fill(x > 0, float("inf")), reference=lambda x: x.masked_fill(x > 0, float("inf"))
    )
    assert checked.outcome is Outcome.OK, checked.message


def test_an_empty_result_passes() -> None:
    checked = check(lambda x: x * x, cases=cases(shapes=[{"n": 0}]))
    assert checked.outcome is Outcome.OK, checked.message


def test_a_spec_may_set_its_own_tolerance() -> None:
    loose = {"float32": Tolerance(elementwise=1.0, rmse_ratio=0.1)}
    assert check(lambda x: x * x * 1.05).outcome is Outcome.INCORRECT
    assert check(lambda x: x * x * 1.05, tolerances=loose).outcome is Outcome.OK


def test_gradients_of_what_is_no_floating_input_are_refused_by_name() -> None:
    with pytest.raises(SpecError, match="gradients of weight asked for; the floating-point inputs are x"):
        check(lambda x: x * x, direction="bwd", gradients=("weight",))


def test_the_same_case_has_the_same_inputs_and_another_has_others() -> None:
    seen: list[torch.Tensor] = []

    def remember(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x * x

    check(remember)
    check(remember)
    check(remember, cases=cases(shapes=[{"n": N}], dtypes=["float32"], directions=["bwd"]), direction="bwd")
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
