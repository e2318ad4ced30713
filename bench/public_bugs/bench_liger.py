"""Kernels of Liger-Kernel at sizes where a release was wrong."""

import math
from importlib import import_module
from inspect import signature
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
    large: dict[str, int] | None = None,
    gradients: tuple[str, ...] | None = None,
    mutates: tuple[str, ...] = (),
    **small: int,
) -> None:
    """Declare a kernel with a small case that is compared and a large one that is analysed."""
    of_every_case: Any = {"dtypes": ["bfloat16"], "directions": ["fwd", "bwd"]}
    large_cases = []
    if large is not None:
        large_cases = cases(shapes=[large], tags=["large"], **of_every_case)
    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=[*cases(shapes=[small], tags=["quick"], **of_every_case), *large_cases],
        gradients=gradients,
        mutates=mutates,
        # only right and wrong count here, and no speed
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
        interpreted_shape=small,
    )
    spec.implementation("triton")(launch)
    # the suite finds its kernels among the names of the module
    globals()[name] = spec


def elementwise(name: str, inputs: list[str], reference: Any, launch: Any, **shape: int) -> None:
    """Declare a function of matrices, at a small and a large size."""

    def make_inputs(case: Case, make: InputMaker) -> MadeInputs:
        shape = (case["n_rows"], case["n_cols"])
        return {key: make.normal(*shape) for key in inputs}

    mutates: tuple[str, ...] = ()
    # backward passes of these write gradients into what the forward pass saved
    if name in {"swiglu", "geglu"}:
        mutates = tuple(inputs)
    declare(
        name=name,
        make_inputs=make_inputs,
        reference=reference,
        launch=launch,
        large=shape,
        mutates=mutates,
        n_rows=4,
        n_cols=96,
    )


def sparsemax_reference(x: torch.Tensor) -> torch.Tensor:
    """The projection onto the simplex; Martins and Astudillo, 2016."""
    ordered = x.sort(-1, descending=True).values
    n_cols = x.shape[-1]
    counts = torch.arange(1, n_cols + 1, device=x.device)
    # the largest values whose mean excess over 1 they all exceed
    excess = ordered.cumsum(-1) - 1
    support = (ordered * counts > excess).sum(-1, keepdim=True)
    threshold = excess.gather(-1, support - 1) / support
    return torch.relu(x - threshold)


elementwise(
    name="swiglu",
    inputs=["a", "b"],
    reference=lambda a, b: F.silu(a) * b,
    launch=lambda a, b: apply("swiglu", "LigerSiLUMulFunction", a, b),
    n_rows=262_144,
    n_cols=14_336,
)
elementwise(
    name="geglu",
    inputs=["a", "b"],
    reference=lambda a, b: F.gelu(a, approximate="tanh") * b,
    launch=lambda a, b: apply("geglu", "LigerGELUMulFunction", a, b),
    n_rows=262_144,
    n_cols=14_336,
)
elementwise(
    name="softmax",
    inputs=["x"],
    reference=lambda x: torch.softmax(x, -1),
    launch=lambda x: apply("softmax", "LigerSoftmaxFunction", x),
    n_rows=65_536,
    n_cols=65_536,
)
elementwise(
    name="sparsemax",
    inputs=["x"],
    reference=sparsemax_reference,
    launch=lambda x: apply("sparsemax", "LigerSparsemaxFunction", x, -1),
    n_rows=131_072,
    n_cols=32_768,
)


def norm_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.weights(case["n_cols"]),
    }


# many short rows overflow other offsets than few long ones
for norm_name, n_rows, n_cols in (
    ("rms_norm", 1_000_000, 4_096),
    ("rms_norm_rows", 16_777_216, 256),
):
    declare(
        name=norm_name,
        make_inputs=norm_inputs,
        reference=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
        launch=lambda x, weight: apply("rms_norm", "LigerRMSNormFunction", x, weight, 1e-6),
        large={"n_rows": n_rows, "n_cols": n_cols},
        n_rows=4,
        n_cols=96,
    )


def layer_norm_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {**norm_inputs(case, make), "bias": make.weights(case["n_cols"])}


declare(
    name="layer_norm",
    make_inputs=layer_norm_inputs,
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-6),
    launch=lambda x, weight, bias: apply(
        "layer_norm", "LigerLayerNormFunction", x, weight, bias, 1e-6
    ),
    large={"n_rows": 1_000_000, "n_cols": 4_096},
    n_rows=4,
    n_cols=96,
)


