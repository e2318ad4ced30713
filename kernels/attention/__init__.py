"""Attention, forward and backward: causal, over a sliding window or full; heads of queries may share those of keys.

The scores, a row per query and a column per key, never leave the chip. Every kernel here also serves packed sequences
of different lengths (kernels/attention_varlen.py).

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691); Ainslie et al., GQA, 2023 (arXiv 2305.13245); Beltagy et al.,
Longformer, 2020 (arXiv 2004.05150), for the window.
"""

from kernels.attention.operator import attention
from kernels.attention.spec import (
    attention_flop_count,
    attention_memory_bytes,
    attention_reference,
    attention_spec,
)
from kernels.attention.tiling import MAX_HEAD_DIM, attention_config

__all__ = [
    "MAX_HEAD_DIM",
    "attention",
    "attention_config",
    "attention_flop_count",
    "attention_memory_bytes",
    "attention_reference",
    "attention_spec",
]
