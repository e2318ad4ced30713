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
ELEMENTWISE = {
    "cases": cases(
        shapes=[{"rows": 2048, "cols": 4096}], dtypes=["float32", "bfloat16"], directions=BOTH
    ),
    "edges": cases(shapes=[{"rows": 3, "cols": 1000}], directions=BOTH),
    "interpreted_shape": {"rows": 4, "cols": 256},
    # of the order of a norm or an activation
    "flop_count": lambda case: 10 * case["rows"] * case["cols"] * (1 + case.is_backward),
}
LOSS = {
    "cases": cases(shapes=[{"rows": 2048, "vocab": 32000}], directions=BOTH),
    "edges": cases(shapes=[{"rows": 3, "vocab": 1000}], directions=BOTH),
    "interpreted_shape": {"rows": 4, "vocab": 500},
    "flop_count": lambda case: 5 * case["rows"] * case["vocab"],
    "memory_bytes": lambda case: case["rows"] * case["vocab"] * case.itemsize,
}


def kernel(name: str, launch: Callable, **declared: Any) -> KernelSpec:
    """Declare a kernel of the library; `launch` takes the inputs by name."""
    spec = KernelSpec(name=f"liger.{name}", family="liger", **declared)
    spec.implementation("triton")(launch)
    return spec


def matrices(count: int):
    """Bytes of so many matrices, and of a further one in the backward direction."""
    return lambda case: (count + case.is_backward) * case["rows"] * case["cols"] * case.itemsize


def matrix(case: Case, make: InputMaker) -> Tensor:
    return make.normal(case["rows"], case["cols"])


def log_probabilities(case: Case, make: InputMaker) -> Tensor:
    return make.normal(case["rows"], case["vocab"]).log_softmax(-1)


rms_norm = kernel(
    "rms_norm",
    lambda x, weight: ops.LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False),
    inputs=lambda case, make: {"x": matrix(case, make), "weight": make.normal(case["cols"])},
    reference=lambda x, weight: functional.rms_norm(x, x.shape[-1:], weight, 1e-6),
    memory_bytes=matrices(2),
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
    reference=lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-6),
    memory_bytes=matrices(2),
    **ELEMENTWISE,
)

group_norm = kernel(
    "group_norm",
    lambda x, weight, bias: ops.LigerGroupNormFunction.apply(x, weight, bias, 32, 8, 1e-6),
    inputs=lambda case, make: {
        "x": make.normal(case["rows"], 32, case["cols"]),
        "weight": make.normal(32),
        "bias": make.normal(32),
    },
    reference=lambda x, weight, bias: functional.group_norm(x, 8, weight, bias, 1e-6),
    memory_bytes=lambda case: 32 * matrices(2)(case),
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
    reference=lambda x, residual, weight: (
        functional.rms_norm(x + residual, x.shape[-1:], weight, 1e-6),
        x + residual,
    ),
    memory_bytes=matrices(4),
    **ELEMENTWISE,
)

swiglu = kernel(
    "swiglu",
    lambda gate, up: ops.LigerSiLUMulFunction.apply(gate, up),
    inputs=lambda case, make: {"gate": matrix(case, make), "up": matrix(case, make)},
    reference=lambda gate, up: functional.silu(gate) * up,
    memory_bytes=matrices(3),
    **ELEMENTWISE,
)

geglu = kernel(
    "geglu",
    lambda gate, up: ops.LigerGELUMulFunction.apply(gate, up),
    inputs=lambda case, make: {"gate": matrix(case, make), "up": matrix(case, make)},
    reference=lambda gate, up: functional.gelu(gate, approximate="tanh") * up,
    memory_bytes=matrices(3),
    **ELEMENTWISE,
)

relu_squared = kernel(
    "relu_squared",
    lambda x: ops.LigerReLUSquaredFunction.apply(x),
    inputs=lambda case, make: {"x": matrix(case, make)},
    reference=lambda x: functional.relu(x) ** 2,
    memory_bytes=matrices(2),
    **ELEMENTWISE,
)

softmax = kernel(
    "softmax",
    lambda x: ops.LigerSoftmaxFunction.apply(x),
    inputs=lambda case, make: {"x": matrix(case, make)},
    reference=lambda x: x.softmax(-1),
    memory_bytes=matrices(2),
    **ELEMENTWISE,
)

dynamic_tanh = kernel(
    "dynamic_tanh",
    lambda x, alpha, gamma, beta: ops.LigerDyTFunction.apply(x, alpha, gamma, beta),
    inputs=lambda case, make: {
        "x": matrix(case, make),
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
    low, high = x.chunk(2, -1)
    return torch.cat(
        (low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), -1
    )


def liger_rope(q, k, angle):
    cos, sin = (torch.cat((part, part), -1) for part in (angle.cos(), angle.sin()))
    return ops.LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)


rope = kernel(
    "rope",
    liger_rope,
    inputs=lambda case, make: {
        "q": make.normal(2, 8, case["T"], case["D"]),
        "k": make.normal(2, 2, case["T"], case["D"]),
        "angle": make.uniform(1, case["T"], case["D"] // 2, low=0, high=6.28),
    },
    reference=lambda q, k, angle: tuple(rotate(x, angle) for x in (q, k)),
    gradients=("q", "k"),
    cases=cases(shapes=[{"T": 2048, "D": 128}], directions=BOTH),
    interpreted_shape={"T": 8},
    edges=cases(shapes=[{"T": 7, "D": 64}], directions=BOTH),
    flop_count=lambda case: 2 * 10 * case["T"] * case["D"] * 3,
    memory_bytes=lambda case: 2 * 10 * case["T"] * case["D"] * 2 * case.itemsize,
)

cross_entropy = kernel(
    "cross_entropy",
    # it overwrites its input with the gradient
    lambda logits, target: ops.LigerCrossEntropyFunction.apply(logits.clone(), target, None)[0],
    inputs=lambda case, make: {
        "logits": make.normal(case["rows"], case["vocab"]),
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
    reference=lambda predicted, target: functional.kl_div(
        predicted, target, reduction="batchmean", log_target=True
    ),
    gradients=("predicted",),
    **LOSS,
)
