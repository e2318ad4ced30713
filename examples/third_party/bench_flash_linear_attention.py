"""Thirteen kernels of flash-linear-attention, forward and backward. They need: pip install
fla-core==0.6.0
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from fla.modules.activations import logsigmoid, swiglu
from fla.modules.convolution import causal_conv1d
from fla.modules.fused_norm_gate import rms_norm_gated
from fla.modules.l2norm import l2norm
from fla.modules.layernorm import group_norm
from fla.modules.rotary import rotary_embedding
from fla.modules.token_shift import token_shift
from fla.ops.delta_rule import fused_recurrent_delta_rule
from fla.ops.gla import fused_recurrent_gla
from fla.ops.hgrn import fused_recurrent_hgrn
from fla.ops.linear_attn import fused_recurrent_linear_attn
from fla.ops.retention import fused_recurrent_retention
from torch import Tensor
from torch.nn import functional

from roofwatch import Case, InputMaker, KernelSpec, cases

BOTH = ("fwd", "bwd")


def token_elements(case: Case) -> int:
    """Elements of a tensor [B, T, D]."""
    return case["B"] * case["T"] * case["D"]


def head_elements(case: Case) -> int:
    """Elements of a tensor [B, T, H, D]."""
    return math.prod(head_shape(case))


def flop_count_of_tokens(case: Case) -> float:
    """Of the order of a norm or an activation: ten operations for each element."""
    passes = 1 + case.is_backward
    return 10 * token_elements(case) * passes


def memory_bytes_of_tokens(case: Case) -> float:
    """One tensor is read and one written; the backward pass reads another."""
    tensors = 2 + case.is_backward
    return tensors * token_elements(case) * case.itemsize


def flop_count_of_recurrence(case: Case) -> float:
    """Per token and head, the state of D x D numbers is decayed, updated and read."""
    passes = 1 + 2 * case.is_backward
    return 5 * head_elements(case) * case["D"] * passes


def memory_bytes_of_recurrence(case: Case) -> float:
    """Queries, keys, values and outputs; the state stays on chip."""
    return 4 * head_elements(case) * case.itemsize


# What all kernels that map tokens to tokens share.
TOKENS = {
    "cases": cases(
        shapes=[{"B": 2, "T": 2048, "D": 1024}],
        dtypes=["float32", "bfloat16"],
        directions=BOTH,
    ),
    # Odd lengths: the last tile is not full.
    "edges": cases(shapes=[{"B": 1, "T": 7, "D": 96}], directions=BOTH),
    # Triton's interpreter is slow.
    "interpreted_shape": {"T": 8, "D": 64},
    "flop_count": flop_count_of_tokens,
    "memory_bytes": memory_bytes_of_tokens,
}
# What all kernels that go token by token share.
RECURRENT = {
    "cases": cases(
        shapes=[
            {
                "B": 2,
                "T": 512,
                "H": 4,
                "D": 64,
            }
        ],
        directions=BOTH,
    ),
    "edges": cases(
        shapes=[
            {
                "B": 1,
                "T": 5,
                "H": 2,
                "D": 32,
            }
        ],
        directions=BOTH,
    ),
    "interpreted_shape": {
        "B": 1,
        "T": 6,
        "H": 2,
        "D": 32,
    },
    "flop_count": flop_count_of_recurrence,
    "memory_bytes": memory_bytes_of_recurrence,
}


def kernel(name: str, launch: Callable, **declared: Any) -> KernelSpec:
    """Declare a kernel of the library; `launch` takes the inputs by name."""
    spec = KernelSpec(
        name=f"fla.{name}",
        family="flash-linear-attention",
        **declared,
    )
    spec.implementation("triton")(launch)
    return spec


def tokens(case: Case, make: InputMaker) -> Tensor:
    """The input of most kernels: [B, T, D]."""
    return make.normal(case["B"], case["T"], case["D"])


def only_tokens(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {"x": tokens(case, make)}


def head_shape(case: Case) -> tuple[int, ...]:
    """Lengths of a tensor [B, T, H, D]."""
    return (
        case["B"],
        case["T"],
        case["H"],
        case["D"],
    )


def queries(case: Case, make: InputMaker) -> dict[str, Tensor]:
    """Queries, keys and values, all [B, T, H, D]."""
    shape = head_shape(case)
    # Keys of length 1 keep the state of a delta rule bounded.
    keys = functional.normalize(make.normal(*shape), dim=-1)
    return {
        "q": make.normal(*shape),
        "k": keys,
        "v": make.normal(*shape),
    }


def recurrence(
    q,
    k,
    v,
    decay=None,
    beta=None,
):
    """One token after the other: S = decay S + k v, and the output is q S / sqrt(D); all are [B, T,
    H, D].

    With the delta rule's beta [B, T, H], v is replaced by beta (v - k S).
    """
    batch, length, heads, key_size = q.shape
    state = q.new_zeros(batch, heads, key_size, v.shape[3])  # [B, H, D, D]
    outputs = []
    for step in range(length):
        key = k[:, step]
        value = v[:, step]
        if decay is not None:
            state = state * decay[:, step, :, :, None]
        if beta is not None:
            # What the state already returns for this key is not added again.
            remembered = torch.einsum("bhk,bhkv->bhv", key, state)
            value = (value - remembered) * beta[:, step, :, None]
        update = key[:, :, :, None] * value[:, :, None, :]
        state = state + update
        output = torch.einsum("bhk,bhkv->bhv", q[:, step], state)
        outputs.append(output)
    return torch.stack(outputs, 1) / key_size**0.5


def rms_norm_gated_reference(x, gate, weight):
    """The gate comes after the norm."""
    normalized = functional.rms_norm(x, x.shape[-1:], weight, 1e-6)
    return normalized * functional.silu(gate)


def group_norm_reference(x, weight, bias):
    """Four groups of channels, which PyTorch wants in the second dim."""
    channels_second = x.flatten(0, 1)
    normalized = functional.group_norm(channels_second, 4, weight, bias, 1e-5)
    return normalized.view_as(x)


def l2_norm_reference(x):
    squared_lengths = x.square().sum(-1, keepdim=True)
    # The library's epsilon; a row of zeros stays one.
    lengths = (squared_lengths + 1e-6).sqrt()
    return x / lengths


l2_norm_spec = kernel(
    "l2_norm",
    lambda x: l2norm(x),
    inputs=only_tokens,
    reference=l2_norm_reference,
    **TOKENS,
)

rms_norm_gated_spec = kernel(
    "rms_norm_gated",
    # Without a bias.
    lambda x, gate, weight: rms_norm_gated(x, gate, weight, None),
    inputs=lambda case, make: {
        "x": tokens(case, make),
        "gate": tokens(case, make),
        "weight": make.normal(case["D"]),
    },
    reference=rms_norm_gated_reference,
    **TOKENS,
)

group_norm_spec = kernel(
    "group_norm",
    lambda x, weight, bias: group_norm(x, weight, bias, num_groups=4),
    inputs=lambda case, make: {
        "x": tokens(case, make),
        "weight": make.normal(case["D"]),
        "bias": make.normal(case["D"]),
    },
    reference=group_norm_reference,
    source="Wu and He, Group Normalization, 2018",
    **TOKENS,
)

swiglu_spec = kernel(
    "swiglu",
    lambda gate, up: swiglu(gate, up),
    inputs=lambda case, make: {
        "gate": tokens(case, make),
        "up": tokens(case, make),
    },
    reference=lambda gate, up: functional.silu(gate) * up,
    source="Shazeer, GLU Variants Improve Transformer, 2020",
    **TOKENS,
)

log_sigmoid_spec = kernel(
    "log_sigmoid",
    lambda x: logsigmoid(x),
    inputs=only_tokens,
    reference=lambda x: functional.logsigmoid(x),
    **TOKENS,
)

token_shift_spec = kernel(
    "token_shift",
    lambda x: token_shift(x),
    inputs=only_tokens,
    # The token before minus this one; zero before the first.
    reference=lambda x: functional.pad(x, (0, 0, 1, -1)) - x,
    **TOKENS,
)


def convolution_reference(x, weight):
    """Each channel by itself over the last four tokens."""
    channels_first = functional.pad(x.mT, (3, 0))
    channels = x.shape[-1]
    convolved = functional.conv1d(channels_first, weight[:, None], groups=channels)
    return functional.silu(convolved.mT)


causal_conv1d_spec = kernel(
    "causal_conv1d",
    lambda x, weight: causal_conv1d(x, weight, activation="silu")[0],
    inputs=lambda case, make: {
        "x": tokens(case, make),
        "weight": make.normal(case["D"], 4),
    },
    reference=convolution_reference,
    **TOKENS,
)


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate pairs of elements, one from each half of the last dim."""
    low, high = x.chunk(2, -1)
    # [T, 1, D / 2]: heads share the angles.
    cos = angle.cos()[:, None]
    sin = angle.sin()[:, None]
    rotated_low = low * cos - high * sin
    rotated_high = high * cos + low * sin
    return torch.cat((rotated_low, rotated_high), -1)


