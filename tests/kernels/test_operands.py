"""What the launchers refuse: none of these launches anything."""

from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.attention.attention import attention
from roofwatch.kernels.gemm.matmul import matmul
from roofwatch.kernels.mlp.gated_activation import swiglu
from roofwatch.kernels.normalisation.rms_norm import rms_norm
from roofwatch.kernels.reduction.softmax import softmax

SQUARE = torch.zeros(64, 64)
HEADS = torch.zeros(1, 2, 64, 64)
WIDE = torch.zeros(1, 1, 4, 257)
Call = Callable[[torch.Tensor], torch.Tensor]

CALLS: dict[str, tuple[str, torch.Tensor, Call]] = {
    # name of the call: operand that varies, a good value of it, the call
    "softmax": ("x", SQUARE, softmax),
    "rms_norm": ("x", SQUARE, lambda x: rms_norm(x, SQUARE[0])),
    "swiglu gate": ("gate", SQUARE, lambda gate: swiglu(gate, SQUARE)),
    "swiglu up": ("up", SQUARE, lambda up: swiglu(SQUARE, up)),
    "matmul a": ("a", SQUARE, lambda a: matmul(a, SQUARE)),
    "matmul b": ("b", SQUARE, lambda b: matmul(SQUARE, b)),
    "attention q": ("q", HEADS, lambda q: attention(q, HEADS, HEADS)),
    "attention k": ("k", HEADS, lambda k: attention(HEADS, k, HEADS)),
    "attention v": ("v", HEADS, lambda v: attention(HEADS, HEADS, v)),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "matmul b"])  # which may lie transposed
def test_an_operand_that_is_strided_along_its_last_dim_is_refused_by_name(name: str):
    operand, good, call = CALLS[name]
    with pytest.raises(KernelError) as raised:
        call(good.transpose(-1, -2))
    strides = (1, 64) if good.ndim == 2 else (8192, 4096, 1, 64)
    assert str(raised.value) == (
        f"{name.split()[0]}: {operand} must be contiguous along its last dim, got strides {strides}; "
        f"call {operand}.contiguous()"
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_dtype_that_is_not_served_is_refused_with_those_that_are(name: str):
    operand, good, call = CALLS[name]
    with pytest.raises(KernelError, match=rf"{operand} is torch.float64, .*bfloat16; call {operand}\.float\(\)"):
        call(good.double())


@pytest.mark.parametrize("name", CALLS)
def test_another_number_of_dims_is_refused(name: str):
    operand, good, call = CALLS[name]
    with pytest.raises(KernelError, match=rf"{operand} must have {good.ndim} dims, got shape \(1, "):
        call(good[None])


@pytest.mark.parametrize("name", [name for name in CALLS if name != "softmax"])  # which has one operand
def test_operands_on_two_devices_are_refused(name: str):
    _, good, call = CALLS[name]
    with pytest.raises(KernelError, match=r"is on (meta|cpu), .* on (meta|cpu); call"):
        call(good.to("meta"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rms_norm(SQUARE, SQUARE[0, :63]), r"the columns must be equal, got weight \(63,\), x \(64,\)"),
        (lambda: swiglu(SQUARE, SQUARE[:63]), r"the shapes must be equal, got gate \(64, 64\), up \(63, 64\)"),
        (lambda: swiglu(SQUARE, SQUARE.half()), "the dtypes must be equal, got gate torch.float32, up torch.float16"),
        (lambda: matmul(SQUARE, SQUARE[:63]), "a's columns and b's rows must be equal, got a 64, b 63"),
        (lambda: attention(HEADS, HEADS, HEADS[:, :1]), r"the shapes must be equal, .* v \(1, 1, 64, 64\)"),
    ],
)
def test_operands_that_do_not_fit_together_are_refused_with_what_they_have(call, message):
    with pytest.raises(KernelError, match=message):
        call()


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("matmul")])
def test_a_forward_only_kernel_refuses_to_cut_the_autograd_graph(name: str):
    operand, good, call = CALLS[name]
    with pytest.raises(
        KernelError, match=rf"{operand} requires a gradient, .* forward only; call it under torch.no_grad"
    ):
        call(good.clone().requires_grad_())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention(WIDE, WIDE, WIDE), "257 dims, at most 256 .*call torch"),
    ],
)
def test_more_than_the_registers_hold_is_refused_with_what_to_call_instead(call, message):
    with pytest.raises(KernelError, match=message):
        call()
