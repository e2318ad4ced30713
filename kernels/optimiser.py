"""One AdamW step of all parameters of a flat buffer, in mixed precision, in one launch.

The master weights and both moments are float32, the gradients have the model's dtype. The step
writes new master weights, new moments and the model's weights: 28 bytes per parameter in half
precision. Parameters of a group lie in one buffer, as in fully sharded data parallelism, so a
model needs as many launches as groups.

Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2017 (arXiv 1711.05101),
algorithm 2; Micikevicius et al., Mixed Precision Training, 2017 (arXiv 1710.03740), for the master
weights.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    Workload,
    model_cases,
    small_cases,
    weight_matrices,
)

_BLOCK = 1024
_STEP = 10
_LEARNING_RATE = 3e-4
_BETAS = (0.9, 0.95)
_EPSILON = 1e-8
_WEIGHT_DECAY = 0.1
"""Of Llama 2. Source: Touvron et al., 2023 (arXiv 2307.09288), section 2.2."""


@triton.jit
def _adamw_kernel(
    master_ptr,
    grad_ptr,
    mean_ptr,
    square_ptr,
    new_master_ptr,
    new_mean_ptr,
    new_square_ptr,
    weight_ptr,
    n,
    beta1,
    beta2,
    decay_factor,
    step_size,
    square_factor,
    epsilon,
    BLOCK: tl.constexpr,
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    master = tl.load(master_ptr + offs, mask=mask, other=0.0)  # [BLOCK]
    grad = tl.load(grad_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    mean = tl.load(mean_ptr + offs, mask=mask, other=0.0)  # [BLOCK]
    square = tl.load(square_ptr + offs, mask=mask, other=0.0)  # [BLOCK]
    mean += (1.0 - beta1) * (grad - mean)
    square += (1.0 - beta2) * (grad * grad - square)
    master = master * decay_factor - step_size * mean / (tl.sqrt(square * square_factor) + epsilon)
    tl.store(new_master_ptr + offs, master, mask=mask)  # [BLOCK]
    tl.store(new_mean_ptr + offs, mean, mask=mask)  # [BLOCK]
    tl.store(new_square_ptr + offs, square, mask=mask)  # [BLOCK]
    tl.store(weight_ptr + offs, master.to(weight_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def _launch(master, grad, mean, square, step, learning_rate, results):
    n = master.numel()
    beta1, beta2 = _BETAS
    _adamw_kernel[(triton.cdiv(n, _BLOCK),)](
        master,
        grad,
        mean,
        square,
        *results,
        n,
        beta1,
        beta2,
        1.0 - learning_rate * _WEIGHT_DECAY,
        learning_rate / (1.0 - beta1**step),
        1.0 / (1.0 - beta2**step),
        _EPSILON,
        BLOCK=_BLOCK,
        num_warps=4,
    )


def _empty_results(
    master: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int, learning_rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    master_out, mean_out, square_out = (master.new_empty(master.shape) for _ in range(3))
    return master_out, mean_out, square_out, grad.new_empty(grad.shape)


@operator("fused_adamw", _empty_results)
def _fused_adamw_op(
    master, grad, mean, square, step, learning_rate, new_master, new_mean, new_square, weight
):
    results = new_master, new_mean, new_square, weight
    _launch(master, grad, mean, square, step, learning_rate, results)


def fused_adamw_reference(
    master: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int, learning_rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute algorithm 2 of the paper: moments, their bias corrections, decay and step."""
    beta1, beta2 = _BETAS
    new_mean = beta1 * mean + (1 - beta1) * grad
    new_square = beta2 * square + (1 - beta2) * grad**2
    unbiased_mean = new_mean / (1 - beta1**step)
    unbiased_square = new_square / (1 - beta2**step)
    update = unbiased_mean / (unbiased_square.sqrt() + _EPSILON) + _WEIGHT_DECAY * master
    new_master = master - learning_rate * update
    return new_master, new_mean, new_square, new_master


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n = case["n"]
    return {
        "master": make.normal(n, dtype="float32"),
        "grad": make.normal(n),
        "mean": make.normal(n, scale=0.1, dtype="float32"),
        "square": make.uniform(n, low=0.01, high=1.0, dtype="float32"),
        "step": _STEP,
        "learning_rate": _LEARNING_RATE,
    }


