"""FLOP and bytes of each kernel, counted by hand for one small case.

Each sum lists FLOP by step of the formula, and bytes by operand, inputs first.
"""

import pytest

from roofwatch import Case
from roofwatch.kernels.registry import find_kernel
from tests.kernels.builders import make_case

COSTS = [
    (
        make_case("attention", "bfloat16", B=1, H=2, H_KV=1, T=3, D=16, mask="causal"),
        2 * 6 * (32 + 32),
        192 + 96 + 96 + 192,
    ),
    (
        make_case("attention", "bfloat16", "bwd", B=1, H=2, H_KV=1, T=3, D=16, mask="causal"),
        2 * 6 * (32 + 32 + 32 + 32 + 32),
        4 * 192 + 4 * 96,
    ),
    (
        make_case("attention_sinks", "bfloat16", B=1, H=2, H_KV=1, T=3, D=16, mask="causal"),
        2 * 6 * (32 + 32),
        192 + 96 + 96 + 192,
    ),
    (
        make_case("attention_varlen", "bfloat16", B=3, H=2, H_KV=1, T=4, D=16, lengths="spread"),
        2 * (3 + 10) * (32 + 32),
        6 * 32 * (2 + 2 + 1 + 1),
    ),
    (
        make_case(
            "attention_varlen", "bfloat16", "bwd", B=3, H=1, H_KV=1, T=4, D=16, lengths="halving"
        ),
        (10 + 3 + 1) * 5 * 32,
        7 * 32 * (4 + 4),
    ),
    (
        make_case("paged_decode_attention", "bfloat16", B=2, H=4, H_KV=2, T=8, D=16, block_size=4),
        14 * 4 * (32 + 32),
        2 * 14 * 2 * 32 + 2 * 2 * 4 * 32 + 4 * (4 + 2),
    ),
    (
        make_case(
            "paged_prefill_attention",
            "bfloat16",
            B=2,
            H=4,
            H_KV=2,
            T=8,
            D=16,
            new=3,
            block_size=4,
            mask="causal",
        ),
        (6 + 7 + 8 + 4 + 5 + 6) * 4 * (32 + 32),
        2 * 14 * 2 * 32 + 2 * 6 * 4 * 32 + 4 * (2 + 2 + 2 + 3),
    ),
    (
        make_case(
            "paged_prefill_attention",
            "bfloat16",
            B=1,
            H=1,
            H_KV=1,
            T=8,
            D=16,
            new=3,
            block_size=4,
            mask="window",
            window=7,
        ),
        (6 + 7 + 7) * (32 + 32),
        2 * 8 * 32 + 2 * 3 * 32 + 4 * (2 + 1 + 2),
    ),
    (
        # 4 tokens of the prefix for both; 4 and 2 of their own
        make_case(
            "cascade_decode",
            "bfloat16",
            B=2,
            H=4,
            H_KV=2,
            T=8,
            D=16,
            block_size=4,
            prefix=1,
        ),
        14 * 4 * (32 + 32),
        2 * (10 * 2 * 32 + 8 * 32) + 4 * 5,
    ),
    (
        make_case("mla_decode", "bfloat16", B=2, H=4, T=8, latent=16, rope=2, block_size=4),
        2 * 14 * 4 * (18 + 16),
        14 * 36 + 8 * (36 + 32) + 4 * (4 + 2),
    ),
    (make_case("matmul", "bfloat16", M=2, N=3, K=5), 6 * 10, 20 + 30 + 12),
    (
        make_case("linear_epilogue", "bfloat16", M=2, N=3, K=5, activation="gelu", residual="yes"),
        6 * 10,
        20 + 30 + 6 + 12 + 12,
    ),
    (
        make_case(
            "linear_epilogue", "bfloat16", "bwd", M=2, N=3, K=5, activation="silu", residual="no"
        ),
        3 * 6 * 10,
        20 + 30 + 6 + 12 + 20 + 30 + 6,
    ),
    (
        make_case("fp8_matmul_blockwise", "float8_e4m3fn", M=2, N=130, K=200),
        104000 + 2 * 260 * 2,
        400 + 26000 + 16 + 16 + 520,
    ),
    (
        make_case("mxfp8_matmul", "float8_e4m3fn", M=2, N=3, K=64),
        2 * 6 * 64,
        5 * 64 + 5 * 2 + 4 + 12,
    ),
    (make_case("nvfp4_matmul", "uint8", M=2, N=3, K=64), 2 * 6 * 64, 5 * 32 + 5 * 4 + 4 + 12),
    (
        make_case("fp8_matmul_rowwise", "float8_e4m3fn", M=2, N=3, K=5),
        60 + 12,
        10 + 15 + 8 + 12 + 12,
    ),
    (make_case("quantise_fp8", "bfloat16", n_rows=2, n_cols=3), 6 + 6 + 6 + 6, 12 + 6 + 8),
    (make_case("ternary_matmul", "int8", M=2, N=3, K=128), 1536 + 12, 256 + 96 + 20 + 12),
    (
        make_case("w4a16_matmul", "bfloat16", M=3, N=8, K=128),
        2 * 3072 + 2 * 1024,
        768 + 48 + 512 + 16 + 4,
    ),
    (make_case("embedding_gather", T=2, vocab=2, hidden=3), 0, 16 + 18 + 24),
    (
        make_case("kv_cache_write", "bfloat16", T=2, H_KV=3, D=4, block_size=2, n_blocks=9),
        0,
        96 + 96 + 16,
    ),
    (
        make_case("kv_cache_write", "float8_e4m3fn", T=2, H_KV=3, D=4, block_size=2, n_blocks=9),
        48,
        96 + 48 + 16,
    ),
    (make_case("memory_copy", n_rows=2, n_cols=3), 0, 24 + 24),
    (make_case("transpose", "bfloat16", M=2, N=3), 0, 12 + 12),
    (make_case("rotary", "bfloat16", B=1, T=2, H=3, H_KV=1, D=4), 16 * 6, 64 + 64 + 32),
    (make_case("ternary_fake_quant", "bfloat16", n_rows=2, n_cols=3), 6 * 7, 12 + 12),
    (make_case("nonary_fake_quant", "bfloat16", "bwd", n_rows=2, n_cols=3), 6 * 4, 12 + 12 + 12),
    (make_case("geglu", n_rows=2, n_cols=3), 30 + 24 + 6, 24 + 24 + 24),
    (
        make_case("geglu", "bfloat16", "bwd", n_rows=2, n_cols=3),
        30 + 18 + 24 + 12 + 42,
        12 + 12 + 12 + 12 + 12,
    ),
    (make_case("swiglu", n_rows=2, n_cols=3), 6 + 6 + 6 + 6 + 6, 24 + 24 + 24),
    (
        make_case("swiglu", "bfloat16", "bwd", n_rows=2, n_cols=3),
        24 + 12 + 36,
        12 + 12 + 12 + 12 + 12,
    ),
    (
        make_case(
            "grouped_gemm", "bfloat16", T=2, E=3, top_k=2, hidden=5, ffn=7, routing="uniform"
        ),
        20 * 14,
        56 + 210 + 40 + 16,
    ),
    (
        make_case(
            "fp8_grouped_gemm",
            "float8_e4m3fn",
            T=2,
            E=3,
            top_k=2,
            hidden=5,
            ffn=7,
            routing="uniform",
        ),
        20 * 14 + 20 * 2,
        28 + 105 + 16 + 60 + 40 + 16,
    ),
    (
        make_case("fused_moe", "bfloat16", T=2, E=3, top_k=2, hidden=5, ffn=7, routing="uniform"),
        4 * (2 * 5 * 14 + 2 * 7 * 5 + 2 * 5),
        20 + 3 * (140 + 70) + 20 + 16 + 16,
    ),
    (
        make_case(
            "fp8_fused_moe",
            "float8_e4m3fn",
            T=2,
            E=3,
            top_k=2,
            hidden=5,
            ffn=7,
            routing="uniform",
        ),
        4 * (2 * 5 * 14 + 2 * 7 * 5 + 2 * 5) + 4 * 2 * (14 + 5),
        20 + 3 * (70 + 35) + 3 * 4 * (14 + 5) + 20 + 16 + 16,
    ),
    (
        make_case("moe_permute", "bfloat16", T=2, E=3, top_k=2, hidden=5, routing="uniform"),
        0,
        20 + 40 + 16 + 16 + 16,
    ),
    (make_case("moe_topk_routing", T=2, E=5, top_k=3), 30 + 24, 40 + 24 + 24),
    (make_case("moe_unpermute", "bfloat16", T=2, top_k=3, hidden=5), 60, 60 + 24 + 24 + 20),
    (make_case("adaln_modulate", B=2, T=2, n_cols=3), 12 + 36 + 12 + 12 + 12, 48 + 24 + 24 + 48),
    (
        make_case("adaln_modulate", "bfloat16", "bwd", B=2, T=2, n_cols=3),
        24 + 12 + 36 + 48 + 24 + 12,
        24 + 24 + 12 + 24 + 12 + 12,
    ),
    (make_case("add_rms_norm", n_rows=2, n_cols=3), 6 + 12 + 6 + 6, 24 + 24 + 12 + 24 + 24),
    (
        make_case("add_rms_norm", "bfloat16", "bwd", n_rows=2, n_cols=3),
        6 + 6 + 12 + 24 + 12,
        12 + 12 + 12 + 6 + 12 + 6,
    ),
    (
        make_case("group_norm_silu", "bfloat16", B=1, C=2, H=1, W=3, G=1),
        6 + 18 + 24 + 24,
        12 + 4 + 4 + 12,
    ),
    (make_case("layer_norm", n_rows=2, n_cols=3), 6 + 18 + 6 + 6 + 6, 24 + 12 + 12 + 24),
    (
        make_case("layer_norm", "bfloat16", "bwd", n_rows=2, n_cols=3),
        12 + 6 + 18 + 24 + 12 + 6,
        12 + 12 + 6 + 12 + 6 + 6,
    ),
    (make_case("rms_norm", n_rows=2, n_cols=3), 6 + 6 + 6 + 6, 24 + 12 + 24),
    (
        make_case("rms_norm", "bfloat16", "bwd", n_rows=2, n_cols=3),
        6 + 6 + 12 + 18 + 12,
        12 + 12 + 6 + 12 + 6,
    ),
    (make_case("causal_conv1d", B=1, T=2, D=3), 6 * (8 + 4), 24 + 48 + 12 + 24),
    (
        make_case("causal_conv1d", "bfloat16", "bwd", B=1, T=2, D=3),
        6 * (8 + 4 + 5 + 8 + 8 + 1),
        12 + 24 + 6 + 12 + 12 + 24 + 6,
    ),
    (
        make_case("ssd_scan", "bfloat16", B=1, T=2, H=4, P=3, G=2, N=5),
        2 * 60 * (1 + 2 + 2),
        48 + 32 + 16 + 40 + 40 + 48 + 240,
    ),
    (
        make_case("ssd_scan", "bfloat16", "bwd", B=1, T=2, H=4, P=3, G=2, N=5),
        2 * 60 * (3 + 3 + 4 * 2),
        2 * (48 + 32 + 16 + 40 + 40) + 48 + 240,
    ),
    (make_case("empty_launch", n_elements=1), 1, 4 + 4),
    (make_case("fused_adamw", "bfloat16", n=3), 9 + 12 + 9 + 12, 6 + 3 * 12 + 3 * 12 + 6),
    (make_case("top_k_top_p_sampling", n_rows=2, n_cols=3), 6 * 5, 24 + 4 * 8 + 16),
    (make_case("launch_chain", n_launches=3, n_elements=2), 3 * 2, 8 + 8),
    (make_case("cross_entropy", n_rows=9, n_cols=3), 24 * 4, 96 + 72 + 36),
    (make_case("cross_entropy", "bfloat16", "bwd", n_rows=9, n_cols=3), 24 * 3, 48 + 72 + 32 + 54),
    (
        make_case("linear_cross_entropy", "bfloat16", n_rows=2, hidden=3, vocab=5),
        2 * 30,
        12 + 30 + 16 + 8,
    ),
    (
        make_case("linear_cross_entropy", "bfloat16", "bwd", n_rows=2, hidden=3, vocab=5),
        3 * 2 * 30,
        12 + 30 + 16 + 8 + 12 + 30,
    ),
    (make_case("softmax", n_rows=2, n_cols=3), 6 + 6 + 6 + 6 + 6, 24 + 24),
    (make_case("softmax", "bfloat16", "bwd", n_rows=2, n_cols=3), 12 + 6 + 6, 12 + 12 + 12),
    (
        make_case("block_sparse_matmul", "bfloat16", M=64, N=3, K=128, block=32, percent=50),
        4 * 1024 * 6,
        8192 + 768 + 384 + 28,
    ),
    (make_case("matmul_2_4", "bfloat16", M=2, N=3, K=8), 6 * 8, 16 + 48 + 12 + 2),
]


@pytest.mark.parametrize(
    ("case", "flop_count", "memory_bytes"), COSTS, ids=[case.id for case, _, _ in COSTS]
)
def test_the_cost_model_counts_as_a_person_would(
    case: Case, flop_count: float, memory_bytes: float
) -> None:
    spec = find_kernel(case.kernel)

    assert spec.flop_count(case) == flop_count
    assert spec.memory_bytes(case) == memory_bytes
