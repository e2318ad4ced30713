"""Steps of model blocks: a transformer block, a diffusion transformer (DiT) block, and a mixture of experts (MoE).

With a tensor-parallel degree above 1 a block is the share of one GPU: heads and feed-forward width are divided, and its
outputs are partial sums. The sums over the group are not part of the step.

Sources: Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv 2407.21783); Peebles and Xie, Scalable Diffusion
Models with Transformers, 2022 (arXiv 2212.09748), section 3.2; DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from roofwatch import Case, InputMaker, cases, workload
from roofwatch.kernels.attention.attention import attention as triton_attention
from roofwatch.kernels.memory.rotary import rotary as triton_rotary
from roofwatch.kernels.mlp import swiglu as triton_swiglu
from roofwatch.kernels.models import DEEPSEEK_V3, DIT_XL_2, LLAMA_3_1_8B, LLAMA_3_1_70B, LLAMA_3_1_405B
from roofwatch.kernels.moe.grouped_gemm import grouped_gemm as triton_grouped_gemm
from roofwatch.kernels.moe.moe_permute import chosen_experts
from roofwatch.kernels.moe.moe_permute import moe_permute as triton_permute
from roofwatch.kernels.moe.moe_unpermute import moe_unpermute as triton_unpermute
from roofwatch.kernels.normalisation.layer_norm import adaln_modulate as triton_modulate
from roofwatch.kernels.normalisation.rms_norm import rms_norm as triton_rms_norm

_BASE = 500_000.0
"""Base of the rotary frequencies in Llama 3."""
_TRAINED_TOKENS = 4096
ON_REQUEST = "on_request"
"""Tag: measured only if the workload is named."""


class Kernels(NamedTuple):
    """The kernels of a block; each has the arguments of the Triton kernel of its name."""

    rms_norm: Callable[..., Tensor]
    rotary: Callable[..., tuple[Tensor, Tensor]]
    attention: Callable[..., Tensor]
    swiglu: Callable[..., Tensor]
    modulate: Callable[..., Tensor]


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, 1e-6)


def _rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        wide_cos, wide_sin = cos[:, None, :], sin[:, None, :]
        return torch.cat([first * wide_cos - second * wide_sin, second * wide_cos + first * wide_sin], dim=-1).to(
            x.dtype
        )

    return turned(q), turned(k)


def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1])


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def _modulate(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    normed = functional.layer_norm(x, x.shape[-1:], eps=1e-6)
    return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


TORCH = Kernels(_rms_norm, _rotary, _attention, _swiglu, _modulate)
TRITON = Kernels(triton_rms_norm, triton_rotary, triton_attention, triton_swiglu, triton_modulate)


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
        return *self.kernels.rotary(q, k, *angles_of(positions, self.head_dim, x.dtype)), v

    def mixed_in(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Project the result of the attention, [B, T, heads * D], and apply the feed-forward block."""
        x = x + self.out(mixed)
        rows = x.reshape(-1, x.shape[-1])
        gate, up = self.gate_up(self.kernels.rms_norm(rows, self.ffn_norm)).chunk(2, dim=-1)
        out: Tensor = self.down(self.kernels.swiglu(gate, up)).view(x.shape)
        return x + out


