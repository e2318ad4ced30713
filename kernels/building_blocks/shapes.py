"""Kernel shapes derived from published model dimensions, for prefill and decode, on one GPU and on
one of eight.

Each function returns workloads: a shape, and the tags that select it (model, scale, phase,
tensor-parallel degree).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from roofwatch import Case, cases
from roofwatch.kernels.building_blocks.models import (
    DENSE_MODELS,
    DIFFUSION_TRANSFORMERS,
    LANGUAGE_MODELS,
    MOE_MODELS,
    QWEN3_235B_A22B,
    SDXL,
    ModelConfig,
)

PREFILL_TOKENS = 8192
"""Tokens of one prefill step: a batch of prompts, chunked."""
DECODE_SEQUENCES = 64
"""Sequences of a decode step, one token each."""
TENSOR_PARALLEL_DEGREES = (1, 8)
GROUP_SIZES = (2, 8)
"""Ranks of the collectives: the minimum, and the GPUs of one machine."""
PHASES = (("prefill", PREFILL_TOKENS), ("decode", DECODE_SEQUENCES))
_IMAGES = 4
"""Of one step of a diffusion model."""


@dataclass(frozen=True)
class Workload:
    """One shape of a kernel and the tags that select it."""

    shape: Mapping[str, int | str]
    tags: frozenset[str]


def model_cases(
    workloads: Iterable[Workload],
    *,
    dtypes: Sequence[str] = ("bfloat16",),
    directions: Sequence[str] = ("fwd",),
) -> list[Case]:
    """Make cases of workloads, tagged `full`; those of the first workload also `quick`, to keep the
    quick suite short.

    Equal shapes of several models become one case with the tags of all.
    """
    tags_of: dict[tuple[tuple[str, int | str], ...], set[str]] = {}
    for workload in workloads:
        tags = tags_of.setdefault(
            tuple(workload.shape.items()), {"full"} if tags_of else {"full", "quick"}
        )
        tags |= workload.tags
    return [
        case
        for shape, tags in tags_of.items()
        for case in cases(
            shapes=[dict(shape)], dtypes=dtypes, directions=directions, tags=sorted(tags)
        )
    ]


def small_cases(
    *shapes: Mapping[str, int | str],
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    directions: Sequence[str] = ("fwd",),
) -> list[Case]:
    """Cases that are fast even on a CPU."""
    return cases(shapes=shapes, dtypes=dtypes, directions=directions, tags=["small"])


def small_rows() -> list[Case]:
    """Cases of 1024 x 4096, forward and backward."""
    return small_cases({"n_rows": 1024, "n_cols": 4096}, directions=["fwd", "bwd"])


def only(workloads: Iterable[Workload], *tags: str) -> list[Workload]:
    """Select the workloads that have every tag."""
    return [workload for workload in workloads if workload.tags >= set(tags)]


def with_choice(workloads: Iterable[Workload], **choice: int | str) -> list[Workload]:
    """Add dimensions or choices to every shape, for example `window=4096`."""
    return [replace(workload, shape={**workload.shape, **choice}) for workload in workloads]


def with_dimensions(workloads: Iterable[Workload], *names: str) -> list[Workload]:
    """Reduce every shape to these dimensions."""

    def reduced(workload: Workload) -> Workload:
        return replace(workload, shape={name: workload.shape[name] for name in names})

    return list(map(reduced, workloads))


def _steps(
    models: Iterable[ModelConfig], degrees: Sequence[int] = TENSOR_PARALLEL_DEGREES
) -> Iterator[tuple[ModelConfig, int, int, frozenset[str]]]:
    """Each model, tensor-parallel degree and token count of a step, with its tags."""
    for model, degree, (phase, n_tokens) in product(models, degrees, PHASES):
        yield model, degree, n_tokens, model.tags | {phase, f"tp{degree}"}


def token_rows() -> list[Workload]:
    """`n_rows` tokens of `n_cols` = hidden, as in norms. Tensor parallelism does not split them."""
    return [
        Workload({"n_rows": n_tokens, "n_cols": model.hidden}, tags)
        for model, _, n_tokens, tags in _steps(LANGUAGE_MODELS, [1])
    ]


def ffn_rows(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`n_rows` tokens of `n_cols` = ffn / degree, as in gated activations."""
    return [
        Workload({"n_rows": n_tokens, "n_cols": model.ffn // degree}, tags)
        for model, degree, n_tokens, tags in _steps(models)
    ]


def vocabulary_rows() -> list[Workload]:
    """`n_rows` tokens of `n_cols` = vocabulary, as in softmax and cross entropy in training."""
    return [
        Workload({"n_rows": 4096, "n_cols": model.vocab}, model.tags | {"train", "tp1"})
        for model in LANGUAGE_MODELS
    ]


def projections(models: Iterable[ModelConfig] = DENSE_MODELS) -> list[Workload]:
    """`M N K` of a layer's matrix products: query-key-value, output, gate and up, down.

    The first and third are split by columns over the tensor-parallel group, the others by rows.
    Source: Shoeybi et al., Megatron-LM, 2019 (arXiv 1909.08053).
    """
    workloads = []
    for model, degree, M, tags in _steps(models):
        q_and_kv = (model.n_heads + 2 * model.n_kv_heads) * model.head_dim
        for N, K in (
            (q_and_kv // degree, model.hidden),
            (model.hidden, model.n_heads * model.head_dim // degree),
            (2 * model.ffn // degree, model.hidden),
            (model.hidden, model.ffn // degree),
        ):
            workloads.append(Workload({"M": M, "N": N, "K": K}, tags))
    return workloads


def weights_first(models: Iterable[ModelConfig]) -> list[Workload]:
    """`M N K` of the projections with the weight [M, K] on the left, as sparse products take it."""
    return [
        Workload(
            {"M": projection.shape["N"], "N": projection.shape["M"], "K": projection.shape["K"]},
            projection.tags,
        )
        for projection in projections(models)
    ]


def weight_matrices() -> list[Workload]:
    """`M N` of a layer's largest weight, gate and up joined, whole and as one GPU of eight."""
    return [
        Workload(
            {"M": 2 * model.ffn // degree, "N": model.hidden}, model.tags | {"train", f"tp{degree}"}
        )
        for model in DENSE_MODELS
        for degree in TENSOR_PARALLEL_DEGREES
    ]


def projection_weights() -> list[Workload]:
    """`n_rows` output channels of `n_cols` inputs of the projections' weights, in training."""
    return [
        Workload(
            {"n_rows": projection.shape["N"], "n_cols": projection.shape["K"]},
            (projection.tags - {"prefill"}) | {"train"},
        )
        for projection in only(projections(), "prefill")
    ]


def embedded_tokens() -> list[Workload]:
    """`T vocab hidden` of the token embedding."""
    return [
        Workload({"T": n_tokens, "vocab": model.vocab, "hidden": model.hidden}, tags)
        for model, _, n_tokens, tags in _steps(LANGUAGE_MODELS, [1])
    ]


def heads_of(model: ModelConfig, degree: int) -> dict[str, int]:
    """Heads of one GPU of `degree`."""
    return {
        "H": model.n_heads // degree,
        "H_KV": max(model.n_kv_heads // degree, 1),
        "D": model.head_dim,
    }


def rotated_heads() -> list[Workload]:
    """`B T H H_KV D` of queries and keys before attention: the tokens of all sequences in one row,
    as in serving.
    """
    return [
        Workload({"B": 1, "T": n_tokens, **heads_of(model, degree)}, tags)
        for model, degree, n_tokens, tags in _steps((*DENSE_MODELS, QWEN3_235B_A22B))
    ]


def cached_tokens() -> list[Workload]:
    """`T H_KV D block_size n_blocks` of new keys and values and of the paged cache."""
    workloads = []
    for model, degree, n_tokens, tags in _steps(DENSE_MODELS):
        heads = heads_of(model, degree)
        cache = {"H_KV": heads["H_KV"], "D": heads["D"], "block_size": 16, "n_blocks": 2048}
        workloads.append(Workload({"T": n_tokens, **cache}, tags))
    return workloads


def self_attention(
    models: Iterable[ModelConfig] = DENSE_MODELS,
    *,
    lengths: Sequence[int] = (4096, 16_384),
    batch: int = 1,
) -> list[Workload]:
    """`B H H_KV T D` of causal attention over whole prompts; the tensor-parallel group splits the
    heads.
    """
    return _attention(models, "prefill", [batch], lengths)


def decode_attention(
    models: Iterable[ModelConfig] = DENSE_MODELS, *, batches: Sequence[int] = (1, 16)
) -> list[Workload]:
    """`B H H_KV T D` of one new token per sequence with `T` cached tokens."""
    return _attention(models, "decode", batches, [8192])


def _attention(
    models: Iterable[ModelConfig], phase: str, batches: Sequence[int], lengths: Sequence[int]
) -> list[Workload]:
    workloads = []
    for model, degree, B, T in product(models, TENSOR_PARALLEL_DEGREES, batches, lengths):
        heads = heads_of(model, degree)
        shape = {"B": B, "H": heads["H"], "H_KV": heads["H_KV"], "T": T, "D": heads["D"]}
        workloads.append(Workload(shape, model.tags | {phase, f"tp{degree}"}))
    return workloads


def expert_tokens(
    models: Iterable[ModelConfig] = MOE_MODELS, *, expert_parallel: int = 1
) -> list[Workload]:
    """`T E top_k hidden ffn`: tokens, experts, experts per token, width, and width of one expert.

    With `expert_parallel` above 1, as many GPUs share the experts. Each brings its own tokens, so
    the load of one GPU's experts does not change.
    """
    workloads = []
    for model, _, n_tokens, tags in _steps(models, [1]):
        experts = {"E": model.n_experts // expert_parallel, "top_k": model.experts_per_token}
        shape = {"T": n_tokens, **experts, "hidden": model.hidden, "ffn": model.expert_ffn}
        workloads.append(Workload(shape, tags | {f"ep{expert_parallel}"}))
    return workloads


def shared_activations() -> list[Workload]:
    """`ranks n_rows n_cols` of the activations that a tensor-parallel group sums: tokens of width
    hidden.
    """
    return [
        Workload({"ranks": ranks, "n_rows": n_tokens, "n_cols": model.hidden}, tags)
        for model, ranks, n_tokens, tags in _steps(DENSE_MODELS, GROUP_SIZES)
    ]


def split_activations() -> list[Workload]:
    """`ranks n_rows n_cols` of the same activations, split by tokens over the ranks (sequence
    parallelism).

    Source: Korthikanti et al., 2022 (arXiv 2205.05198).
    """
    return [
        Workload({"ranks": ranks, "n_rows": n_tokens // ranks, "n_cols": model.hidden}, tags)
        for model, ranks, n_tokens, tags in _steps(DENSE_MODELS, GROUP_SIZES)
    ]


def exchanged_tokens() -> list[Workload]:
    """`ranks n_rows n_cols` of an expert-parallel exchange: `n_rows` tokens from each rank to each
    rank.

    A token counts once for each of its experts, and all experts get equally many.
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
        for model, ranks, (phase, n_tokens) in product(MOE_MODELS, GROUP_SIZES, PHASES)
    ]


def image_tokens() -> list[Workload]:
    """`B T n_cols` of a diffusion transformer: images, tokens of each, width."""
    return [
        Workload(
            {"B": _IMAGES, "T": model.n_tokens, "n_cols": model.hidden},
            frozenset({model.name, "tp1"}),
        )
        for model in DIFFUSION_TRANSFORMERS
    ]


def image_attention() -> list[Workload]:
    """`B H H_KV T D` of full attention over the tokens of an image."""
    workloads = []
    for model in (SDXL, *DIFFUSION_TRANSFORMERS):
        H, D = model.n_heads, model.hidden // model.n_heads
        shape = {"B": _IMAGES, "H": H, "H_KV": H, "T": model.n_tokens, "D": D}
        workloads.append(Workload(shape, frozenset({model.name, "tp1"})))
    return workloads


def feature_maps() -> list[Workload]:
    """`B C H W` of the levels of a U-Net."""
    return [
        Workload({"B": _IMAGES, "C": channels, "H": side, "W": side}, frozenset({SDXL.name, "tp1"}))
        for side, channels in SDXL.channels.items()
    ]
