"""Kernels of flash-linear-attention at sizes where a release was wrong.

Small cases are compared with a plain reference. Large ones are analysed and never run.
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases

MadeInputs = dict[str, Any]
"""Inputs of a case by name."""

Shapes = dict[str, tuple[str | int, ...]]
"""Dims of each input: names of dims of the case, or fixed lengths."""


def call(module: str, function: str) -> Callable[..., Any]:
    """A function of the release that is on the import path, imported when it is called."""

    def launch(*inputs: Any, **arguments: Any) -> Any:
        # only now: the suite can be listed without a release
        release_module = import_module(f"fla.{module}")
        launcher = getattr(release_module, function)
        return launcher(*inputs, **arguments)

    return launch


def declare(
    name: str,
    launch: Callable[..., Any],
    reference: Callable[..., Any],
    shapes: Shapes,
    large: dict[str, int] | None = None,
    *,
    small: dict[str, int] | None = None,
    directions: tuple[str, ...] = ("fwd", "bwd"),
    gradients: tuple[str, ...] | None = None,
) -> None:
    """Declare a kernel whose inputs have the lengths of the case's dims; without a small size, it
    is only analysed.
    """
    of_every_case: Any = {"dtypes": ["bfloat16"], "directions": directions}
    # a bug of large sizes needs no small case, and the reverse
    small_cases = []
    if small is not None:
        small_cases = cases(shapes=[small], tags=["quick"], **of_every_case)
    large_cases = []
    if large is not None:
        large_cases = cases(shapes=[large], tags=["large"], **of_every_case)

    def make_inputs(case: Case, make: InputMaker) -> MadeInputs:
        inputs: MadeInputs = {}
        for key, dims in shapes.items():
            # a name is a dim of the case, a number a fixed length
            lengths = [case[dim] if isinstance(dim, str) else dim for dim in dims]
            inputs[key] = make.normal(*lengths)
        return inputs

    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=[*small_cases, *large_cases],
        gradients=gradients,
        # only right and wrong count here, and no speed
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
        interpreted_shape=small or {},
    )
    spec.implementation("triton")(launch)
    # a suite is the module's kernel specs
    globals()[name] = spec


def analysed_only(**_inputs: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("the case is analysed and not run")


BTHD = ("B", "T", "H", "D")
BTH = ("B", "T", "H")
QKV: Shapes = {"q": BTHD, "k": BTHD, "v": BTHD}
LONG = {
    "B": 16,
    "T": 32_768,
    "H": 64,
    "D": 128,
}
ROWS = ("B", "T", "D")
LONG_ROWS = {"B": 32, "T": 65_536, "D": 2_048}


def l2norm_reference(x: torch.Tensor) -> torch.Tensor:
    squared_lengths = x.square().sum(-1, keepdim=True)
    return x * torch.rsqrt(squared_lengths + 1e-6)


def rms_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    normed = F.rms_norm(x, weight.shape, weight, 1e-5)
    return normed + bias


declare(
    name="l2norm",
    launch=call("modules.l2norm", "l2norm"),
    reference=l2norm_reference,
    shapes={"x": ("T", "D")},
    large={"T": 4_194_304, "D": 1_024},
    small={"T": 5, "D": 64},
)
declare(
    name="rms_norm",
    launch=call("modules.layernorm", "rms_norm"),
    reference=rms_norm_reference,
    shapes={
        "x": ("T", "D"),
        "weight": ("D",),
        "bias": ("D",),
    },
    large={"T": 1_048_576, "D": 4_096},
    small={"T": 5, "D": 64},
)
declare(
    name="rms_norm_gated",
    launch=call("modules.fused_norm_gate", "rms_norm_gated"),
    reference=lambda x, g, weight, bias: rms_norm_reference(x, weight, bias) * F.silu(g),
    shapes={
        "x": ("T", "D"),
        "g": ("T", "D"),
        "weight": ("D",),
        "bias": ("D",),
    },
    large={"T": 1_048_576, "D": 4_096},
    small={"T": 5, "D": 64},
)
declare(
    name="swish",
    launch=lambda x: call("modules.activations", "swish")(x),
    reference=F.silu,
    shapes={"x": ("T", "D")},
    large={"T": 1_048_576, "D": 4_096},
    small={"T": 5, "D": 64},
)
declare(
    name="swiglu",
    launch=lambda x, y: call("modules.activations", "swiglu")(x, y),
    reference=lambda x, y: F.silu(x) * y,
    shapes={"x": ("T", "D"), "y": ("T", "D")},
    large={"T": 1_048_576, "D": 4_096},
    small={"T": 5, "D": 64},
)
declare(
    name="token_shift",
    launch=call("modules.token_shift", "token_shift"),
    reference=lambda x: F.pad(x, (0, 0, 1, -1)) - x,
    shapes={"x": ROWS},
    large=LONG_ROWS,
    small={"B": 2, "T": 5, "D": 64},
)
declare(
    name="token_shift_long",
    launch=call("modules.token_shift", "token_shift"),
    reference=lambda x: F.pad(x, (0, 0, 1, -1)) - x,
    shapes={"x": ROWS},
    large={"B": 1, "T": 8_388_608, "D": 64},
)


def wrapped_loss(loss: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The loss, with the gradient of a penalty on the largest logit of each token."""
    largest = logits.max(-1).values
    penalty = 1e-4 / 2 * largest.square().mean()
    return loss + penalty - penalty.detach()