rotary_spec = kernel(
    "rotary",
    lambda x, angle: rotary_embedding(x, angle.cos(), angle.sin()),
    inputs=lambda case, make: {
        "x": queries(case, make)["q"],
        # One angle for each pair of elements.
        "angle": make.uniform(case["T"], case["D"] // 2, low=0, high=6.28),
    },
    reference=rotate,
    # Angles are constants of a model.
    gradients=("x",),
    source="Su et al., RoFormer, 2021",
    **RECURRENT,
)


def hgrn_reference(x, gate):
    """A recurrence of single numbers: h = exp(gate) h + x."""
    # The loop of a recurrent network, which the kernel keeps in registers.
    state = torch.zeros_like(x[:, 0])
    states = []
    for step in range(x.shape[1]):
        decay = gate[:, step].exp()
        state = decay * state + x[:, step]
        states.append(state)
    return torch.stack(states, 1)


hgrn_spec = kernel(
    "hgrn",
    lambda x, gate: fused_recurrent_hgrn(x, gate)[0],
    inputs=lambda case, make: {
        "x": tokens(case, make),
        "gate": functional.logsigmoid(tokens(case, make)),
    },
    reference=hgrn_reference,
    source="Qin et al., Hierarchically Gated Recurrent Neural Network, 2023",
    # The reference goes token by token, so fewer of them.
    **TOKENS | {"cases": cases(shapes=[{"B": 2, "T": 512, "D": 1024}], directions=BOTH)},
)

linear_attention_spec = kernel(
    "linear_attention",
    # The second result is the last state.
    lambda q, k, v: fused_recurrent_linear_attn(q, k, v)[0],
    inputs=queries,
    reference=recurrence,
    source="Katharopoulos et al., Transformers are RNNs, 2020",
    **RECURRENT,
)


def gla_inputs(case: Case, make: InputMaker) -> dict[str, Tensor]:
    """Queries, keys, values, and a gate for each element of the state's rows."""
    logits = make.normal(*head_shape(case))
    return {
        **queries(case, make),
        # The logarithm of a decay between 0 and 1.
        "gate": functional.logsigmoid(logits),
    }


gla_spec = kernel(
    "gated_linear_attention",
    lambda q, k, v, gate: fused_recurrent_gla(q, k, v, gate)[0],
    inputs=gla_inputs,
    reference=lambda q, k, v, gate: recurrence(q, k, v, decay=gate.exp()),
    source="Yang et al., Gated Linear Attention Transformers, 2023",
    **RECURRENT,
)


def retention_reference(q, k, v):
    # Each head forgets half as fast as the one before it; Sun et al., 2023.
    heads = torch.arange(q.shape[2], dtype=q.dtype, device=q.device)
    decay_of_heads = 1 - torch.exp2(-5 - heads)
    # All elements of a head share its decay.
    decay = decay_of_heads[:, None].expand_as(q)
    return recurrence(q, k, v, decay=decay)


retention_spec = kernel(
    "retention",
    lambda q, k, v: fused_recurrent_retention(q, k, v)[0],
    inputs=queries,
    reference=retention_reference,
    source="Sun et al., Retentive Network, 2023",
    **RECURRENT,
)


delta_rule_spec = kernel(
    "delta_rule",
    lambda q, k, v, beta: fused_recurrent_delta_rule(q, k, v, beta)[0],
    inputs=lambda case, make: {
        **queries(case, make),
        # How much of the old value is replaced.
        "beta": make.uniform(
            case["B"],
            case["T"],
            case["H"],
            low=0,
            high=1,
        ),
    },
    reference=lambda q, k, v, beta: recurrence(q, k, v, beta=beta),
    source="Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024",
    **RECURRENT,
)
