"""Twelve kernels of Liger-Kernel, forward and backward.

They need: pip install liger-kernel==0.8.5
"""

from collections.abc import Callable
from typing import Any

import torch
from liger_kernel import ops
from torch import Tensor
from torch.nn import functional

from roofwatch import Case, InputMaker, KernelSpec, cases

BOTH = ("fwd", "bwd")


def flop_count_of_matrix(case: Case) -> float:
    """Of the order of a norm or an activation: ten operations for each element."""
    elements = case["rows"] * case["cols"]
    # The backward pass recomputes the forward one.
    passes = 1 + case.is_backward
    return 10 * elements * passes


def flop_count_of_loss(case: Case) -> float:
    """A maximum, a subtraction, an exponential, a sum and a logarithm for each logit."""
    return 5 * case["rows"] * case["vocab"]


def memory_bytes_of_loss(case: Case) -> float:
    """The logits are read once; targets and losses are small beside them."""
    return case["rows"] * case["vocab"] * case.itemsize


# What all kernels that map a matrix to a matrix share.
ELEMENTWISE = {
    "cases": cases(
        shapes=[{"rows": 2048, "cols": 4096}],
        dtypes=["float32", "bfloat16"],
        directions=BOTH,
    ),
    # An odd number of rows, and columns that are no power of two.
    "edges": cases(shapes=[{"rows": 3, "cols": 1000}], directions=BOTH),
    # Triton's interpreter is slow.
    "interpreted_shape": {"rows": 4, "cols": 256},
    "flop_count": flop_count_of_matrix,
}
LOSS = {
    # The vocabulary of Llama 2.
    "cases": cases(shapes=[{"rows": 2048, "vocab": 32000}], directions=BOTH),
    "edges": cases(shapes=[{"rows": 3, "vocab": 1000}], directions=BOTH),
    "interpreted_shape": {"rows": 4, "vocab": 500},
    "flop_count": flop_count_of_loss,
    "memory_bytes": memory_bytes_of_loss,
}


def kernel(name: str, launch: Callable, **declared: Any) -> KernelSpec:
    """Declare a kernel of the library; `launch` takes the inputs by name."""
    spec = KernelSpec(
        name=f"liger.{name}",
        family="liger",
        **declared,
    )
    spec.implementation("triton")(launch)
    return spec


def matrices(count: int):
    """Bytes of so many matrices, and of a further one in the backward direction."""

    def memory_bytes(case: Case) -> float:
        elements = case["rows"] * case["cols"]
        return (count + case.is_backward) * elements * case.itemsize

    return memory_bytes


def matrix(case: Case, make: InputMaker) -> Tensor:
    """The input that most of these kernels map to a matrix of the same shape."""
    return make.normal(case["rows"], case["cols"])


def only_matrix(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {"x": matrix(case, make)}


def gate_and_up(case: Case, make: InputMaker) -> dict[str, Tensor]:
    """The two halves of a gated feed-forward layer."""
    return {
        "gate": matrix(case, make),
        "up": matrix(case, make),
    }


def log_probabilities(case: Case, make: InputMaker) -> Tensor:
    """What the divergence compares: rows whose exponentials add up to 1."""
    logits = make.normal(case["rows"], case["vocab"])
    return logits.log_softmax(-1)


def rms_norm_reference(x, weight):
    """Liger's default epsilon is 1e-6; PyTorch's is the smallest number of the dtype."""
    return functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def layer_norm_reference(x, weight, bias):
    return functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-6)


def liger_group_norm(x, weight, bias):
    # The function takes no keywords.
    channels = 32
    groups = 8
    epsilon = 1e-6
    return ops.LigerGroupNormFunction.apply(x, weight, bias, channels, groups, epsilon)


def add_rms_norm_reference(x, residual, weight):
    """Both the norm and the sum are results: the next layer adds to the sum."""
    total = x + residual
    return rms_norm_reference(total, weight), total


def liger_rms_norm(x, weight):
    # The function takes no keywords.
    epsilon = 1e-6
    # Gemma sets it to 1.
    weight_offset = 0.0
    casting = "llama"
    is_in_place = False
    return ops.LigerRMSNormFunction.apply(
        x,
        weight,
        epsilon,
        weight_offset,
        casting,
        is_in_place,
    )


rms_norm = kernel(
    "rms_norm",
    liger_rms_norm,
    inputs=lambda case, make: {
        "x": matrix(case, make),
        "weight": make.normal(case["cols"]),
    },
    reference=rms_norm_reference,
    memory_bytes=matrices(2),
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019",
    **ELEMENTWISE,
)

layer_norm = kernel(
    "layer_norm",
    lambda x, weight, bias: ops.LigerLayerNormFunction.apply(x, weight, bias, 1e-6),
    inputs=lambda case, make: {
        "x": matrix(case, make),
        "weight": make.normal(case["cols"]),
        "bias": make.normal(case["cols"]),
    },
    reference=layer_norm_reference,
    memory_bytes=matrices(2),
    source="Ba et al., Layer Normalization, 2016",
    **ELEMENTWISE,
)

group_norm = kernel(
    "group_norm",
    liger_group_norm,
    inputs=lambda case, make: {
        "x": make.normal(case["rows"], 32, case["cols"]),
        "weight": make.normal(32),
        "bias": make.normal(32),
    },
    reference=lambda x, weight, bias: functional.group_norm(x, 8, weight, bias, 1e-6),
    # The channels are 32 matrices.
    memory_bytes=lambda case: 32 * matrices(2)(case),
    source="Wu and He, Group Normalization, 2018",
    # 32 channels make each row larger.
    **ELEMENTWISE | {"cases": cases(shapes=[{"rows": 16, "cols": 1024}], directions=BOTH)},
)