declare(
    name="l2_warp",
    launch=lambda loss, logits: call("modules.l2warp", "l2_warp")(loss, logits),
    reference=wrapped_loss,
    shapes={"loss": (1,), "logits": ("B", "T", "V")},
    large={"B": 8, "T": 4_096, "V": 32_000},
    small={"B": 2, "T": 5, "V": 64},
    directions=("bwd",),
)
declare(
    name="scaled_dot_kkt",
    launch=lambda k, beta: call("ops.common.chunk_scaled_dot_kkt", "chunk_scaled_dot_kkt_fwd")(
        k=k, beta=beta
    ),
    reference=analysed_only,
    shapes={"k": BTHD, "beta": BTH},
    large={"B": 16, "T": 17_477, "H": 64, "D": 128},
    directions=("fwd",),
)


def causal_conv1d_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Each channel by itself over the last tokens; x is [B, T, D], the weight [D, width]."""
    n_channels, width = weight.shape
    # zeros come before the first token
    padded = F.pad(x.mT, (width - 1, 0))
    convolved = F.conv1d(padded, weight[:, None], groups=n_channels)
    return convolved.mT


declare(
    name="causal_conv1d",
    launch=lambda x, weight: call("modules.convolution", "causal_conv1d")(x=x, weight=weight)[0],
    reference=causal_conv1d_reference,
    shapes={"x": ROWS, "weight": ("D", 4)},
    large=LONG_ROWS,
    small={"B": 1, "T": 5, "D": 64},
)
declare(
    name="attention",
    launch=lambda q, k, v: call("ops.attn.parallel", "parallel_attn")(q=q, k=k, v=v),
    reference=analysed_only,
    shapes=QKV,
    large={"B": 1, "T": 131_072, "H": 128, "D": 256},
)
declare(
    name="path_attention",
    launch=lambda q, k, v, w, beta: call("ops.path_attn.parallel", "parallel_path_attn")(
        q=q,
        k=k,
        v=v,
        w=w.float(),
        beta=beta.float().sigmoid(),
    )[0],
    reference=analysed_only,
    shapes={**QKV, "w": BTHD, "beta": BTH},
    large={"B": 4, "T": 16_384, "H": 24, "D": 64},
)
declare(
    name="delta_rule",
    launch=lambda q, k, v, beta: call("ops.delta_rule.chunk", "chunk_delta_rule")(
        q=q,
        k=k,
        v=v,
        beta=beta.sigmoid(),
    )[0],
    reference=analysed_only,
    shapes={**QKV, "beta": BTH},
    large=LONG,
)
declare(
    name="gla",
    launch=lambda q, k, v, g: call("ops.gla.chunk", "chunk_gla")(
        q=q,
        k=k,
        v=v,
        g=F.logsigmoid(g),
    )[0],
    reference=analysed_only,
    shapes={**QKV, "g": BTHD},
    large=LONG,
)
declare(
    name="addcmul",
    launch=lambda h, d, r, w, k, v, a, g: call("ops.rwkv7.fused_addcmul", "fused_addcmul_rwkv7")(
        hidden_states=h,
        delta=d,
        xr=r,
        xw=w,
        xk=k,
        xv=v,
        xa=a,
        xg=g,
    ),
    reference=lambda h, d, r, w, k, v, a, g: tuple(h + d * x for x in (r, w, k, v, a, g)),
    shapes={
        "h": ROWS,
        "d": ROWS,
        **dict.fromkeys(("r", "w", "k", "v", "a", "g"), (1, 1, "D")),
    },
    large=LONG_ROWS,
    small={"B": 1, "T": 5, "D": 64},
)
declare(
    name="mean_pooling",
    launch=lambda x: call("ops.utils.pooling", "mean_pooling")(x, 4),
    reference=lambda x: x.unflatten(1, (-1, 4)).mean(2),
    shapes={"x": BTHD},
    large={"B": 16, "T": 65_536, "H": 32, "D": 128},
    small={"B": 1, "T": 8, "H": 2, "D": 16},
)
declare(
    name="row_softmax",
    launch=call("ops.utils.softmax", "softmax_fwd"),
    reference=lambda x: x.softmax(-1).float(),
    shapes={"x": ("T", "D")},
    large={"T": 131_072, "D": 32_768},
    small={"T": 3, "D": 50},
    directions=("fwd",),
)


def gated_sum(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The state decays by a gate before each token is added."""
    decay = g.sigmoid()
    states = [x[:, 0]]
    for token in range(1, x.shape[1]):
        decayed = decay[:, token] * states[-1]
        states.append(decayed + x[:, token])
    return torch.stack(states, 1)


