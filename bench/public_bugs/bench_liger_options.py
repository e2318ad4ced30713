"""Functions of Liger-Kernel with options where a release was wrong."""

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases

MadeInputs = dict[str, Any]
"""Inputs of a case by name."""


def apply(module: str, function: str, *arguments: Any) -> Any:
    """Call an autograd function of the release that is on the import path."""
    # only now: the suite can be listed without a release
    operators = import_module(f"liger_kernel.ops.{module}")
    return getattr(operators, function).apply(*arguments)


def declare(
    name: str,
    make_inputs: Any,
    reference: Any,
    launch: Any,
    shape: dict[str, int],
    gradients: tuple[str, ...] | None = None,
    dtype: str = "float32",
    directions: tuple[str, ...] = ("fwd", "bwd"),
    interpreted_shape: dict[str, int] | None = None,
) -> None:
    """Declare a function with one size, and a smaller one for the interpreter."""
    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=cases(
            shapes=[shape],
            dtypes=[dtype],
            directions=directions,
            tags=["quick"],
        ),
        gradients=gradients,
        # only right and wrong count here, and no speed
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
        interpreted_shape=interpreted_shape or shape,
    )
    spec.implementation("triton")(launch)
    # the suite finds its kernels among the names of the module
    globals()[name] = spec


def head_inputs(case: Case, make: InputMaker) -> MadeInputs:
    tokens = case["tokens"]
    hidden = case["hidden"]
    vocabulary = case["vocabulary"]
    return {
        "x": make.normal(tokens, hidden),
        "weight": make.normal(vocabulary, hidden, scale=0.1),
        "bias": make.normal(vocabulary),
        "target": make.integers(tokens, high=vocabulary),
    }


def fused_head_loss(x: Any, weight: Any, bias: Any, target: Any, reduction: str) -> Any:
    class_weights = None
    ignored_target = -100
    log_sum_penalty = 0.0
    smoothing = 0.0
    results = apply(
        "fused_linear_cross_entropy",
        "LigerFusedLinearCrossEntropyFunction",
        x,
        weight,
        target,
        bias,
        class_weights,
        ignored_target,
        log_sum_penalty,
        smoothing,
        reduction,
    )
    # the loss comes first
    return results[0]


HEAD = {"tokens": 8, "hidden": 32, "vocabulary": 100}
declare(
    name="head_loss_of_each_token",
    make_inputs=head_inputs,
    reference=lambda x, weight, bias, target: F.cross_entropy(
        x @ weight.T + bias, target, reduction="none"
    ),
    launch=lambda x, weight, bias, target: fused_head_loss(
        x=x,
        weight=weight,
        bias=bias,
        target=target,
        reduction="none",
    ),
    shape=HEAD,
)
declare(
    name="head_loss",
    make_inputs=head_inputs,
    reference=lambda x, weight, bias, target: F.cross_entropy(x @ weight.T + bias, target),
    launch=lambda x, weight, bias, target: fused_head_loss(
        x=x,
        weight=weight,
        bias=bias,
        target=target,
        reduction="mean",
    ),
    shape=HEAD,
)


def norm_inputs(case: Case, make: InputMaker) -> MadeInputs:
    n_rows = case["n_rows"]
    n_cols = case["n_cols"]
    return {
        "x": make.normal(n_rows, n_cols),
        "weight": make.weights(n_cols),
        "bias": make.weights(n_cols),
    }


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return apply("layer_norm", "LigerLayerNormFunction", x, weight, bias, 1e-6)


def layer_norm_reference(x: Any, weight: Any, bias: Any) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-6)


declare(
    name="layer_norm_in_single",
    make_inputs=norm_inputs,
    reference=layer_norm_reference,
    launch=layer_norm,
    shape={"n_rows": 4, "n_cols": 96},
)
declare(
    name="layer_norm_forward",
    make_inputs=norm_inputs,
    reference=layer_norm_reference,
    launch=layer_norm,
    shape={"n_rows": 4, "n_cols": 96},
    dtype="bfloat16",
    directions=("fwd",),
)

FROZEN = {"n_rows": 4_096, "n_cols": 1_024}
declare(
    name="frozen_layer_norm",
    make_inputs=norm_inputs,
    reference=layer_norm_reference,
    launch=layer_norm,
    shape=FROZEN,
    interpreted_shape={"n_rows": 4, "n_cols": 96},
    gradients=("x",),
    directions=("bwd",),
)


def scale_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.weights(case["n_cols"]),
    }


declare(
    name="frozen_rms_norm",
    make_inputs=scale_inputs,
    reference=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
    launch=lambda x, weight: apply("rms_norm", "LigerRMSNormFunction", x, weight, 1e-6),
    shape=FROZEN,
    interpreted_shape={"n_rows": 4, "n_cols": 96},
    gradients=("x",),
    directions=("bwd",),
)


