"""Published dimensions of the models whose layers the kernels run, with the source of each."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """Published dimensions of a language model.

    Args:
        name: Tag of the model.
        scale: Tag of its size, if cases can be selected by it.
        hidden: Width of the residual stream.
        ffn: Width of the dense feed-forward block, or of one expert if there is none.
        n_heads: Query heads.
        n_kv_heads: Key and value heads.
        head_dim: Dim of a query or key head.
        vocab: Vocabulary size.
        source: Where the numbers are published.
        n_experts: Routed experts per layer, 0 in a dense model.
        experts_per_token: Experts that a token is routed to.
        expert_ffn: Width of one expert.
    """

    name: str
    scale: str | None
    hidden: int
    ffn: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int
    source: str
    n_experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(tag for tag in (self.name, self.scale) if tag is not None)


_LLAMA = "Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv 2407.21783), table 3"
_QWEN = "config.json; Qwen3 Technical Report, 2025 (arXiv 2505.09388), table"
_MIXTRAL = "Jiang et al., Mixtral of Experts, 2024 (arXiv 2401.04088), table 1"
_DEEPSEEK = (
    "deepseek-ai/DeepSeek-V3 config.json; Technical Report, 2024 (arXiv 2412.19437), section 4.2"
)
_GEMMA = "google/gemma-2-9b config.json; Gemma 2, 2024 (arXiv 2408.00118), table 1"

# name, scale, hidden, ffn, n_heads, n_kv_heads, head_dim, vocab, source, n_experts,
# experts_per_token, expert_ffn
LLAMA_3_1_8B = ModelConfig("llama_3_1_8b", "8b", 4096, 14_336, 32, 8, 128, 128_256, _LLAMA)
LLAMA_3_1_70B = ModelConfig("llama_3_1_70b", "70b", 8192, 28_672, 64, 8, 128, 128_256, _LLAMA)
LLAMA_3_1_405B = ModelConfig("llama_3_1_405b", "405b", 16_384, 53_248, 128, 8, 128, 128_256, _LLAMA)
QWEN3_8B = ModelConfig(
    "qwen3_8b", "8b", 4096, 12_288, 32, 8, 128, 151_936, f"Qwen/Qwen3-8B {_QWEN} 1"
)
QWEN3_235B_A22B = ModelConfig(
    "qwen3_235b_a22b",
    None,
    4096,
    12_288,
    64,
    4,
    128,
    151_936,
    f"Qwen/Qwen3-235B-A22B {_QWEN} 2",
    128,
    8,
    1536,
)
MIXTRAL_8X7B = ModelConfig(
    "mixtral_8x7b", None, 4096, 14_336, 32, 8, 128, 32_000, _MIXTRAL, 8, 2, 14_336
)
DEEPSEEK_V3 = ModelConfig(
    "deepseek_v3", "671b", 7168, 18_432, 128, 128, 192, 129_280, _DEEPSEEK, 256, 8, 2048
)
GEMMA_2_9B = ModelConfig("gemma_2_9b", None, 3584, 14_336, 16, 8, 256, 256_000, _GEMMA)
"""Not in the lists below: its feed-forward block uses GELU."""

GPT_OSS_120B = ModelConfig(
    name="gpt_oss_120b",
    scale=None,
    hidden=2880,
    ffn=2880,
    n_heads=64,
    n_kv_heads=8,
    head_dim=64,
    vocab=201_088,
    source="openai/gpt-oss-120b config.json; gpt-oss model card, 2025 (arXiv 2508.10925)",
    n_experts=128,
    experts_per_token=4,
    expert_ffn=2880,
)
"""Not in the lists below: its attention has sinks, and its experts a gate of their own."""

DENSE_MODELS = (LLAMA_3_1_8B, QWEN3_8B, LLAMA_3_1_70B, LLAMA_3_1_405B)
MOE_MODELS = (MIXTRAL_8X7B, QWEN3_235B_A22B, DEEPSEEK_V3)
LANGUAGE_MODELS = (*DENSE_MODELS, *MOE_MODELS)


@dataclass(frozen=True)
class DiffusionConfig:
    """Published dimensions of a diffusion model at one image size.

    Args:
        name: Tag of the model.
        hidden: Width of the transformer, or of the widest level of the U-Net.
        n_heads: Attention heads at that width.
        n_tokens: Tokens of one image at that width: patches, and text if joined.
        channels: Channels by side length of the feature map in a U-Net; empty for a transformer.
        source: Where the numbers are published.
    """

    name: str
    hidden: int
    n_heads: int
    n_tokens: int
    channels: Mapping[int, int]
    source: str


_SDXL = (
    "stabilityai/stable-diffusion-xl-base-1.0 unet/config.json; Podell et al., 2023 (arXiv "
    "2307.01952)"
)
_DIT = (
    "Peebles and Xie, Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), "
    "table 1, 512 x 512"
)
_FLUX = "black-forest-labs/FLUX.1-dev transformer/config.json, 1024 x 1024 with 512 tokens of text"

# name, hidden, n_heads, n_tokens, channels, source
SDXL = DiffusionConfig("sdxl", 1280, 20, 32 * 32, {128: 320, 64: 640, 32: 1280}, _SDXL)
DIT_XL_2 = DiffusionConfig("dit_xl_2", 1152, 16, 32 * 32, {}, _DIT)
FLUX_1 = DiffusionConfig("flux_1", 3072, 24, 64 * 64 + 512, {}, _FLUX)
DIFFUSION_TRANSFORMERS = (DIT_XL_2, FLUX_1)
