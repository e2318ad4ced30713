r"""Prefill attention of sglang 0.5.17 on an MI355X, with and without its options for AMD (#34741).

    pip install --no-deps --target sglang-0.5.17 sglang==0.5.17
    PYTHONPATH=sglang-0.5.17 roofwatch static bench/measured_pairs/bench_sglang.py \
        --targets gfx950 --base-triton 3.6.0

sglang's packages need a GPU and many others. Its kernels do not, so only they are imported.
"""

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases

KERNELS = "sglang.kernels.ops.attention"
PACKAGES = ("sglang", "sglang.srt", "sglang.kernels", "sglang.kernels.ops", KERNELS)
QUERY_WIDTH = 576
"""Of queries and keys: 512 latent columns and 64 with positions."""
VALUE_WIDTH = 512
TILE = (512, 64, 512, 64, 64, 4)
"""What the launcher chooses for these widths on an MI355X: BLOCK_DMODEL, BLOCK_DPE, BLOCK_DV,
BLOCK_M, BLOCK_N and warps.
"""
PROCESSORS = 256
"""Of an MI355X."""


def import_kernels_only() -> ModuleType:
    """Import the attention without the `__init__` of its packages, which import everything."""
    installed = importlib.util.find_spec("sglang")
    assert installed is not None
    assert installed.origin is not None
    root = Path(installed.origin).parent.parent
    for package in PACKAGES:
        stand_in = ModuleType(package)
        stand_in.__path__ = [str(root.joinpath(*package.split(".")))]
        sys.modules[package] = stand_in
    # without a GPU, as on the machine that compiles
    device = ModuleType("sglang.srt.utils")
    for question in ("is_cuda", "is_hip", "is_gfx95_supported", "is_gfx1250_supported"):
        setattr(device, question, lambda: False)
    device.get_device_core_count = lambda: PROCESSORS  # type: ignore[attr-defined]
    sys.modules[device.__name__] = device
    # later releases read environment variables: none is set
    settings = ModuleType("sglang.srt.environ")
    settings.envs = MagicMock()  # type: ignore[attr-defined]
    settings.envs.SGLANG_TRITON_COMPACT_EXTEND_ATTENTION.get.return_value = False
    sys.modules[settings.__name__] = settings
    return import_module(f"{KERNELS}.extend_attention")


extend = import_kernels_only()


def inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    tokens, prefix, heads = case["tokens"], case["prefix"], case["heads"]
    return {
        "q": make.normal(tokens, heads, QUERY_WIDTH),
        "k": make.normal(tokens, 1, QUERY_WIDTH),
        "v": make.normal(tokens, 1, VALUE_WIDTH),
        "k_buffer": make.normal(prefix, 1, QUERY_WIDTH),
        "v_buffer": make.normal(prefix, 1, VALUE_WIDTH),
    }


def attend(tensors: dict[str, torch.Tensor], *, has_options: bool) -> torch.Tensor:
    """Attend from the new tokens of one sequence to all of its tokens."""
    # the launcher asks this for its options, such as `matrix_instr_nonkdim`
    extend._is_hip = has_options  # type: ignore[attr-defined]
    extend._get_block_sizes_for_extend_attention = lambda *_: TILE  # type: ignore[attr-defined]
    q, k_buffer = tensors["q"], tensors["k_buffer"]
    output = q.new_empty(q.shape[0], q.shape[1], VALUE_WIDTH)
    prefix = k_buffer.shape[0]
    extend.extend_attention_fwd(
        q,
        tensors["k"],
        tensors["v"],
        output,
        k_buffer,
        tensors["v_buffer"],
        qo_indptr=torch.tensor([0, q.shape[0]], dtype=torch.int32, device=q.device),
        kv_indptr=torch.tensor([0, prefix], dtype=torch.int32, device=q.device),
        kv_indices=torch.arange(prefix, device=q.device),
        custom_mask=None,
        is_causal=True,
        mask_indptr=None,
        max_len_extend=q.shape[0],
        k_scale=1.0,
        v_scale=1.0,
    )
    return output


def pairs_of_tokens(case: Case) -> float:
    tokens = case["tokens"]
    return case["heads"] * tokens * (case["prefix"] + tokens / 2)


def kernel(name: str, *, has_options: bool) -> KernelSpec:
    """Declare the attention; it is compiled and never run."""

    def launch(**tensors: torch.Tensor) -> torch.Tensor:
        return attend(tensors, has_options=has_options)

    spec = KernelSpec(
        name=name,
        reference=launch,
        inputs=inputs,
        cases=cases(
            shapes=[{"tokens": 4096, "prefix": 16384, "heads": 16}],
            dtypes=["bfloat16"],
            directions=("fwd",),
        ),
        flop_count=lambda case: 2.0 * pairs_of_tokens(case) * (QUERY_WIDTH + VALUE_WIDTH),
        memory_bytes=lambda _case: 0.0,
    )
    spec.implementation("triton")(launch)
    return spec


with_options = kernel("extend_attention", has_options=True)
without_options = kernel("extend_attention_without_options", has_options=False)
