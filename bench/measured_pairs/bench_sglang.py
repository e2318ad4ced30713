r"""Prefill attention of sglang 0.5.17 on an MI355X, with its tiles and options for AMD or others.

    pip install --no-deps --target sglang-0.5.17 sglang==0.5.17
    PYTHONPATH=sglang-0.5.17 roofwatch static bench/measured_pairs/bench_sglang.py \
        --targets gfx950 --base-triton 3.6.0

sglang's packages need a GPU and many others. Its kernels do not, so only they are imported.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases

KERNELS = "sglang.kernels.ops.attention"
PACKAGES = ("sglang", "sglang.srt", "sglang.kernels", "sglang.kernels.ops", KERNELS)
TILE = (64, 64, 4)
"""What the launcher chooses on an MI355X for queries of 576: BLOCK_M, BLOCK_N and warps."""
WIDE_TILE = (128, 64, 8)
"""What it chooses for heads of 129 to 256, and since #34461 for narrower ones."""
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
        folder = root.joinpath(*package.split("."))
        stand_in.__path__ = [str(folder)]
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
    tokens = case["tokens"]
    prefix = case["prefix"]
    heads = case["heads"]
    kv_heads = case["kv_heads"]
    return {
        "q": make.normal(tokens, heads, case["width"]),
        "k": make.normal(tokens, kv_heads, case["width"]),
        "v": make.normal(tokens, kv_heads, case["value_width"]),
        "k_buffer": make.normal(prefix, kv_heads, case["width"]),
        "v_buffer": make.normal(prefix, kv_heads, case["value_width"]),
    }


def attend(
    tensors: dict[str, torch.Tensor],
    *,
    tile: tuple[int, int, int],
    has_options: bool,
) -> torch.Tensor:
    """Attend from the new tokens of one sequence to all of its tokens."""
    q = tensors["q"]
    k_buffer = tensors["k_buffer"]
    v_buffer = tensors["v_buffer"]
    n_tokens, n_heads, width = q.shape
    value_width = v_buffer.shape[2]
    widths = (width, 0, value_width)
    # wide queries of 512 latent columns have 64 with positions, in a product of their own
    if width == 576:
        widths = (512, 64, 512)
    # the launcher asks these for its options, such as `matrix_instr_nonkdim`, and its tile
    extend._is_hip = has_options  # type: ignore[attr-defined]
    extend._get_block_sizes_for_extend_attention = lambda *_: widths + tile  # type: ignore[attr-defined]
    output = q.new_empty(n_tokens, n_heads, value_width)
    prefix = k_buffer.shape[0]
    extend.extend_attention_fwd(
        q,
        tensors["k"],
        tensors["v"],
        output,
        k_buffer,
        v_buffer,
        qo_indptr=torch.tensor([0, n_tokens], dtype=torch.int32, device=q.device),
        kv_indptr=torch.tensor([0, prefix], dtype=torch.int32, device=q.device),
        kv_indices=torch.arange(prefix, device=q.device),
        custom_mask=None,
        is_causal=True,
        mask_indptr=None,
        max_len_extend=n_tokens,
        k_scale=1.0,
        v_scale=1.0,
    )
    return output


def pairs_of_tokens(case: Case) -> float:
    tokens = case["tokens"]
    # causal: on average, a token attends to half of the new ones
    keys_of_token = case["prefix"] + tokens / 2
    return case["heads"] * tokens * keys_of_token


def kernel(
    name: str,
    shape: dict[str, int],
    tiles: dict[str, tuple[int, int, int]],
    *,
    has_options: bool = True,
) -> KernelSpec:
    """Declare the attention with one implementation a tile; it is compiled and never run."""

    def launch_with(tile: tuple[int, int, int]) -> Callable[..., torch.Tensor]:
        return lambda **tensors: attend(tensors, tile=tile, has_options=has_options)

    def flop_count(case: Case) -> float:
        """A product with the keys and one with the values."""
        widths = case["width"] + case["value_width"]
        return 2.0 * pairs_of_tokens(case) * widths

    launches = {label: launch_with(tile) for label, tile in tiles.items()}
    spec = KernelSpec(
        name=name,
        reference=next(iter(launches.values())),
        inputs=inputs,
        cases=cases(shapes=[shape], dtypes=["bfloat16"], directions=("fwd",)),
        flop_count=flop_count,
        memory_bytes=lambda _case: 0.0,
    )
    for label, launch in launches.items():
        spec.implementation("triton", name=label)(launch)
    return spec


LATENT = {
    "tokens": 4096,
    "prefix": 16384,
    "heads": 16,
    "kv_heads": 1,
    "width": 576,
    "value_width": 512,
}
with_options = kernel("extend_attention", LATENT, {"triton": TILE})
without_options = kernel(
    "extend_attention_without_options",
    LATENT,
    {"triton": TILE, "n32": (64, 32, 4)},
    has_options=False,
)
"""With Triton 3.7 it spills, and with keys in blocks of 32 it does not (#34741)."""


def grouped_heads(width: int) -> dict[str, int]:
    return {
        "tokens": 8192,
        "prefix": 24576,
        "heads": 16,
        "kv_heads": 2,
        "width": width,
        "value_width": width,
    }


NARROW_AND_WIDE = {"triton": TILE, "m128": WIDE_TILE}
heads_of_64 = kernel("extend_attention_64", grouped_heads(64), NARROW_AND_WIDE)
heads_of_128 = kernel("extend_attention_128", grouped_heads(128), NARROW_AND_WIDE)
heads_of_256 = kernel(
    "extend_attention_256",
    grouped_heads(256),
    {
        **NARROW_AND_WIDE,
        "n128": (128, 128, 8),
        "m256": (256, 64, 8),
    },
)
