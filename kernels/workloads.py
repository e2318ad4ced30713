"""Steps of model blocks: a transformer block, a diffusion transformer (DiT) block, experts (MoE),
decoding.

With a tensor-parallel degree above 1 a block is the share of one GPU: heads and feed-forward width
are divided, and its outputs are partial sums. The sums over the group are not part of the step.

Sources: Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv 2407.21783); Peebles and Xie,
Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), section 3.2; DeepSeek-V3
Technical Report, 2024 (arXiv 2412.19437); Kwon et al., Efficient Memory Management for Large
Language Model Serving with PagedAttention, 2023 (arXiv 2309.06180).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from roofwatch import Case, InputMaker, cases, workload
from roofwatch.kernels.attention.attention import attention_spec
from roofwatch.kernels.attention.paged_decode_attention import paged_decode_attention_spec
from roofwatch.kernels.building_blocks.models import (
    DEEPSEEK_V3,
    DIT_XL_2,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    LLAMA_3_1_405B,
)
from roofwatch.kernels.building_blocks.shapes import heads_of
from roofwatch.kernels.memory.kv_cache_write import kv_cache_write_spec
from roofwatch.kernels.memory.rotary import rotary_angles, rotary_spec
from roofwatch.kernels.mlp import swiglu_spec
from roofwatch.kernels.moe.grouped_gemm import grouped_gemm_reference, grouped_gemm_spec
from roofwatch.kernels.moe.moe_permute import chosen_experts, moe_permute_spec, moe_unpermute_spec
from roofwatch.kernels.normalisation.layer_norm import adaln_modulate_spec
from roofwatch.kernels.normalisation.rms_norm import rms_norm_spec

_TRAINED_TOKENS = 4096
_BLOCK_SIZE = 16
"""Tokens of a block of the paged cache."""
_ON_REQUEST = "on_request"
"""Tag: measured only if the workload is named."""


class Kernels(NamedTuple):
    """The kernels of a block, each with the arguments of the bundled kernel."""

    rms_norm: Callable[..., Tensor]
    rotary: Callable[..., tuple[Tensor, Tensor]]
    attention: Callable[..., Tensor]
    swiglu: Callable[..., Tensor]
    modulate: Callable[..., Tensor]
    decode_attention: Callable[..., Tensor]
    write_cache: Callable[..., object]
    permute: Callable[..., tuple[Tensor, Tensor, Tensor]]
    grouped_gemm: Callable[..., Tensor]
    unpermute: Callable[..., Tensor]


def _implemented(name: str) -> Kernels:
    block = rms_norm_spec, rotary_spec, attention_spec, swiglu_spec, adaln_modulate_spec
    others = (
        paged_decode_attention_spec,
        kv_cache_write_spec,
        moe_permute_spec,
        grouped_gemm_spec,
        moe_unpermute_spec,
    )
    return Kernels(*(spec.implementations[name].launch for spec in (*block, *others)))


def _write_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    """Write without tests of the slots, which all exist."""
    key_cache.flatten(0, 1)[slots] = key
    value_cache.flatten(0, 1)[slots] = value


# torch's grouped GEMM has no float64
TORCH = _implemented("torch")._replace(
    write_cache=_write_cache, grouped_gemm=grouped_gemm_reference
)
TRITON = _implemented("triton")


class TransformerBlock(nn.Module):
    """Causal self-attention and a gated feed-forward block, each after an RMS norm."""

    def __init__(self, case: Case, kernels: Kernels = TORCH) -> None:
        super().__init__()
        hidden, self.head_dim, self.kernels = case["hidden"], case["D"], kernels
        self.heads = [case["H"], case["H_KV"], case["H_KV"]]
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Linear(hidden, sum(self.heads) * self.head_dim, bias=False)
        self.out = nn.Linear(case["H"] * self.head_dim, hidden, bias=False)
        self.ffn_norm = nn.Parameter(torch.ones(hidden))
        self.gate_up = nn.Linear(hidden, 2 * case["ffn"], bias=False)
        self.down = nn.Linear(case["ffn"], hidden, bias=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """X is [B, T, hidden], positions [T] int64."""
        B, T, _ = x.shape
        q, k, v = self.projected(x, positions)
        mixed = self.kernels.attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.mixed_in(x, mixed.transpose(1, 2).reshape(B, T, -1))

    def projected(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens, [B, T, heads, D], the first two rotated."""
        B, T, hidden = x.shape
        normed = self.kernels.rms_norm(x.reshape(-1, hidden), self.attention_norm)
        q, k, v = self.qkv(normed).view(B, T, -1, self.head_dim).split(self.heads, dim=2)
        return *self.kernels.rotary(q, k, *rotary_angles(positions, self.head_dim, x.dtype)), v

    def mixed_in(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Project the result of the attention, [B, T, heads * D],
        and apply the feed-forward block.
        """
        x = x + self.out(mixed)
        rows = x.reshape(-1, x.shape[-1])
        gate, up = self.gate_up(self.kernels.rms_norm(rows, self.ffn_norm)).chunk(2, dim=-1)
        out: Tensor = self.down(self.kernels.swiglu(gate, up)).view(x.shape)
        return x + out


class DecodeBlock(TransformerBlock):
    """The transformer block for one new token of each sequence, whose earlier tokens are in a paged
    cache.
    """

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        context_lengths: Tensor,
        slots: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take x [B, hidden] and the new tokens' slots [B]; the rest as of
        `paged_decode_attention`.
        """
        q, k, v = self.projected(x.unsqueeze(0), context_lengths - 1)
        self.kernels.write_cache(k[0], v[0], key_cache, value_cache, slots)
        mixed = self.kernels.decode_attention(
            q[0], key_cache, value_cache, block_tables, context_lengths
        )
        return self.mixed_in(x, mixed.flatten(1)), key_cache, value_cache


class DiTBlock(nn.Module):
    """Full self-attention and an MLP on image patches, modulated by a condition (adaLN-Zero)."""

    def __init__(self, case: Case, kernels: Kernels = TORCH) -> None:
        super().__init__()
        hidden, self.heads, self.kernels = case["hidden"], case["H"], kernels
        self.condition = nn.Linear(hidden, 6 * hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """X is [B, T, hidden] with T patches in two dimensions, condition [B, hidden]."""
        B, T, hidden = x.shape
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.condition(
            functional.silu(condition)
        ).chunk(6, dim=-1)
        q, k, v = (
            self.qkv(self.kernels.modulate(x, scale_1, shift_1))
            .view(B, T, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = (
            self.kernels.attention(q, k, v, is_causal=False).transpose(1, 2).reshape(B, T, hidden)
        )
        x = x + gate_1.unsqueeze(1) * self.out(mixed)
        inner = functional.gelu(
            self.up(self.kernels.modulate(x, scale_2, shift_2)), approximate="tanh"
        )
        out: Tensor = gate_2.unsqueeze(1) * self.down(inner)
        return x + out


class MoEBlock(nn.Module):
    """Routed experts with a gated feed-forward block each. The routing is an input, so that its
    skew is declared.
    """

    def __init__(self, case: Case, kernels: Kernels = TORCH) -> None:
        super().__init__()
        self.kernels = kernels
        self.gate_up = nn.Parameter(
            torch.randn(case["E"], case["hidden"], 2 * case["ffn"]) * case["hidden"] ** -0.5
        )
        self.down = nn.Parameter(
            torch.randn(case["E"], case["ffn"], case["hidden"]) * case["ffn"] ** -0.5
        )

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """X is [T, hidden]; experts and weights are [T, top_k]."""
        rows, positions, offsets = self.kernels.permute(x, experts, len(self.gate_up))
        gate, up = self.kernels.grouped_gemm(rows, self.gate_up, offsets).chunk(2, dim=-1)
        inner = self.kernels.swiglu(gate, up)
        return self.kernels.unpermute(
            self.kernels.grouped_gemm(inner, self.down, offsets), positions, weights
        )


SMALL = {"hidden": 256, "ffn": 688, "H": 4, "H_KV": 2, "D": 64}
"""A block that is quick on a CPU."""


def _block_shapes() -> Iterator[tuple[dict[str, int], list[str]]]:
    """Dimensions and tags of one GPU's block of each model."""
    for model, degree in ((LLAMA_3_1_8B, 1), (LLAMA_3_1_70B, 8), (LLAMA_3_1_405B, 8)):
        quick = ["quick"] if model is LLAMA_3_1_8B else []
        tags = [_ON_REQUEST, "full", f"tp{degree}", *sorted(model.tags), *quick]
        yield {"hidden": model.hidden, "ffn": model.ffn // degree, **heads_of(model, degree)}, tags


def _transformer_cases(phase: str) -> Iterator[Case]:
    yield from cases(
        shapes=[{"B": 1, "T": 128, **SMALL}], dtypes=["float32"], tags=[_ON_REQUEST, "small"]
    )
    for shape, tags in _block_shapes():
        shapes = [{"B": 1, "T": _TRAINED_TOKENS, **shape}]
        yield from cases(shapes=shapes, dtypes=["bfloat16"], tags=[*tags, phase])


def _dit_cases() -> Iterator[Case]:
    small = {"B": 2, "T": 64, "hidden": 128, "H": 2}
    yield from cases(shapes=[small], dtypes=["float32"], tags=[_ON_REQUEST, "small"])
    full = {"B": 4, "T": DIT_XL_2.n_tokens, "hidden": DIT_XL_2.hidden, "H": DIT_XL_2.n_heads}
    yield from cases(
        shapes=[full], dtypes=["bfloat16"], tags=[_ON_REQUEST, "full", "quick", DIT_XL_2.name]
    )


def _decode_cases() -> Iterator[Case]:
    small = [{"B": B, "T": 1152, **SMALL} for B in (1, 4, 16)]
    yield from cases(shapes=small, dtypes=["float32"], tags=[_ON_REQUEST, "small"])
    for shape, tags in _block_shapes():
        shapes = [{"B": B, "T": 4096, **shape} for B in (1, 8, 32, 128)]
        yield from cases(shapes=shapes, dtypes=["bfloat16"], tags=[*tags, "decode"])


def _moe_cases() -> Iterator[Case]:
    small = {"T": 128, "E": 8, "top_k": 2, "hidden": 128, "ffn": 256}
    model = DEEPSEEK_V3
    full = {
        "T": _TRAINED_TOKENS,
        "E": model.n_experts // 8,
        "top_k": model.experts_per_token,
        "hidden": model.hidden,
        "ffn": model.expert_ffn,
    }
    for routing in ("uniform", "zipf", "all_to_one"):
        tags = [_ON_REQUEST, routing]
        yield from cases(
            shapes=[{**small, "routing": routing}], dtypes=["float32"], tags=[*tags, "small"]
        )
        named = [*tags, "full", "quick", "ep8", *sorted(model.tags)]
        yield from cases(shapes=[{**full, "routing": routing}], dtypes=["bfloat16"], tags=named)


def _transformer_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    x = make.normal(case["B"], case["T"], case["hidden"])
    return {"x": x, "positions": torch.arange(case["T"], device=make.device)}


def _dit_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    x = make.normal(case["B"], case["T"], case["hidden"])
    return {"x": x, "condition": make.normal(case["B"], case["hidden"])}


def _decode_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, n_blocks = case["B"], -(-case["T"] // _BLOCK_SIZE)
    tables = make.permutation(B * n_blocks, "int32").view(B, n_blocks)
    cache = B * n_blocks, _BLOCK_SIZE, case["H_KV"], case["D"]
    last = case["T"] - 1
    return {
        "x": make.normal(B, case["hidden"]),
        "key_cache": make.normal(*cache),
        "value_cache": make.normal(*cache),
        "block_tables": tables,
        "context_lengths": torch.full((B,), case["T"], dtype=torch.int32, device=make.device),
        "slots": tables[:, last // _BLOCK_SIZE].long() * _BLOCK_SIZE + last % _BLOCK_SIZE,
    }


def _moe_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    weights = make.uniform(case["T"], case["top_k"], low=0.1, high=1.0, dtype="float32")
    return {
        "x": make.normal(case["T"], case["hidden"]),
        "experts": chosen_experts(case, make),
        "weights": weights / weights.sum(dim=1, keepdim=True),
    }


def moe_flop_count(case: Case) -> float:
    """Count three products of each chosen row."""
    return 6.0 * case["T"] * case["top_k"] * case["hidden"] * case["ffn"]


def moe_memory_bytes(case: Case) -> float:
    """Reads all experts' weights, the tokens, their experts and weights of 4 bytes each; writes the
    tokens.
    """
    T, hidden = case["T"], case["hidden"]
    return (3 * case["E"] * hidden * case["ffn"] + 2 * T * hidden) * case.itemsize + 8 * T * case[
        "top_k"
    ]


def _tokens(case: Case) -> float:
    return case["B"] * case["T"]


def weight_count(case: Case) -> int:
    """Count the weights of a transformer block's linear layers."""
    return case["hidden"] * (2 * (case["H"] + case["H_KV"]) * case["D"] + 3 * case["ffn"])


def transformer_flop_count(case: Case) -> float:
    """Count the projections of a forward pass, and attention with both halves of its mask."""
    token_flop_count = 2 * weight_count(case) + 4 * case["T"] * case["H"] * case["D"]
    return _tokens(case) * token_flop_count


def dit_flop_count(case: Case) -> float:
    """Count the modulation of each image, and the projections and attention of each token."""
    hidden = case["hidden"]
    token_flop_count = 24 * hidden**2 + 4 * case["T"] * hidden
    return case["B"] * 12 * hidden**2 + _tokens(case) * token_flop_count


def transformer_memory_bytes(case: Case, pass_count: int = 1) -> float:
    """Reads the weights, the tokens and their positions of 8 bytes; writes the tokens. A backward
    pass reads and writes as many gradients.
    """
    norm_weights = 2 * case["hidden"]
    values = weight_count(case) + norm_weights + 2 * _tokens(case) * case["hidden"]
    return pass_count * values * case.itemsize + 8 * case["T"]


def dit_memory_bytes(case: Case, pass_count: int = 1) -> float:
    """Reads the weights with their biases, the tokens and a vector for each image; writes the
    tokens. A backward pass reads and writes as many gradients.
    """
    hidden = case["hidden"]
    weights = 18 * hidden**2 + 15 * hidden
    values = weights + (case["B"] + 2 * _tokens(case)) * hidden
    return pass_count * values * case.itemsize


def decode_flop_count(case: Case) -> float:
    """Count the projections of each token and the attention to its context."""
    return case["B"] * (2 * weight_count(case) + 4 * case["T"] * case["H"] * case["D"])


def decode_memory_bytes(case: Case) -> float:
    """Reads all weights, the tokens and their cached keys and values; writes the tokens."""
    cached = 2 * case["T"] * case["H_KV"] * case["D"]
    return (weight_count(case) + case["B"] * (cached + 2 * case["hidden"])) * case.itemsize


_transformer = partial(
    workload,
    module=TransformerBlock,
    variants={"triton": lambda case: TransformerBlock(case, TRITON)},
    inputs=_transformer_inputs,
    token_count=_tokens,
    interpreted_shape={"T": 32},
)
transformer_inference_spec = _transformer(
    "transformer_inference",
    cases=[*_transformer_cases("prefill")],
    flop_count=transformer_flop_count,
    memory_bytes=transformer_memory_bytes,
)
transformer_training_spec = _transformer(
    "transformer_training",
    cases=[*_transformer_cases("train")],
    training=True,
    # two passes for the gradients of inputs and of weights
    flop_count=lambda case: 3 * transformer_flop_count(case),
    memory_bytes=partial(transformer_memory_bytes, pass_count=2),
)

_dit = partial(
    workload,
    module=DiTBlock,
    variants={"triton": lambda case: DiTBlock(case, TRITON)},
    inputs=_dit_inputs,
    cases=[*_dit_cases()],
    token_count=_tokens,
)
dit_inference_spec = _dit(
    "dit_inference",
    flop_count=dit_flop_count,
    memory_bytes=dit_memory_bytes,
)
dit_training_spec = _dit(
    "dit_training",
    training=True,
    flop_count=lambda case: 3 * dit_flop_count(case),
    memory_bytes=partial(dit_memory_bytes, pass_count=2),
)

moe_inference_spec = workload(
    "moe_inference",
    module=MoEBlock,
    variants={"triton": lambda case: MoEBlock(case, TRITON)},
    inputs=_moe_inputs,
    cases=[*_moe_cases()],
    token_count=lambda case: case["T"],
    flop_count=moe_flop_count,
    memory_bytes=moe_memory_bytes,
)

llama_decode_spec = workload(
    "llama_decode",
    module=DecodeBlock,
    variants={"triton": lambda case: DecodeBlock(case, TRITON)},
    inputs=_decode_inputs,
    cases=[*_decode_cases()],
    token_count=lambda case: case["B"],
    flop_count=decode_flop_count,
    memory_bytes=decode_memory_bytes,
    mutates=("key_cache", "value_cache"),
    interpreted_shape={"B": 2, "T": 40},
)