def fused_adamw_flop_count(case: Case) -> float:
    """Count per parameter: subtract, multiply and add for the first moment, one multiplication more
    for the second; multiply, root and add for the divisor; two multiplications, a division and a
    subtraction for the step.
    """
    return (3 + 4 + 3 + 4) * case["n"]


def fused_adamw_memory_bytes(case: Case) -> float:
    """Reads gradient, master weight and both moments; writes these three and the weight."""
    return case["n"] * (6 * 4 + 2 * case.itemsize)


def _largest_weights() -> list[Workload]:
    """`n` parameters of the gate and up projections of a layer."""
    return [
        Workload({"n": int(weight.shape["M"]) * int(weight.shape["N"])}, weight.tags)
        for weight in weight_matrices()
    ]


fused_adamw_spec = KernelSpec(
    name="fused_adamw",
    family="optimiser",
    inputs=_inputs,
    reference=fused_adamw_reference,
    cases=[
        *small_cases({"n": 2**20}, dtypes=["bfloat16"]),
        *model_cases(_largest_weights()),
    ],
    edges=[
        *cases(shapes=[{"n": 1}, {"n": 0}, {"n": 1025}], dtypes=["bfloat16"]),
        *cases(shapes=[{"n": 1000}], dtypes=["float16", "float32"]),
    ],
    flop_count=fused_adamw_flop_count,
    memory_bytes=fused_adamw_memory_bytes,
    formula="m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²; "
    "w -= lr (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + decay w)",
    source="Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2017 (arXiv 1711.05101)",
    interpreted_shape={"n": 3000},
)


@fused_adamw_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fused_adamw(
    master: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int, learning_rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return new master weights and moments of one AdamW step, and the weights in grad's dtype.

    Args:
        master: [n] float32, contiguous.
        grad: [n], contiguous.
        mean: [n] float32, contiguous, first moment.
        square: [n] float32, contiguous, second moment, not negative.
        step: Number of this step, from 1, for the bias corrections.
        learning_rate: Also scales the weight decay.

    Returns:
        Master weights, first and second moment, [n] float32; weights [n] in grad's dtype.
    """
    _require_parameters(master, grad, mean, square, step)
    return _fused_adamw_op(master, grad, mean, square, step, learning_rate)


def fused_adamw_(
    master: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    weight: Tensor,
    *,
    step: int,
    learning_rate: float,
) -> None:
    """As `fused_adamw`, in place: updates master weights and moments, and writes `weight`, [n] of
    grad's dtype.
    """
    _require_parameters(master, grad, mean, square, step)
    require_equal("fused_adamw_", "the dtypes", weight=weight.dtype, grad=grad.dtype)
    require_equal("fused_adamw_", "the lengths", weight=weight.shape, grad=grad.shape)
    require_contiguous("fused_adamw_", weight=weight)
    if master.numel():
        with torch.cuda.device_of(master):
            results = master, mean, square, weight
            _launch(master, grad, mean, square, step, learning_rate, results)


def _require_parameters(
    master: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int
) -> None:
    name = "fused_adamw"
    wide = {"master": master, "mean": mean, "square": square}
    require_operands(name, dims=1, dtypes=(torch.float32,), **wide)
    require_operands(name, dims=1, grad=grad, master=master)
    require_equal(name, "the lengths", grad=len(grad), **{key: len(wide[key]) for key in wide})
    if step < 1:
        raise KernelError(f"{name}: step is {step}, must be at least 1; count steps from 1")


@fused_adamw_spec.implementation("torch", directions=["fwd"], compile=True)
def _fused_adamw_torch(
    master: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: int, learning_rate: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    beta1, beta2 = _BETAS
    wide = grad.float()
    new_mean = mean.lerp(wide, 1 - beta1)
    new_square = square.lerp(wide * wide, 1 - beta2)
    divisor = (new_square / (1 - beta2**step)).sqrt() + _EPSILON
    decayed = master * (1 - learning_rate * _WEIGHT_DECAY)
    new_master = torch.addcdiv(decayed, new_mean, divisor, value=-learning_rate / (1 - beta1**step))
    return new_master, new_mean, new_square, new_master.to(grad.dtype)
