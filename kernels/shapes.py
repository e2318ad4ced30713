"""The shapes that published models give to kernels: what one GPU sees in prefill and decode, alone and as one of eight.

The functions derive from published dimensions (`roofwatch.kernels.models`) what a kernel works on, each as a
`Workload`: lengths,
and the words that a user selects it by: the model, its scale, the phase and the tensor-parallel degree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch import Case, cases
from roofwatch.kernels.models import (
    DENSE_MODELS,
    DIFFUSION_TRANSFORMERS,
    LANGUAGE_MODELS,
    MOE_MODELS,
    QWEN3_235B_A22B,
    SDXL,
    DiffusionConfig,
    ModelConfig,
)

PREFILL_TOKENS = 8192
"""Tokens that one prefill step works on: a batch of prompts, chunked."""
DECODE_SEQUENCES = 64
"""Sequences that a decode step adds one token to."""
TENSOR_PARALLEL_DEGREES = (1, 8)
GROUP_SIZES = (2, 8)
"""Ranks of the collectives: the least there can be, and the GPUs of one machine."""


@dataclass(frozen=True)
class Workload:
    """One shape that a model gives to a kernel, and the words that it is selected by."""

    shape: Mapping[str, int | str]
    tags: frozenset[str]


def model_cases(
    workloads: Iterable[Workload],
    *,
    dtypes: Sequence[str] = ("bfloat16",),
    directions: Sequence[str] = ("fwd",),
) -> list[Case]:
    """The cases of workloads. Each is tagged `full`, and those of the first workload `quick`: one shape a kernel, so
    that the quick suite takes a minute. A shape that several models have becomes one case with the tags of all.
    """
    tags_of: dict[tuple[tuple[str, int | str], ...], set[str]] = {}
    for workload in workloads:
        tags = tags_of.setdefault(tuple(workload.shape.items()), {"full"} if tags_of else {"full", "quick"})
        tags |= workload.tags
    return [
        case
        for shape, tags in tags_of.items()
        for case in cases(shapes=[dict(shape)], dtypes=dtypes, directions=directions, tags=sorted(tags))
    ]


def small_rows() -> list[Case]:
    """1024 rows of 4096 columns, forward and backward, of a kernel that works by rows: what a CPU does in moments."""
    return cases(
        shapes=[{"n_rows": 1024, "n_cols": 4096}],
        dtypes=["float32", "bfloat16"],
        directions=["fwd", "bwd"],
        tags=["small"],
    )


def only(workloads: Iterable[Workload], *tags: str) -> list[Workload]:
    """The workloads that have every tag."""
    return [workload for workload in workloads if workload.tags >= set(tags)]


def with_choice(workloads: Iterable[Workload], **choice: int | str) -> list[Workload]:
    """The same workloads with more lengths or words, for example `window=4096`."""
    return [replace(workload, shape={**workload.shape, **choice}) for workload in workloads]


def _phases() -> tuple[tuple[str, int], ...]:
    return ("prefill", PREFILL_TOKENS), ("decode", DECODE_SEQUENCES)


def token_rows(models: Iterable[ModelConfig] = LANGUAGE_MODELS) -> list[Workload]:
    """`n_rows` tokens of `n_cols` = hidden, as norms see them; tensor parallelism does not split them."""
    return [
        Workload({"n_rows": n_tokens, "n_cols": model.hidden}, model.tags | {phase, "tp1"})
        for model in models
        for phase, n_tokens in _phases()
    ]


def ffn_rows(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`n_rows` tokens of `n_cols` = ffn / degree, as the gated activation sees them."""
    return [
        Workload({"n_rows": n_tokens, "n_cols": model.ffn // degree}, model.tags | {phase, f"tp{degree}"})
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
        for phase, n_tokens in _phases()
    ]


def vocabulary_rows(models: Iterable[ModelConfig] = LANGUAGE_MODELS, n_rows: int = 4096) -> list[Workload]:
    """`n_rows` tokens of `n_cols` = vocabulary, as softmax and cross entropy see them in training."""
    return [Workload({"n_rows": n_rows, "n_cols": model.vocab}, model.tags | {"train", "tp1"}) for model in models]


def projections(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`M N K` of a layer's matrix products: query-key-value, output, gate and up, down. The first and third are split
    by columns over the tensor-parallel group, the others by rows (Shoeybi et al., Megatron-LM, 2019, arXiv 1909.08053).
    """
    found = []
    for model in models:
        q_and_kv = (model.n_heads + 2 * model.n_kv_heads) * model.head_dim
        for degree in TENSOR_PARALLEL_DEGREES:
            for phase, M in _phases():
                for N, K in (
                    (q_and_kv // degree, model.hidden),
                    (model.hidden, model.n_heads * model.head_dim // degree),
                    (2 * model.ffn // degree, model.hidden),
                    (model.hidden, model.ffn // degree),
                ):
                    found.append(Workload({"M": M, "N": N, "K": K}, model.tags | {phase, f"tp{degree}"}))
    return found


def weights_first(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`M N K` of the same products with the weight, [M, K], on the left: the side that sparse ones are taken from."""
    return [
        Workload({"M": found.shape["N"], "N": found.shape["M"], "K": found.shape["K"]}, found.tags)
        for found in projections(models)
    ]


def weight_matrices(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`M N` of a layer's largest weight, gate and up joined, whole and as one GPU of eight keeps it."""
    return [
        Workload({"M": 2 * model.ffn // degree, "N": model.hidden}, model.tags | {"train", f"tp{degree}"})
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
    ]


def embedded_tokens(models: Iterable[ModelConfig] = LANGUAGE_MODELS) -> list[Workload]:
    """`T vocab hidden` of the lookup of tokens in the embedding table."""
    return [
        Workload({"T": n_tokens, "vocab": model.vocab, "hidden": model.hidden}, model.tags | {phase, "tp1"})
        for model in models
        for phase, n_tokens in _phases()
    ]


def rotated_heads(models: Iterable[ModelConfig] = (*DENSE_MODELS, QWEN3_235B_A22B)) -> list[Workload]:
    """`B T H H_KV D` of the queries and keys that get their position: the tokens of all sequences in one row, which
    is how serving engines hold them.
    """
    return [
        Workload(
            {
                "B": 1,
                "T": n_tokens,
                "H": model.n_heads // degree,
                "H_KV": max(model.n_kv_heads // degree, 1),
                "D": model.head_dim,
            },
            model.tags | {phase, f"tp{degree}"},
        )
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
        for phase, n_tokens in _phases()
    ]


def cached_tokens(
    models: Iterable[ModelConfig] = DENSE_MODELS, *, block_size: int = 16, n_blocks: int = 2048
) -> list[Workload]:
    """`T H_KV D block_size n_blocks` of new keys and values, and of the paged cache that they go into."""
    return [
        Workload(
            {
                "T": n_tokens,
                "H_KV": max(model.n_kv_heads // degree, 1),
                "D": model.head_dim,
                "block_size": block_size,
                "n_blocks": n_blocks,
            },
            model.tags | {phase, f"tp{degree}"},
        )
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
        for phase, n_tokens in _phases()
    ]


def projection_weights(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`n_rows` output channels of `n_cols` inputs: the weights of these products, as they lie in training."""
    return [
        Workload({"n_rows": product.shape["N"], "n_cols": product.shape["K"]}, (product.tags - {"prefill"}) | {"train"})
        for product in only(projections(models), "prefill")
    ]


def self_attention(
    models: Iterable[ModelConfig] = DENSE_MODELS, *, lengths: Sequence[int] = (4096, 16_384), batch: int = 1
) -> list[Workload]:
    """`B H H_KV T D` of causal attention over whole prompts; heads are split over the tensor-parallel group."""
    return [
        Workload(_heads(model, degree, B=batch, T=T), model.tags | {"prefill", f"tp{degree}"})
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
        for T in lengths
    ]


def decode_attention(
    models: Iterable[ModelConfig] = DENSE_MODELS, *, batches: Sequence[int] = (1, 16), n_cached: int = 8192
) -> list[Workload]:
    """`B H H_KV T D` of one new token per sequence that looks at `T` cached ones."""
    return [
        Workload(_heads(model, degree, B=batch, T=n_cached), model.tags | {"decode", f"tp{degree}"})
        for model in models
        for degree in TENSOR_PARALLEL_DEGREES
        for batch in batches
    ]


def _heads(model: ModelConfig, degree: int, *, B: int, T: int) -> dict[str, int | str]:
    """Of a GPU among `degree` that share the heads of `B` sequences of `T` tokens."""
    return {
        "B": B,
        "H": model.n_heads // degree,
        "H_KV": max(model.n_kv_heads // degree, 1),
        "T": T,
        "D": model.head_dim,
    }


def expert_tokens(models: Iterable[ModelConfig] = MOE_MODELS, *, expert_parallel: int = 1) -> list[Workload]:
    """`T E top_k hidden ffn`: tokens, experts, experts per token, width and width of one expert.

    With `expert_parallel` above 1 the experts are split over as many GPUs, each of which brings tokens of its own: as
    many reach a GPU's experts as its tokens make choices.
    """
    return [
        Workload(
            {
                "T": n_tokens,
                "E": model.n_experts // expert_parallel,
                "top_k": model.experts_per_token,
                "hidden": model.hidden,
                "ffn": model.expert_ffn,
            },
            model.tags | {phase, "tp1", f"ep{expert_parallel}"},
        )
        for model in models
        for phase, n_tokens in _phases()
    ]


def shared_activations(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`ranks n_rows n_cols` of what a tensor-parallel group sums up: tokens of width hidden, whole on every rank."""
    return [
        Workload({"ranks": ranks, "n_rows": n_tokens, "n_cols": model.hidden}, model.tags | {phase, f"tp{ranks}"})
        for model in models
        for ranks in GROUP_SIZES
        for phase, n_tokens in _phases()
    ]


def split_activations(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`ranks n_rows n_cols` of the same where each rank keeps its own share of the tokens between the layers
    (Korthikanti et al., 2022, arXiv 2205.05198).
    """
    return [
        replace(whole, shape={**whole.shape, "n_rows": int(whole.shape["n_rows"]) // int(whole.shape["ranks"])})
        for whole in shared_activations(models)
    ]


def exchanged_tokens(models: Iterable[ModelConfig] = MOE_MODELS) -> list[Workload]:
    """`ranks n_rows n_cols` of what an expert-parallel group exchanges: `n_rows` tokens of width hidden from each rank
    to each, where a token counts once for each of its experts, and all experts get equally many.
    """
    return [
        Workload(
            {
                "ranks": ranks,
                "n_rows": n_tokens * model.experts_per_token // ranks**2,
                "n_cols": model.hidden,
            },
            model.tags | {phase, f"ep{ranks}"},
        )
        for model in models
        for ranks in GROUP_SIZES
        for phase, n_tokens in _phases()
    ]


def image_tokens(models: Iterable[DiffusionConfig] = DIFFUSION_TRANSFORMERS, *, batch: int = 4) -> list[Workload]:
    """`B T n_cols` of a diffusion transformer: images, tokens of each, width."""
    return [
        Workload({"B": batch, "T": model.n_tokens, "n_cols": model.hidden}, frozenset({model.name, "tp1"}))
        for model in models
    ]


def image_attention(
    models: Iterable[DiffusionConfig] = (SDXL, *DIFFUSION_TRANSFORMERS), *, batch: int = 4
) -> list[Workload]:
    """`B H H_KV T D` of attention among all tokens of an image."""
    return [
        Workload(
            {
                "B": batch,
                "H": model.n_heads,
                "H_KV": model.n_heads,
                "T": model.n_tokens,
                "D": model.hidden // model.n_heads,
            },
            frozenset({model.name, "tp1"}),
        )
        for model in models
    ]


def feature_maps(model: DiffusionConfig = SDXL, *, batch: int = 4) -> list[Workload]:
    """`B C H W` of a U-Net's levels."""
    return [
        Workload({"B": batch, "C": channels, "H": side, "W": side}, frozenset({model.name, "tp1"}))
        for side, channels in model.channels.items()
    ]