add_rms_norm = kernel(
    "add_rms_norm",
    lambda x, residual, weight: ops.LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6),
    inputs=lambda case, make: {
        "x": matrix(case, make),
        "residual": matrix(case, make),
        "weight": make.normal(case["cols"]),
    },
    reference=add_rms_norm_reference,
    memory_bytes=matrices(4),
    **ELEMENTWISE,
)

swiglu = kernel(
    "swiglu",
    # Its derivative comes with it: all of these are autograd functions.
    lambda gate, up: ops.LigerSiLUMulFunction.apply(gate, up),
    inputs=gate_and_up,
    reference=lambda gate, up: functional.silu(gate) * up,
    memory_bytes=matrices(3),
    source="Shazeer, GLU Variants Improve Transformer, 2020",
    **ELEMENTWISE,
)

geglu = kernel(
    "geglu",
    lambda gate, up: ops.LigerGELUMulFunction.apply(gate, up),
    inputs=gate_and_up,
    # Liger uses the approximation by tanh, which differs from the exact function by 1e-3.
    reference=lambda gate, up: functional.gelu(gate, approximate="tanh") * up,
    memory_bytes=matrices(3),
    source="Shazeer, GLU Variants Improve Transformer, 2020",
    **ELEMENTWISE,
)

relu_squared = kernel(
    "relu_squared",
    lambda x: ops.LigerReLUSquaredFunction.apply(x),
    inputs=only_matrix,
    reference=lambda x: functional.relu(x) ** 2,
    memory_bytes=matrices(2),
    source="So et al., Primer: Searching for Efficient Transformers, 2021",
    **ELEMENTWISE,
)

softmax = kernel(
    "softmax",
    lambda x: ops.LigerSoftmaxFunction.apply(x),
    inputs=only_matrix,
    reference=lambda x: x.softmax(-1),
    memory_bytes=matrices(2),
    **ELEMENTWISE,
)

dynamic_tanh = kernel(
    "dynamic_tanh",
    lambda x, alpha, gamma, beta: ops.LigerDyTFunction.apply(x, alpha, gamma, beta),
    inputs=lambda case, make: {
        "x": matrix(case, make),
        # One number for the whole layer.
        "alpha": make.normal(1),
        "gamma": make.normal(case["cols"]),
        "beta": make.normal(case["cols"]),
    },
    reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    memory_bytes=matrices(2),
    source="Zhu et al., Transformers without Normalization, 2025",
    **ELEMENTWISE,
)


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate pairs of elements, one from each half of the last dim."""
    low, high = x.chunk(2, -1)
    cos = angle.cos()
    sin = angle.sin()
    rotated_low = low * cos - high * sin
    rotated_high = high * cos + low * sin
    return torch.cat((rotated_low, rotated_high), -1)


def liger_rope(q, k, angle):
    # Liger expects an angle for each element, and rotates its inputs in place.
    angles = torch.cat((angle, angle), -1)
    cos = angles.cos()
    sin = angles.sin()
    return ops.LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)


def rope_inputs(case: Case, make: InputMaker) -> dict[str, Tensor]:
    """Eight heads of queries share two of keys, as in grouped-query attention."""
    length = case["T"]
    head_size = case["D"]
    return {
        "q": make.normal(2, 8, length, head_size),
        "k": make.normal(2, 2, length, head_size),
        "angle": make.uniform(1, length, head_size // 2, low=0, high=6.28),
    }


def rope_elements(case: Case) -> int:
    """Two batches of ten heads."""
    return 2 * 10 * case["T"] * case["D"]


rope = kernel(
    "rope",
    liger_rope,
    inputs=rope_inputs,
    reference=lambda q, k, angle: tuple(rotate(x, angle) for x in (q, k)),
    gradients=("q", "k"),
    cases=cases(shapes=[{"T": 2048, "D": 128}], directions=BOTH),
    interpreted_shape={"T": 8},
    edges=cases(shapes=[{"T": 7, "D": 64}], directions=BOTH),
    # Two products and a sum for each element.
    flop_count=lambda case: 3 * rope_elements(case),
    # Each element is read and written.
    memory_bytes=lambda case: 2 * rope_elements(case) * case.itemsize,
    source="Su et al., RoFormer, 2021",
)


def kl_divergence_reference(predicted, target):
    """PyTorch too takes the logarithms of both."""
    return functional.kl_div(predicted, target, reduction="batchmean", log_target=True)


cross_entropy = kernel(
    "cross_entropy",
    # It overwrites its input with the gradient.
    lambda logits, target: ops.LigerCrossEntropyFunction.apply(logits.clone(), target, None)[0],
    inputs=lambda case, make: {
        "logits": make.normal(case["rows"], case["vocab"]),
        # The index of the right word of each row.
        "target": make.integers(case["rows"], high=case["vocab"]),
    },
    reference=lambda logits, target: functional.cross_entropy(logits, target),
    **LOSS,
)

kl_divergence = kernel(
    "kl_divergence",
    lambda predicted, target: ops.LigerKLDivLossFunction.apply(
        predicted, target, "batchmean", True
    ),
    inputs=lambda case, make: {
        "predicted": log_probabilities(case, make),
        "target": log_probabilities(case, make),
    },
    reference=kl_divergence_reference,
    # The target is a constant in training.
    gradients=("predicted",),
    **LOSS,
)
