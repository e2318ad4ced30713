"""Rejected operands and the messages: nothing here is launched."""

import pytest
import torch
from torch import Tensor

from roofwatch import InputMaker, KernelSpec
from roofwatch.kernels.attention.attention import attention
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.gemm.matmul import matmul
from roofwatch.kernels.mlp import geglu, swiglu
from roofwatch.kernels.normalisation.rms_norm import rms_norm
from roofwatch.kernels.reduction.softmax import softmax
from tests.kernels.test_suite import launched_alone, smallest

SQUARE = torch.zeros(64, 64)
HEADS = torch.zeros(1, 2, 64, 64)
UNREAD = {("block_sparse_matmul", "weight"), ("matmul_2_4", "weight")}
OF_ANY_SHAPE = {"key_scale", "value_scale"}


def of_another_dtype(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value.to(torch.int16)


def with_another_dim(value: Tensor) -> Tensor:
    return value[None]


def on_another_device(value: Tensor) -> Tensor:
    return value.to("meta")


@pytest.mark.parametrize("change", [of_another_dtype, with_another_dim, on_another_device])
@pytest.mark.parametrize("spec", launched_alone(), ids=lambda spec: spec.name)
def test_every_kernel_rejects_an_operand_of_another_dtype_rank_or_device(spec: KernelSpec, change):
    made = spec.inputs(smallest(spec), InputMaker(smallest(spec)))
    read = {
        name: value
        for name, value in made.items()
        if isinstance(value, Tensor) and (spec.name, name) not in UNREAD
    }
    for name, value in read.items():
        if (change is with_another_dim and name in OF_ANY_SHAPE) or (
            change is on_another_device and len(read) == 1
        ):
            continue
        with pytest.raises(KernelError, match=f"^{spec.name}: "):
            spec.implementations["triton"].launch(**{**made, name: change(value)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: softmax(SQUARE.t()),
            r"softmax: x must be contiguous along its last dim, got strides \(1, 64\); call "
            r"x.contiguous\(\)",
        ),
        (
            lambda: softmax(SQUARE.double()),
            r"x is torch.float64, must be one of .*bfloat16; call x\.float\(\)",
        ),
        (
            lambda: matmul(SQUARE, SQUARE[None]),
            r"b must have 2 dims, got shape \(1, 64, 64\); call b.reshape",
        ),
        (lambda: matmul(SQUARE, SQUARE.to("meta")), r"b is on meta, a on cpu; call b.to\('cpu'\)"),
        (
            lambda: rms_norm(SQUARE, SQUARE[0, :63]),
            r"the columns must be equal, got weight \(63,\), x \(64,\)",
        ),
        (
            lambda: swiglu(SQUARE, SQUARE[:63]),
            r"the shapes must be equal, got gate \(64, 64\), up \(63, 64\)",
        ),
        (
            lambda: geglu(SQUARE, SQUARE.half()),
            "geglu: the dtypes must be equal, got gate torch.float32, up",
        ),
        (
            lambda: matmul(SQUARE, SQUARE[:63]),
            "a's columns and b's rows must be equal, got a 64, b 63",
        ),
        (
            lambda: attention(HEADS, HEADS, HEADS[:, :1]),
            r"the shapes must be equal, .* v \(1, 1, 64, 64\)",
        ),
        (
            lambda: matmul(SQUARE, SQUARE.clone().requires_grad_()),
            r"b requires a gradient, .* forward only; call it under torch.no_grad\(\) or pass "
            r"b.detach\(\)",
        ),
    ],
)
def test_a_message_names_the_operand_and_the_way_out(call, message: str):
    with pytest.raises(KernelError, match=message):
        call()