def dyt_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.gates(case["n_rows"], case["n_cols"]),
        "alpha": make.weights(1),
        "gamma": make.weights(case["n_cols"]),
        "beta": make.weights(case["n_cols"]),
    }


declare(
    name="dyt",
    make_inputs=dyt_inputs,
    reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    launch=lambda x, alpha, gamma, beta: apply("dyt", "LigerDyTFunction", x, alpha, gamma, beta),
    large={"n_rows": 60_000, "n_cols": 65_536},
    n_rows=4,
    n_cols=96,
)


def rope_inputs(case: Case, make: InputMaker) -> MadeInputs:
    batch = case["batch"]
    tokens = case["tokens"]
    heads = case["heads"]
    return {
        "q": make.normal(batch, heads, tokens, 128),
        "k": make.normal(batch, heads, tokens, 128),
        "cos": make.weights(1, tokens, 64).repeat(1, 1, 2),
        "sin": make.weights(1, tokens, 64).repeat(1, 1, 2),
    }


def rope_reference(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    def rotated(x: Any) -> Any:
        first = x[..., :64]
        second = x[..., 64:]
        swapped = torch.cat((-second, first), -1)
        # heads share the angles
        return x * cos.unsqueeze(1) + swapped * sin.unsqueeze(1)

    return rotated(q), rotated(k)


declare(
    name="rope",
    make_inputs=rope_inputs,
    reference=rope_reference,
    launch=lambda q, k, cos, sin: apply("rope", "LigerRopeFunction", q, k, cos, sin),
    large={"batch": 1, "tokens": 1_048_576, "heads": 32},
    gradients=("q", "k"),
    batch=1,
    tokens=4,
    heads=2,
)


def pair_of_values(case: Case, make: InputMaker) -> MadeInputs:
    shape = (case["n_rows"], case["n_cols"])
    return {
        "p": make.normal(*shape, dtype="float32"),
        "q": make.normal(*shape, dtype="float32"),
    }


declare(
    name="tvd",
    make_inputs=pair_of_values,
    reference=lambda p, q: (p - q).abs().sum() / 2 / p.shape[0],
    launch=lambda p, q: apply("tvd", "LigerTVDLossFunction", p, q),
    gradients=("p",),
    n_rows=4,
    n_cols=96,
)


def image_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.normal(case["batch"], 8, case["height"], 16, dtype="float32"),
        "weight": make.weights(8, dtype="float32"),
        "bias": make.weights(8, dtype="float32"),
    }


declare(
    name="group_norm",
    make_inputs=image_inputs,
    reference=lambda x, weight, bias: F.group_norm(x, 2, weight, bias, 1e-6),
    launch=lambda x, weight, bias: apply(
        "group_norm", "LigerGroupNormFunction", x, weight, bias, 8, 2, 1e-6
    ),
    batch=2,
    height=4,
)


def loss_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "x": make.logits(case["n_rows"], case["n_cols"]),
        "target": make.integers(case["n_rows"], high=case["n_cols"]),
    }


def cross_entropy_loss(x: torch.Tensor, target: torch.Tensor) -> Any:
    function = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    # before 0.5, classes had no weights
    has_weights = "weight" in signature(function.forward).parameters
    options: list[None] = []
    if has_weights:
        options.append(None)
    return function.apply(x, target, *options)[0]


declare(
    name="cross_entropy",
    make_inputs=loss_inputs,
    reference=lambda x, target: F.cross_entropy(x, target),
    launch=cross_entropy_loss,
    mutates=("x",),
    n_rows=8,
    n_cols=512,
)


def head_inputs(case: Case, make: InputMaker) -> MadeInputs:
    tokens = case["tokens"]
    hidden = case["hidden"]
    vocabulary = case["vocabulary"]
    return {
        "x": make.normal(tokens, hidden),
        "weight": make.normal(vocabulary, hidden, scale=0.02),
        "target": make.integers(tokens, high=vocabulary),
    }


declare(
    name="linear_cross_entropy",
    make_inputs=head_inputs,
    reference=lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    launch=lambda x, weight, target: apply(
        "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction", x, weight, target
    )[0],
    large={"tokens": 8_192, "hidden": 4_096, "vocabulary": 128_256},
    tokens=8,
    hidden=64,
    vocabulary=512,
)


def pair_of_logits(case: Case, make: InputMaker) -> MadeInputs:
    shape = (case["n_rows"], case["n_cols"])
    return {
        "x": make.logits(*shape, dtype="float32"),
        "target_logits": make.logits(*shape, dtype="float32"),
    }


