"""The kernels that come with roofwatch."""

from importlib import import_module

from kernels.errors import KernelError
from roofwatch import KernelSpec

_NAMES = (
    "softmax",
    "cross_entropy",
    "rms_norm",
    "add_rms_norm",
    "layer_norm",
    "group_norm_silu",
    "adaln_modulate",
    "swiglu",
    "geglu",
    "matmul",
    "matmul_split_k",
    "quantise_int8",
    "quantise_fp8",
    "int8_matmul",
    "fp8_matmul_rowwise",
    "fp8_matmul_blockwise",
    "w4a16_matmul",
    "ternary_matmul",
    "ternary_fake_quant",
    "nonary_fake_quant",
    "moe_topk_routing",
    "moe_permute",
    "grouped_gemm",
    "moe_unpermute",
    "attention",
    "attention_varlen",
    "paged_decode_attention",
    "matmul_2_4",
    "block_sparse_matmul",
    "memory_copy",
    "transpose",
    "embedding_gather",
    "rotary",
    "kv_cache_write",
    "empty_launch",
    "launch_chain",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
)
"""Each names a module of this package and the spec in it: `swiglu` is `swiglu_spec` of `kernels/swiglu.py`."""


def suite() -> tuple[KernelSpec, ...]:
    """Every kernel of ours. They are imported here, since each brings torch and Triton along."""
    return tuple(_spec(name) for name in _NAMES)


def find_kernel(name: str) -> KernelSpec:
    """Look one of our kernels up.

    Raises:
        KernelError: no such kernel; the message lists those there are.
    """
    if name not in _NAMES:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(_NAMES)}")
    return _spec(name)


def _spec(name: str) -> KernelSpec:
    spec: KernelSpec = getattr(import_module(f"kernels.{name}"), f"{name}_spec")
    return spec