def rotary_inputs(case: Case, make: InputMaker) -> MadeInputs:
    tokens = case["tokens"]
    return {
        "q": make.normal(1, 2, tokens, 64),
        "k": make.normal(1, 2, tokens, 64),
        "angles": make.normal(tokens, case["rotated"] // 2),
    }


def rotate_halves(x: Any, angles: Any) -> Any:
    """Rotate the first columns, twice as many as there are angles."""
    rotated_count = 2 * angles.shape[-1]
    first, second = x[..., :rotated_count].chunk(2, -1)
    cos = angles.cos()
    sin = angles.sin()
    rotated_first = first * cos - second * sin
    rotated_second = second * cos + first * sin
    unchanged = x[..., rotated_count:]
    return torch.cat((rotated_first, rotated_second, unchanged), -1)


def partial_rotary(q: Any, k: Any, angles: Any) -> Any:
    # Liger expects an angle for each element of both halves
    of_both_halves = torch.cat((angles, angles), -1)[None]
    cos = of_both_halves.cos()
    sin = of_both_halves.sin()
    return apply("rope", "LigerRopeFunction", q, k, cos, sin)


declare(
    name="partial_rotary",
    make_inputs=rotary_inputs,
    reference=lambda q, k, angles: (rotate_halves(q, angles), rotate_halves(k, angles)),
    launch=partial_rotary,
    shape={"tokens": 6, "rotated": 32},
    gradients=("q", "k"),
)


def policy_inputs(case: Case, make: InputMaker) -> MadeInputs:
    batch = case["batch"]
    tokens = case["tokens"]
    vocabulary = case["vocabulary"]
    return {
        "logits": make.logits(batch, tokens + 1, vocabulary),
        "old_logp": make.normal(batch, tokens, scale=0.3),
        "ref_logp": make.normal(batch, tokens, scale=0.3),
        "token": make.integers(batch, tokens, high=vocabulary),
        "advantage": make.normal(batch),
    }


def policy_reference(
    logits: Any,
    old_logp: Any,
    ref_logp: Any,
    token: Any,
    advantage: Any,
) -> torch.Tensor:
    """Losses of group sequence policy optimisation, with a divergence weighted by the ratio."""
    # the last position predicts no token
    vocabulary_logp = logits[:, :-1].log_softmax(-1)
    logp = vocabulary_logp.gather(-1, token[..., None])[..., 0]
    # one ratio for the whole sequence
    ratio = (logp - old_logp).mean(-1, keepdim=True).exp()
    surprise = ref_logp - logp
    divergence = (surprise.exp() - surprise - 1) * ratio
    advantage_column = advantage[:, None]
    gain = ratio * advantage_column
    clipped_gain = ratio.clamp(0.8, 1.2) * advantage_column
    return 0.5 * divergence - torch.minimum(gain, clipped_gain)


def policy_loss(
    logits: Any,
    old_logp: Any,
    ref_logp: Any,
    token: Any,
    advantage: Any,
) -> torch.Tensor:
    no_mask = None
    in_place = False
    length = None
    is_reduced = False
    delta = None
    clipping = (1.0, 0.5, 0.2, 0.2)
    options = (in_place, "grpo", length, is_reduced, "sequence", 1.0, 1.05, None, delta, True)
    inputs = (
        logits,
        old_logp,
        ref_logp,
        token,
        advantage,
        no_mask,
    )
    results = apply("grpo_loss", "GrpoLossFunction", *inputs, *clipping, *options)
    loss: torch.Tensor = results[0]
    return loss


declare(
    name="sequence_policy",
    make_inputs=policy_inputs,
    reference=policy_reference,
    launch=policy_loss,
    shape={"batch": 3, "tokens": 5, "vocabulary": 40},
    gradients=("logits",),
)


def saturation_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "alpha": make.weights(1),
        "gamma": make.weights(case["n_cols"]),
        "beta": make.weights(case["n_cols"]),
    }


declare(
    name="dynamic_tanh",
    make_inputs=saturation_inputs,
    reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    launch=lambda x, alpha, gamma, beta: apply("dyt", "LigerDyTFunction", x, alpha, gamma, beta),
    shape={"n_rows": 65_536, "n_cols": 1_024},
    interpreted_shape={"n_rows": 4, "n_cols": 96},
    dtype="bfloat16",
    directions=("bwd",),
)


def inputs_without_bias(case: Case, make: InputMaker) -> MadeInputs:
    inputs = head_inputs(case, make)
    del inputs["bias"]
    return inputs


declare(
    name="head_loss_without_bias",
    make_inputs=inputs_without_bias,
    reference=lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    launch=lambda x, weight, target: fused_head_loss(
        x=x,
        weight=weight,
        bias=None,
        target=target,
        reduction="mean",
    ),
    shape=HEAD,
    directions=("fwd",),
)
