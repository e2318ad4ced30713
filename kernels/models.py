"""Published dimensions of models whose layers the kernels run, with where each is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Published dimensions of a language model.

    Args:
        name: Tag of the model.
        scale: Tag of its size, where it is one of those that the suite is selected by.
        hidden: Width of the residual stream.
        ffn: Width of the dense feed-forward block; for a mixture of experts that has none, of one expert.
        n_heads: Query heads.
        n_kv_heads: Key and value heads.
        head_dim: Of a query and key head.
        vocab: Tokens of the vocabulary.
        n_experts: Routed experts of a layer, 0 in a dense model.
        experts_per_token: Those that a token goes to.
        expert_ffn: Width of one expert.
        source: Where the numbers are published.
    """

    name: str
    scale: str | None
    hidden: int
    ffn: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int
    n_experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    source: str

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(tag for tag in (self.name, self.scale) if tag is not None)


_LLAMA = "Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv 2407.21783), table 3"

LLAMA_3_1_8B = ModelConfig(
    name="llama_3_1_8b",
    scale="8b",
    hidden=4096,
    ffn=14_336,
    n_heads=32,
    n_kv_heads=8,
    head_dim=128,
    vocab=128_256,
    source=_LLAMA,
)
LLAMA_3_1_70B = ModelConfig(
    name="llama_3_1_70b",
    scale="70b",
    hidden=8192,
    ffn=28_672,
    n_heads=64,
    n_kv_heads=8,
    head_dim=128,
    vocab=128_256,
    source=_LLAMA,
)
LLAMA_3_1_405B = ModelConfig(
    name="llama_3_1_405b",
    scale="405b",
    hidden=16_384,
    ffn=53_248,
    n_heads=128,
    n_kv_heads=8,
    head_dim=128,
    vocab=128_256,
    source=_LLAMA,
)
QWEN3_8B = ModelConfig(
    name="qwen3_8b",
    scale="8b",
    hidden=4096,
    ffn=12_288,
    n_heads=32,
    n_kv_heads=8,
    head_dim=128,
    vocab=151_936,
    source="Qwen/Qwen3-8B config.json; Qwen3 Technical Report, 2025 (arXiv 2505.09388), table 1",
)
QWEN3_235B_A22B = ModelConfig(
    name="qwen3_235b_a22b",
    scale=None,
    hidden=4096,
    ffn=12_288,
    n_heads=64,
    n_kv_heads=4,
    head_dim=128,
    vocab=151_936,
    n_experts=128,
    experts_per_token=8,
    expert_ffn=1536,
    source="Qwen/Qwen3-235B-A22B config.json; Qwen3 Technical Report, 2025 (arXiv 2505.09388), table 2",
)
MIXTRAL_8X7B = ModelConfig(
    name="mixtral_8x7b",
    scale=None,
    hidden=4096,
    ffn=14_336,
    n_heads=32,
    n_kv_heads=8,
    head_dim=128,
    vocab=32_000,
    n_experts=8,
    experts_per_token=2,
    expert_ffn=14_336,
    source="Jiang et al., Mixtral of Experts, 2024 (arXiv 2401.04088), table 1",
)
DEEPSEEK_V3 = ModelConfig(
    name="deepseek_v3",
    scale="671b",
    hidden=7168,
    ffn=18_432,
    n_heads=128,
    n_kv_heads=128,
    head_dim=192,
    vocab=129_280,
    n_experts=256,
    experts_per_token=8,
    expert_ffn=2048,
    source="deepseek-ai/DeepSeek-V3 config.json; DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 4.2",
)

GEMMA_2_9B = ModelConfig(
    name="gemma_2_9b",
    scale=None,
    hidden=3584,
    ffn=14_336,
    n_heads=16,
    n_kv_heads=8,
    head_dim=256,
    vocab=256_000,
    source="google/gemma-2-9b config.json; Gemma 2, 2024 (arXiv 2408.00118), table 1",
)
"""Stands apart from the lists below: its feed-forward block is gated by GELU."""

DENSE_MODELS = (LLAMA_3_1_8B, QWEN3_8B, LLAMA_3_1_70B, LLAMA_3_1_405B)
MOE_MODELS = (MIXTRAL_8X7B, QWEN3_235B_A22B, DEEPSEEK_V3)
LANGUAGE_MODELS = (*DENSE_MODELS, *MOE_MODELS)


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """Published dimensions of a diffusion model at one image size.

    Args:
        name: Tag of the model.
        hidden: Width of the transformer, or of the widest level of the U-Net.
        n_heads: Attention heads at that width.
        n_tokens: Tokens (patches, and text where it is joined) of one image at that width.
        channels: Channels by side length of the feature map, for the U-Net's normalisations; empty for a transformer.
        source: Where the numbers are published.
    """

    name: str
    hidden: int
    n_heads: int
    n_tokens: int
    channels: Mapping[int, int]
    source: str


SDXL = DiffusionConfig(
    name="sdxl",
    hidden=1280,
    n_heads=20,
    n_tokens=32 * 32,
    channels={128: 320, 64: 640, 32: 1280},
    source="stabilityai/stable-diffusion-xl-base-1.0 unet/config.json; Podell et al., 2023 (arXiv 2307.01952)",
)
DIT_XL_2 = DiffusionConfig(
    name="dit_xl_2",
    hidden=1152,
    n_heads=16,
    n_tokens=32 * 32,
    channels={},
    source="Peebles and Xie, Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), table 1, 512 x 512",
)
FLUX_1 = DiffusionConfig(
    name="flux_1",
    hidden=3072,
    n_heads=24,
    n_tokens=64 * 64 + 512,
    channels={},
    source="black-forest-labs/FLUX.1-dev transformer/config.json, 1024 x 1024 with 512 tokens of text",
)
DIFFUSION_TRANSFORMERS = (DIT_XL_2, FLUX_1)