declare(
    name="hgrn",
    launch=lambda x, g: call("ops.hgrn.fused_recurrent", "fused_recurrent_hgrn")(
        x, F.logsigmoid(g)
    )[0],
    reference=gated_sum,
    shapes={"x": ROWS, "g": ROWS},
    large={"B": 65_536, "T": 128, "D": 64},
    small={"B": 2, "T": 5, "D": 16},
)
declare(
    name="chunk_hgrn",
    launch=lambda x, g: call("ops.hgrn.chunk", "chunk_hgrn")(x, F.logsigmoid(g))[0],
    reference=gated_sum,
    shapes={"x": ROWS, "g": ROWS},
    large={"B": 16, "T": 131_072, "D": 1_024},
)
declare(
    name="wide_attention",
    launch=lambda q, k, v: call("ops.attn.parallel", "parallel_attn")(q=q, k=k, v=v),
    reference=lambda q, k, v: F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
    ).transpose(1, 2),
    shapes={"q": BTHD, "k": BTHD, "v": ("B", "T", "H", "V")},
    small={"B": 1, "T": 16, "H": 1, "D": 16, "V": 128},
)


def levels_of(length: int) -> torch.Tensor:
    """Level of each pair of tokens [T, T]: the bits in which their positions differ."""
    positions = torch.arange(length)
    differing = positions[:, None] ^ positions
    # the number of bits up to the highest one
    shifted = differing[..., None] >> torch.arange(32)
    return (shifted > 0).sum(-1)