def capped_loss(x: torch.Tensor, target: torch.Tensor) -> Any:
    options = (None, -100, 0.0, 0.0, "mean", 20.0)
    return apply("cross_entropy", "LigerCrossEntropyFunction", x, target, *options)[0]


declare(
    name="capped_cross_entropy",
    make_inputs=lambda case, make: {
        "x": make.logits(case["n_rows"], case["n_cols"], dtype="float32"),
        "target": make.integers(case["n_rows"], high=case["n_cols"]),
    },
    reference=lambda x, target: F.cross_entropy(20 * torch.tanh(x / 20), target),
    launch=capped_loss,
    mutates=("x",),
    n_rows=4,
    n_cols=100,
)


def jsd_reference(x: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """The mean of both divergences from the mixture, in the logarithm throughout."""
    q = x.log_softmax(-1)
    p = target_logits.log_softmax(-1)
    total = torch.logsumexp(torch.stack((p, q)), 0)
    # half of the sum of both
    mixture = total - math.log(2)
    divergence_of_p = (p.exp() * (p - mixture)).sum()
    divergence_of_q = (q.exp() * (q - mixture)).sum()
    return (divergence_of_p + divergence_of_q) / 2 / x.shape[0]


declare(
    name="jsd",
    make_inputs=pair_of_logits,
    reference=jsd_reference,
    launch=lambda x, target_logits: apply(
        "jsd", "LigerJSDFunction", x.log_softmax(-1), target_logits.log_softmax(-1), None, 0.5, -100
    ),
    gradients=("x",),
    n_rows=4,
    n_cols=100,
)

declare(
    name="kl_div",
    make_inputs=pair_of_logits,
    reference=lambda x, target_logits: F.kl_div(
        x.log_softmax(-1), target_logits.softmax(-1), reduction="sum"
    ),
    launch=lambda x, target_logits: apply(
        "kl_div",
        "LigerKLDivLossFunction",
        x.log_softmax(-1),
        target_logits.softmax(-1),
        "sum",
        False,
    ),
    gradients=("x",),
    n_rows=2,
    n_cols=70_000,
)


def block_inputs(case: Case, make: InputMaker) -> MadeInputs:
    return {
        "values": make.normal(case["blocks"], 1, 3, 32, dtype="float32"),
        "query": make.normal(32, dtype="float32"),
        "weight": make.weights(32, dtype="float32"),
    }


def block_reference(values: Any, query: Any, weight: Any) -> Any:
    normed = F.rms_norm(values, (32,), weight, 1e-6)
    scores = (normed * query).sum(-1)
    shares = scores.softmax(0)[..., None]
    return (shares * values).sum(0)


declare(
    name="attn_res",
    make_inputs=block_inputs,
    reference=block_reference,
    launch=lambda values, query, weight: apply(
        "attn_res", "LigerAttnResFunction", values, query, weight, 1e-6
    ),
    blocks=40,
)


def sections_inputs(case: Case, make: InputMaker) -> MadeInputs:
    batch = case["batch"]
    tokens = case["tokens"]
    heads = case["heads"]
    return {
        "q": make.normal(batch, heads, tokens, 128),
        "k": make.normal(batch, heads, tokens, 128),
        "cos": make.weights(3, batch, tokens, 128),
        "sin": make.weights(3, batch, tokens, 128),
    }


def sections_reference(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Each third of the columns has the angles of its own coordinate: time, height, width."""
    # the sections of Qwen2-VL: 16 columns for time, 24 each for height and width
    coordinates = [0] * 16 + [1] * 24 + [2] * 24

    def of_coordinates(angles: Any) -> Any:
        columns: list[torch.Tensor] = []
        for column, axis in enumerate(coordinates):
            columns.append(angles[axis, :, :, column])
        # both halves of the columns have the same angles
        return torch.stack(columns, -1).repeat(1, 1, 2)

    return rope_reference(
        q=q,
        k=k,
        cos=of_coordinates(cos),
        sin=of_coordinates(sin),
    )


declare(
    name="mrope",
    make_inputs=sections_inputs,
    reference=sections_reference,
    launch=lambda q, k, cos, sin: apply(
        "qwen2vl_mrope", "LigerQwen2VLMRopeFunction", q.clone(), k.clone(), cos, sin, [16, 24, 24]
    ),
    large={"batch": 64, "tokens": 16_384, "heads": 32},
    gradients=("q", "k"),
    batch=2,
    tokens=4,
    heads=2,
)
