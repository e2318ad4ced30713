"""The kernels that come with roofwatch."""

from importlib import import_module

from roofwatch import KernelSpec
from roofwatch.kernels.errors import KernelError

_FAMILIES = {
    "reduction": ("softmax", "cross_entropy"),
    "normalisation": ("rms_norm", "add_rms_norm", "layer_norm", "group_norm_silu", "adaln_modulate"),
    "mlp": ("swiglu", "geglu"),
    "gemm": ("matmul", "matmul_split_k"),
    "low_precision": (
        "quantise_int8",
        "quantise_fp8",
        "int8_matmul",
        "fp8_matmul_rowwise",
        "fp8_matmul_blockwise",
        "w4a16_matmul",
        "ternary_matmul",
    ),
    "quantisation_aware_training": ("ternary_fake_quant", "nonary_fake_quant"),
    "moe": ("moe_topk_routing", "moe_permute", "grouped_gemm", "moe_unpermute"),
    "attention": ("attention", "attention_varlen", "paged_decode_attention"),
    "sparsity": ("matmul_2_4", "block_sparse_matmul"),
    "memory": ("memory_copy", "transpose", "embedding_gather", "rotary", "kv_cache_write"),
    "overhead": ("empty_launch", "launch_chain"),
    "collectives": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
}
"""Kernels by family; the spec of `swiglu` is `swiglu_spec` in `kernels/mlp/swiglu.py`."""
MODULES = {name: f"roofwatch.kernels.{family}.{name}" for family, names in _FAMILIES.items() for name in names}
"""By kernel, in the order of the suite."""


def suite() -> tuple[KernelSpec, ...]:
    """Every kernel of ours. They are imported here, since each brings torch and Triton along."""
    return tuple(_spec(name) for name in MODULES)


def find_kernel(name: str) -> KernelSpec:
    """Look one of our kernels up.

    Raises:
        KernelError: no such kernel; the message lists those there are.
    """
    if name not in MODULES:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(MODULES)}")
    return _spec(name)


def _spec(name: str) -> KernelSpec:
    spec: KernelSpec = getattr(import_module(MODULES[name]), f"{name}_spec")
    return spec