def log_linear_reference(q: Any, k: Any, v: Any, g: Any, scales: Any) -> torch.Tensor:
    """Causal linear attention in which each pair's weight has a scale of its level; Guo et al.,
    2025.
    """
    decay = F.logsigmoid(g).cumsum(1).transpose(1, 2)
    pairs = decay[..., :, None] - decay[..., None, :]
    levels = levels_of(q.shape[1]).to(q.device)
    levels_of_heads = levels.expand(pairs.shape)
    scales_of_pairs = scales.transpose(1, 2).gather(-1, levels_of_heads)
    weights = pairs.exp().tril() * scales_of_pairs
    scores = torch.einsum("btgk,bsgk->bgts", q, k)
    return torch.einsum("bhts,bshv->bthv", weights * scores, v)


declare(
    name="log_linear_attention",
    launch=lambda q, k, v, g, scales: call("ops.log_linear_attn.chunk", "chunk_log_linear_attn")(
        q, k, v, F.logsigmoid(g), scales
    )[0],
    reference=log_linear_reference,
    shapes={
        "q": ("B", "T", 1, 64),
        "k": ("B", "T", 1, 64),
        "v": ("B", "T", "H", 16),
        "g": ("B", "T", "H"),
        "scales": ("B", "T", "H", 8),
    },
    small={"B": 1, "T": 80, "H": 1},
    directions=("fwd",),
)


