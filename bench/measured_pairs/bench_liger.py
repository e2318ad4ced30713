"""Kernels of Liger-Kernel whose change was measured in public, in the sizes of the measurement."""

from collections.abc import Callable
from typing import Any

from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction

from roofwatch import Case, InputMaker, KernelSpec, cases


def kernel(name: str, launch: Callable[..., Any], **declared: Any) -> KernelSpec:
    """Declare a kernel that is compiled and never run."""
    spec = KernelSpec(
        name=name,
        reference=launch,
        flop_count=lambda _case: 0.0,
        memory_bytes=lambda _case: 0.0,
        **declared,
    )
    spec.implementation("triton")(launch)
    return spec


def norm_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["rows"], case["cols"]),
        "weight": make.normal(case["cols"]),
        "bias": make.normal(case["cols"]),
    }


layer_norm = kernel(
    "layer_norm",
    lambda x, weight, bias: LigerLayerNormFunction.apply(x, weight, bias, 1e-6),
    inputs=norm_inputs,
    cases=cases(
        shapes=[{"rows": 16384, "cols": 4096}],
        dtypes=["float32"],
        directions=("fwd", "bwd"),
    ),
)

cross_entropy = kernel(
    "cross_entropy",
    lambda x, target: LigerCrossEntropyFunction.apply(
        x, target, None, -100, 0.0, 0.0, "mean", None, False
    )[0],
    inputs=lambda case, make: {
        "x": make.normal(case["rows"], case["cols"]),
        "target": make.integers(case["rows"], high=case["cols"]),
    },
    cases=cases(shapes=[{"rows": 4096, "cols": 128256}], dtypes=["bfloat16"], directions=("fwd",)),
)

swiglu = kernel(
    "swiglu",
    lambda a, b: LigerSiLUMulFunction.apply(a, b),
    inputs=lambda case, make: {
        "a": make.normal(case["rows"], case["cols"]),
        "b": make.normal(case["rows"], case["cols"]),
    },
    cases=cases(
        shapes=[{"rows": 8192, "cols": 14336}],
        dtypes=["bfloat16"],
        directions=("fwd", "bwd"),
    ),
)
