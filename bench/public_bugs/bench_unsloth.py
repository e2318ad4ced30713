"""Kernels of Unsloth at sizes where a release was wrong.

Its packages need a GPU, transformers and bitsandbytes. Its kernels do not, so only they are
imported, with stand-ins for what they import beside torch and triton.
"""

import importlib.util
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from packaging.version import Version

from roofwatch import Case, InputMaker, KernelSpec, cases

MadeInputs = dict[str, Any]
"""Inputs of a case by name."""

NOT_INSTALLED = (
    "bitsandbytes",
    "transformers",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mllama.modeling_mllama",
    "unsloth_zoo",
    "unsloth_zoo.log",
    "unsloth_zoo.loss_utils",
    "unsloth_zoo.patching_utils",
    "unsloth_zoo.temporary_patches.common",
    "unsloth_zoo.utils",
)


def import_kernels_only() -> None:
    """Put a package without its `__init__`, which imports everything, in place of Unsloth."""
    installed = importlib.util.find_spec("unsloth")
    assert installed is not None
    assert installed.origin is not None
    folder = Path(installed.origin).parent
    for package, path in (("unsloth", folder), ("unsloth.kernels", folder / "kernels")):
        stand_in = ModuleType(package)
        stand_in.__path__ = [str(path)]
        sys.modules[package] = stand_in
    for module in NOT_INSTALLED:
        sys.modules.setdefault(module, MagicMock(__version__="0.48.0", __spec__=None))
    sys.modules["unsloth_zoo.utils"].Version = Version  # type: ignore[attr-defined]
    os.environ["UNSLOTH_ALLOW_CPU"] = "1"


import_kernels_only()


def kernel_module(name: str) -> ModuleType:
    """Import one file of kernels of the release that is on the import path."""
    return import_module(f"unsloth.kernels.{name}")


def declare(
    name: str,
    make_inputs: Any,
    reference: Any,
    launch: Any,
    small: dict[str, int],
    large: dict[str, int],
    **options: Any,
) -> None:
    """Declare a kernel with a small case that is compared and a large one that is analysed."""
    of_every_case: Any = {"dtypes": ["bfloat16"], "directions": options.pop("directions")}
    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=[
            *cases(shapes=[small], tags=["quick"], **of_every_case),
            *cases(shapes=[large], tags=["large"], **of_every_case),
        ],
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
        interpreted_shape=small,
        **options,
    )
    spec.implementation("triton")(launch)
    globals()[name] = spec


def dequant_inputs(case: Case, make: InputMaker) -> MadeInputs:
    rows, cols = case["rows"], case["cols"]
    return {
        "x": make.normal(rows, cols),
        "scale": make.normal(-(-rows // 128), -(-cols // 128), dtype="float32"),
    }


def dequant_reference(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    of_elements = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return x * of_elements[: x.shape[0], : x.shape[1]].to(x.dtype)


declare(
    name="weight_dequant",
    make_inputs=dequant_inputs,
    reference=dequant_reference,
    launch=lambda x, scale: kernel_module("fp8").weight_dequant_block(x, scale),
    small={"rows": 200, "cols": 150},
    large={"rows": 524_288, "cols": 7_168},
    directions=("fwd",),
)


def norm_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.normal(1, case["n_rows"], case["n_cols"]),
        "weight": make.weights(case["n_cols"]),
    }


declare(
    name="rms_norm",
    make_inputs=norm_inputs,
    reference=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
    launch=lambda x, weight: kernel_module("rms_layernorm").Fast_RMS_Layernorm.apply(
        x, weight, 1e-6
    ),
    small={"n_rows": 4, "n_cols": 96},
    large={"n_rows": 1_000_000, "n_cols": 4_096},
    directions=("fwd", "bwd"),
    gradients=("x",),
)


def layer_norm_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {**norm_inputs(case, make), "bias": make.weights(case["n_cols"])}


declare(
    name="layer_norm",
    make_inputs=layer_norm_inputs,
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-6),
    launch=lambda x, weight, bias: kernel_module("layernorm").Fast_Layernorm.apply(
        x, weight, bias, 1e-6
    ),
    small={"n_rows": 4, "n_cols": 96},
    large={"n_rows": 1_000_000, "n_cols": 4_096},
    directions=("fwd", "bwd"),
    gradients=("x",),
)


def loss_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.logits(case["n_rows"], case["n_cols"], dtype="float32"),
        "target": make.integers(case["n_rows"], high=case["n_cols"]),
    }


def capped_loss(x: torch.Tensor, target: torch.Tensor) -> Any:
    function = kernel_module("cross_entropy_loss").Fast_CrossEntropyLoss
    return function.apply(x, target, 20.0, 0)


declare(
    name="capped_cross_entropy",
    make_inputs=loss_inputs,
    reference=lambda x, target: F.cross_entropy(20 * torch.tanh(x / 20), target, reduction="none"),
    launch=capped_loss,
    small={"n_rows": 4, "n_cols": 100},
    large={"n_rows": 8_192, "n_cols": 128_256},
    directions=("fwd", "bwd"),
    mutates=("x",),
)