def comba_reference(q: Any, k: Any, v: Any, p: Any, gate: Any, beta: Any) -> torch.Tensor:
    """A decaying state that is corrected by what keys of its own read; Hu et al., 2025."""
    batch, n_tokens, n_heads, value_width = v.shape
    key_width = k.shape[-1]
    heads_of_each = n_heads // q.shape[2]

    def normalised(x: Any) -> Any:
        """Vectors of length 1, shared by a group of heads."""
        return F.normalize(x, dim=-1).repeat_interleave(heads_of_each, 2)

    q = normalised(q)
    k = normalised(k)
    p = normalised(p)
    decay = F.logsigmoid(gate).exp()[..., None, None]
    rate = beta.sigmoid()[..., None]
    state = v.new_zeros(batch, n_heads, key_width, value_width)
    outputs: list[torch.Tensor] = []
    for t in range(n_tokens):
        # read before the decay
        known_values = torch.einsum("bhkv,bhk->bhv", state, p[:, t])
        correction = (v[:, t] - known_values) * rate[:, t]
        update = torch.einsum("bhk,bhv->bhkv", k[:, t], correction)
        state = state * decay[:, t] + update
        output = torch.einsum("bhk,bhkv->bhv", q[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, 1) / math.sqrt(key_width)


def grouped_comba(q: Any, k: Any, v: Any, p: Any, gate: Any, beta: Any) -> Any:
    results = call("ops.comba", "chunk_comba")(
        F.normalize(q, dim=-1),
        F.normalize(k, dim=-1),
        v,
        F.normalize(p, dim=-1),
        F.logsigmoid(gate),
        beta.sigmoid(),
    )
    # the second result is the last state
    return results[0]


declare(
    "grouped_comba",
    grouped_comba,
    comba_reference,
    {
        "q": ("B", "T", 1, 32),
        "k": ("B", "T", 1, 32),
        "v": ("B", "T", "H", 32),
        "p": ("B", "T", 1, 32),
        "gate": ("B", "T", "H"),
        "beta": ("B", "T", "H"),
    },
    small={"B": 1, "T": 40, "H": 2},
    directions=("fwd",),
)


def declare_long(
    name: str,
    launch: Callable[..., Any],
    shapes: Shapes,
    large: dict[str, int],
    directions: tuple[str, ...] = ("fwd", "bwd"),
) -> None:
    """Declare a kernel that is only analysed."""
    declare(
        name=name,
        launch=launch,
        reference=analysed_only,
        shapes=shapes,
        large=large,
        directions=directions,
    )


declare_long(
    "global_cumsum",
    call("ops.utils.cumsum", "chunk_global_cumsum"),
    {"s": BTHD},
    LONG,
    directions=("fwd",),
)
declare_long(
    "local_cumsum",
    lambda s: call("ops.utils.cumsum", "chunk_local_cumsum")(s, 64),
    {"s": BTHD},
    LONG,
    directions=("fwd",),
)
declare_long(
    "parallel_retention",
    lambda q, k, v: call("ops.retention", "parallel_retention")(q, k, v)[0],
    QKV,
    LONG,
)
declare_long(
    "rwkv7_keys",
    lambda k, a, ka: call("ops.rwkv7.fused_k_update", "fused_k_rwkv7")(k, a, ka),
    {"k": ROWS, "a": ROWS, "ka": ("D",)},
    LONG_ROWS,
)
declare_long(
    "rwkv7_gate",
    lambda o, r, k, rk, v, g: call("ops.rwkv7.gate_output_correction", "gate_output_correction")(
        o, r, k, rk, v, g
    ),
    {
        "o": ("B", "T", "C"),
        "r": BTHD,
        "k": BTHD,
        "rk": ("H", "D"),
        "v": BTHD,
        "g": ("B", "T", "C"),
    },
    {"B": 32, "T": 32_768, "H": 64, "D": 64, "C": 4_096},
)
declare_long(
    "rwkv7_mixing",
    lambda x, last, share, key, value: call("ops.rwkv7.channel_mixing", "channel_mixing_rwkv7")(
        x, last, share, key, value
    )[0],
    {
        "x": ROWS,
        "last": ("B", "D"),
        "share": ("D",),
        "key": ("D", "F"),
        "value": ("F", "D"),
    },
    {**LONG_ROWS, "F": 8_192},
)
declare_long(
    "rwkv4",
    lambda w, u, k, v, state: call("ops.rwkv4.fused_recurrent", "fused_recurrent_rwkv4")(
        w, u, k, v, state
    )[0],
    {
        "w": ("D",),
        "u": ("D",),
        "k": ROWS,
        "v": ROWS,
        "state": ("B", 3, 1, "D"),
    },
    LONG_ROWS,
)
declare_long(
    "recurrent_delta_rule",
    lambda q, k, v, beta: call("ops.delta_rule", "fused_recurrent_delta_rule")(q, k, v, beta)[0],
    {**QKV, "beta": BTH},
    LONG,
)
declare_long(
    "rwkv6",
    lambda q, k, v, w, u: call("ops.rwkv6", "chunk_rwkv6")(q, k, v, w, u)[0],
    {**QKV, "w": BTHD, "u": ("H", "D")},
    LONG,
    directions=("fwd",),
)
declare_long(
    "matmul",
    lambda a, b: call("ops.utils.matmul", "matmul")(a, b),
    {"a": ("M", "K"), "b": ("K", "N")},
    {"M": 1_048_576, "K": 4_096, "N": 4_096},
    directions=("fwd",),
)
declare_long(
    "kda",
    lambda q, k, v, g, beta: call("ops.kda", "chunk_kda")(q, k, v, g, beta)[0],
    {**QKV, "g": BTHD, "beta": BTH},
    LONG,
    directions=("fwd",),
)


def dpfp_reference(x: torch.Tensor) -> torch.Tensor:
    """Products of the positive and negative parts with their neighbours; Schlag et al., 2021."""
    parts = torch.cat((torch.relu(x), torch.relu(-x)), -1)
    return parts * parts.roll(1, -1)


declare(
    name="dpfp_features",
    launch=lambda x: call("modules.feature_map", "DPFPFeatureMap")(x.shape[-1], 1)(x),
    reference=dpfp_reference,
    shapes={"x": ("T", "D")},
    small={"T": 5, "D": 16},
)


def taylor_reference(x: torch.Tensor) -> torch.Tensor:
    """Terms of the second-order expansion of exp(q k / sqrt(D)); Arora et al., 2024."""
    width = x.shape[-1]
    products = x[..., :, None] * x[..., None, :]
    row, column = torch.triu_indices(width, width, 1, device=x.device)
    squares = products.diagonal(dim1=-2, dim2=-1) / math.sqrt(2 * width)
    mixed = products[..., row, column] / math.sqrt(width)
    linear = x / width**0.25
    return torch.cat((torch.ones_like(x[..., :1]), linear, squares, mixed), -1)


declare(
    name="taylor_features",
    launch=lambda x: call("modules.feature_map", "TaylorFeatureMap")(x.shape[-1])(x),
    reference=taylor_reference,
    shapes={"x": ("T", "D")},
    large={"T": 65_536, "D": 64},
    directions=("fwd",),
)

PADDED_TOKENS = 3
"""Tokens at the beginning that only fill the sequence."""


def padded_rotary_reference(x: Any, cos: Any, sin: Any) -> torch.Tensor:
    """Rotary embedding of [B, T, H, D]; tokens of the padding are zero."""
    tokens = x[:, PADDED_TOKENS:]
    first, second = tokens.chunk(2, -1)
    cos_of_tokens = cos[: tokens.shape[1], None]
    sin_of_tokens = sin[: tokens.shape[1], None]
    rotated_first = first * cos_of_tokens - second * sin_of_tokens
    rotated_second = first * sin_of_tokens + second * cos_of_tokens
    rotated = torch.cat((rotated_first, rotated_second), -1)
    return F.pad(rotated, (0, 0, 0, 0, PADDED_TOKENS, 0))


def padded_rotary(x: Any, cos: Any, sin: Any) -> Any:
    offsets = torch.full((x.shape[0],), -PADDED_TOKENS, device=x.device, dtype=torch.int32)
    return call("modules.rotary", "rotary_embedding")(x, cos, sin, seqlen_offsets=offsets)


declare(
    name="padded_rotary",
    launch=padded_rotary,
    reference=padded_rotary_reference,
    shapes={"x": BTHD, "cos": ("T", "R"), "sin": ("T", "R")},
    small={"B": 2, "T": 8, "H": 2, "D": 32, "R": 16},
    directions=("fwd",),
)


def masked_targets(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A class for each token; the first half of the tokens has none."""
    n_tokens = x.shape[0]
    targets = torch.arange(n_tokens, device=x.device) % weight.shape[0]
    is_ignored = torch.arange(n_tokens, device=x.device) < n_tokens // 2
    return targets.masked_fill(is_ignored, -100)


def penalised_head_reference(x: Any, weight: Any) -> torch.Tensor:
    """The loss, with the gradient of a penalty on the largest logit of every token."""
    logits = x @ weight.T
    loss = F.cross_entropy(logits, masked_targets(x, weight))
    penalty = logits.max(-1).values.square().mean() / 2
    return loss + penalty - penalty.detach()


declare(
    name="penalised_head",
    launch=lambda x, weight: call(
        "modules.fused_linear_cross_entropy", "fused_linear_cross_entropy_loss"
    )(x, masked_targets(x, weight), weight, use_l2warp=True, l2_penalty_factor=1.0),
    reference=penalised_head_reference,
    shapes={"x": ("T", "D"), "weight": ("V", "D")},
    small={"T": 16, "D": 16, "V": 40},
    directions=("bwd",),
)


def distillation_reference(x: Any, teacher_x: Any, weight: Any, teacher_weight: Any) -> Any:
    student = (x @ weight.T).log_softmax(-1)
    teacher = (teacher_x @ teacher_weight.T).softmax(-1)
    return F.kl_div(student, teacher, reduction="batchmean")


declare(
    name="distillation",
    launch=lambda x, teacher_x, weight, teacher_weight: call(
        "modules.fused_kl_div", "fused_kl_div_loss"
    )(x, teacher_x.detach(), weight, teacher_weight.detach()),
    reference=distillation_reference,
    shapes={
        "x": ("T", "D"),
        "teacher_x": ("T", "D"),
        "weight": ("V", "D"),
        "teacher_weight": ("V", "D"),
    },
    small={"T": 64, "D": 16, "V": 256},
    gradients=("x", "weight"),
    directions=("bwd",),
)