def angles_of(positions: Tensor, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, [T, head_dim / 2] in float32 or wider."""
    wide = torch.promote_types(dtype, torch.float32)
    frequencies = _BASE ** (-torch.arange(0, head_dim, 2, device=positions.device).to(wide) / head_dim)
    angles = positions[:, None].to(wide) * frequencies
    return angles.cos(), angles.sin()


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
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.condition(functional.silu(condition)).chunk(6, dim=-1)
        q, k, v = (
            self.qkv(self.kernels.modulate(x, scale_1, shift_1)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = self.kernels.attention(q, k, v, is_causal=False).transpose(1, 2).reshape(B, T, hidden)
        x = x + gate_1.unsqueeze(1) * self.out(mixed)
        inner = functional.gelu(self.up(self.kernels.modulate(x, scale_2, shift_2)), approximate="tanh")
        out: Tensor = gate_2.unsqueeze(1) * self.down(inner)
        return x + out


class MoEBlock(nn.Module):
    """Routed experts with a gated feed-forward block each. The routing is an input, so that its skew is declared."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.randn(case["E"], case["hidden"], 2 * case["ffn"]) * case["hidden"] ** -0.5)
        self.down = nn.Parameter(torch.randn(case["E"], case["ffn"], case["hidden"]) * case["ffn"] ** -0.5)

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """X is [T, hidden]; experts and weights are [T, top_k]."""
        order = experts.flatten().argsort(stable=True)
        counts = torch.bincount(experts.flatten(), minlength=len(self.gate_up)).tolist()
        rows = x[order // experts.shape[1]].split(counts)
        outs = [
            _swiglu(*(own @ self.gate_up[expert]).chunk(2, dim=-1)) @ self.down[expert]
            for expert, own in enumerate(rows)
        ]
        weighted = torch.cat(outs) * weights.flatten()[order].unsqueeze(1)
        out = x.new_zeros(x.shape, dtype=weighted.dtype).index_add(0, order // experts.shape[1], weighted)
        return out.to(x.dtype)


class TritonMoEBlock(MoEBlock):
    """The same with rows sorted by expert and grouped matrix products."""

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """X is [T, hidden]; experts and weights are [T, top_k]."""
        rows, positions, offsets = triton_permute(x, experts, len(self.gate_up))
        gate, up = triton_grouped_gemm(rows, self.gate_up, offsets).chunk(2, dim=-1)
        return triton_unpermute(triton_grouped_gemm(triton_swiglu(gate, up), self.down, offsets), positions, weights)


SMALL = {"hidden": 256, "ffn": 688, "H": 4, "H_KV": 2, "D": 64}
"""A block that is quick on a CPU."""


def block_shapes() -> Iterator[tuple[dict[str, int], list[str]]]:
    """Dimensions and tags of one GPU's block of each model."""
    for model, degree in ((LLAMA_3_1_8B, 1), (LLAMA_3_1_70B, 8), (LLAMA_3_1_405B, 8)):
        heads = {"H": model.n_heads // degree, "H_KV": max(model.n_kv_heads // degree, 1), "D": model.head_dim}
        quick = ["quick"] if model is LLAMA_3_1_8B else []
        tags = [ON_REQUEST, "full", f"tp{degree}", *sorted(model.tags), *quick]
        yield {"hidden": model.hidden, "ffn": model.ffn // degree, **heads}, tags


def _transformer_cases(phase: str) -> Iterator[Case]:
    yield from cases(shapes=[{"B": 1, "T": 128, **SMALL}], dtypes=["float32"], tags=[ON_REQUEST, "small"])
    for shape, tags in block_shapes():
        shapes = [{"B": 1, "T": _TRAINED_TOKENS, **shape}]
        yield from cases(shapes=shapes, dtypes=["bfloat16"], tags=[*tags, phase])


def _dit_cases() -> Iterator[Case]:
    small = {"B": 2, "T": 64, "hidden": 128, "H": 2}
    yield from cases(shapes=[small], dtypes=["float32"], tags=[ON_REQUEST, "small"])
    full = {"B": 4, "T": DIT_XL_2.n_tokens, "hidden": DIT_XL_2.hidden, "H": DIT_XL_2.n_heads}
    yield from cases(shapes=[full], dtypes=["bfloat16"], tags=[ON_REQUEST, "full", "quick", DIT_XL_2.name])


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
        tags = [ON_REQUEST, routing]
        yield from cases(shapes=[{**small, "routing": routing}], dtypes=["float32"], tags=[*tags, "small"])
        named = [*tags, "full", "quick", "ep8", *sorted(model.tags)]
        yield from cases(shapes=[{**full, "routing": routing}], dtypes=["bfloat16"], tags=named)


def _transformer_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    x = make.normal(case["B"], case["T"], case["hidden"])
    return {"x": x, "positions": torch.arange(case["T"], device=make.device)}


def _dit_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    x = make.normal(case["B"], case["T"], case["hidden"])
    return {"x": x, "condition": make.normal(case["B"], case["hidden"])}


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
    """Reads all experts' weights, the tokens, their experts and weights of 4 bytes each; writes the tokens."""
    T, hidden = case["T"], case["hidden"]
    return (3 * case["E"] * hidden * case["ffn"] + 2 * T * hidden) * case.itemsize + 8 * T * case["top_k"]


def _tokens(case: Case) -> float:
    return case["B"] * case["T"]


def weight_count(case: Case) -> int:
    """Count the weights of a transformer block's linear layers."""
    return case["hidden"] * (2 * (case["H"] + case["H_KV"]) * case["D"] + 3 * case["ffn"])


_transformer = partial(
    workload,
    module=TransformerBlock,
    variants={"triton": lambda case: TransformerBlock(case, TRITON)},
    inputs=_transformer_inputs,
    token_count=_tokens,
    interpreted_shape={"T": 32},
)
transformer_inference_spec = _transformer("transformer_inference", cases=[*_transformer_cases("prefill")])
transformer_training_spec = _transformer("transformer_training", cases=[*_transformer_cases("train")], training=True)

_dit = partial(
    workload,
    module=DiTBlock,
    variants={"triton": lambda case: DiTBlock(case, TRITON)},
    inputs=_dit_inputs,
    cases=[*_dit_cases()],
    token_count=_tokens,
)
dit_inference_spec = _dit("dit_inference")
dit_training_spec = _dit("dit_training", training=True)

moe_inference_spec = workload(
    "moe_inference",
    module=MoEBlock,
    variants={"triton": TritonMoEBlock},
    inputs=_moe_inputs,
    cases=[*_moe_cases()],
    token_count=lambda case: case["T"],
    flop_count=moe_flop_count,
    memory_bytes=moe_memory_bytes,
)
