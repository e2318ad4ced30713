"""Kernels of Liger-Kernel at sizes where a release was wrong."""

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases


def apply(module: str, function: str, *arguments: Any) -> Any:
    """Call an autograd function of the release that is on the import path."""
    return getattr(import_module(f"liger_kernel.ops.{module}"), function).apply(*arguments)


def elementwise(name: str, inputs: list[str], reference: Any, launch: Any, **shape: int) -> None:
    """Declare a function of matrices, at a small and a large size."""

    def make_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        return {key: make.normal(case["n_rows"], case["n_cols"]) for key in inputs}

    spec = declare(name, make_inputs, reference, shape, n_rows=4, n_cols=96)
    spec.implementation("triton")(launch)


def declare(
    name: str, make_inputs: Any, reference: Any, large: dict[str, int], **small: int
) -> KernelSpec:
    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=[
            *cases(shapes=[small], dtypes=["bfloat16"], directions=["fwd", "bwd"], tags=["quick"]),
            *cases(shapes=[large], dtypes=["bfloat16"], directions=["fwd", "bwd"], tags=["large"]),
        ],
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
        interpreted_shape=small,
    )
    globals()[name] = spec
    return spec


elementwise(
    "swiglu",
    ["a", "b"],
    lambda a, b: F.silu(a) * b,
    lambda a, b: apply("swiglu", "LigerSiLUMulFunction", a, b),
    n_rows=262_144,
    n_cols=14_336,
)
elementwise(
    "geglu",
    ["a", "b"],
    lambda a, b: F.gelu(a, approximate="tanh") * b,
    lambda a, b: apply("geglu", "LigerGELUMulFunction", a, b),
    n_rows=262_144,
    n_cols=14_336,
)
elementwise(
    "softmax",
    ["x"],
    lambda x: torch.softmax(x, -1),
    lambda x: apply("softmax", "LigerSoftmaxFunction", x),
    n_rows=65_536,
    n_cols=65_536,
)
elementwise(
    "sparsemax",
    ["x"],
    lambda x: x,
    lambda x: apply("sparsemax", "LigerSparsemaxFunction", x, -1),
    n_rows=131_072,
    n_cols=32_768,
)


def norm_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.weights(case["n_cols"]),
    }


rms = declare(
    "rms_norm",
    norm_inputs,
    lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
    {"n_rows": 1_000_000, "n_cols": 4_096},
    n_rows=4,
    n_cols=96,
)
rms.implementation("triton")(
    lambda x, weight: apply("rms_norm", "LigerRMSNormFunction", x, weight, 1e-6)
)
rms_rows = declare(
    "rms_norm_rows",
    norm_inputs,
    lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
    {"n_rows": 16_777_216, "n_cols": 256},
    n_rows=4,
    n_cols=96,
)
rms_rows.implementation("triton")(
    lambda x, weight: apply("rms_norm", "LigerRMSNormFunction", x, weight, 1e-6)
)


def layer_norm_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {**norm_inputs(case, make), "bias": make.weights(case["n_cols"])}


layer = declare(
    "layer_norm",
    layer_norm_inputs,
    lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-6),
    {"n_rows": 1_000_000, "n_cols": 4_096},
    n_rows=4,
    n_cols=96,
)
layer.implementation("triton")(
    lambda x, weight, bias: apply("layer_norm", "LigerLayerNormFunction", x, weight, bias, 1e-6)
)


def dyt_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.gates(case["n_rows"], case["n_cols"]),
        "alpha": make.weights(1),
        "gamma": make.weights(case["n_cols"]),
        "beta": make.weights(case["n_cols"]),
    }


dyt = declare(
    "dyt",
    dyt_inputs,
    lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    {"n_rows": 60_000, "n_cols": 65_536},
    n_rows=4,
    n_cols=96,
)
dyt.implementation("triton")(
    lambda x, alpha, gamma, beta: apply("dyt", "LigerDyTFunction", x, alpha, gamma, beta)
)


def rope_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    batch, tokens, heads = case["batch"], case["tokens"], case["heads"]
    return {
        "q": make.normal(batch, heads, tokens, 128),
        "k": make.normal(batch, heads, tokens, 128),
        "cos": make.weights(1, tokens, 128),
        "sin": make.weights(1, tokens, 128),
    }


def rope_reference(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    def rotated(x: Any) -> Any:
        half = torch.cat((-x[..., 64:], x[..., :64]), -1)
        return x * cos.unsqueeze(1) + half * sin.unsqueeze(1)

    return rotated(q), rotated(k)


rope = declare(
    "rope",
    rope_inputs,
    rope_reference,
    {"batch": 1, "tokens": 1_048_576, "heads": 32},
    batch=1,
    tokens=4,
    heads=2,
)
rope.implementation("triton")(
    lambda q, k, cos, sin: apply("rope", "LigerRopeFunction", q, k, cos, sin)
)
