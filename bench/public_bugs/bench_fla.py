"""Kernels of flash-linear-attention at sizes where a release was wrong.

Small cases are compared with a plain reference. Large ones are analysed and never run.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases

Shapes = dict[str, tuple[str | int, ...]]


def call(module: str, function: str) -> Callable[..., Any]:
    """A function of the release that is on the import path, imported when it is called."""

    def launch(*inputs: Any, **arguments: Any) -> Any:
        return getattr(import_module(f"fla.{module}"), function)(*inputs, **arguments)

    return launch


def declare(
    name: str,
    launch: Callable[..., Any],
    reference: Callable[..., Any],
    shapes: Shapes,
    large: dict[str, int],
    *,
    small: dict[str, int] | None = None,
    directions: tuple[str, ...] = ("fwd", "bwd"),
) -> None:
    """Declare a kernel whose inputs have the lengths of the case's dims; without a small size, it
    is only analysed.
    """
    of_every_case = {"dtypes": ["bfloat16"], "directions": directions}
    # a bug of large sizes needs no small case
    small_cases = [] if small is None else cases(shapes=[small], tags=["quick"], **of_every_case)

    def make_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for key, dims in shapes.items():
            inputs[key] = make.normal(*[case[d] if isinstance(d, str) else d for d in dims])
        return inputs

    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=[*small_cases, *cases(shapes=[large], tags=["large"], **of_every_case)],
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
declare(
    name="l2norm",
    launch=call("modules.l2norm", "l2norm"),
    reference=lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
    shapes={"x": ("T", "D")},
    large={"T": 4_194_304, "D": 1_024},
    small={"T": 5, "D": 64},
)
declare(
    name="rms_norm",
    launch=call("modules.layernorm", "rms_norm"),
    reference=lambda x, weight, bias: F.rms_norm(x, weight.shape, weight, 1e-5) + bias,
    shapes={"x": ("T", "D"), "weight": ("D",), "bias": ("D",)},
    large={"T": 1_048_576, "D": 4_096},
    small={"T": 5, "D": 64},
)
declare(
    name="rms_norm_gated",
    launch=call("modules.fused_norm_gate", "rms_norm_gated"),
    reference=lambda x, g, weight, bias: (
        (F.rms_norm(x, weight.shape, weight, 1e-5) + bias) * F.silu(g)
    ),
    shapes={"x": ("T", "D"), "g": ("T", "D"), "weight": ("D",), "bias": ("D",)},
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
    shapes={"x": ("B", "T", "D")},
    large={"B": 32, "T": 65_536, "D": 2_048},
    small={"B": 2, "T": 5, "D": 64},
)
declare(
    name="token_shift_long",
    launch=call("modules.token_shift", "token_shift"),
    reference=lambda x: F.pad(x, (0, 0, 1, -1)) - x,
    shapes={"x": ("B", "T", "D")},
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
declare(
    name="causal_conv1d",
    launch=lambda x, weight: call("modules.convolution", "causal_conv1d")(x=x, weight=weight)[0],
    reference=lambda x, weight: (
        F.conv1d(F.pad(x.mT, (weight.shape[1] - 1, 0)), weight[:, None], groups=weight.shape[0]).mT
    ),
    shapes={"x": ("B", "T", "D"), "weight": ("D", 4)},
    large={"B": 32, "T": 65_536, "D": 2_048},
    small={"B": 1, "T": 5, "D": 64},
)
declare(
    name="attention",
    launch=lambda q, k, v: call("ops.attn.parallel", "parallel_attn")(q=q, k=k, v=v),
    reference=analysed_only,
    shapes={"q": BTHD, "k": BTHD, "v": BTHD},
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
    shapes={"q": BTHD, "k": BTHD, "v": BTHD, "w": BTHD, "beta": BTH},
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
    shapes={"q": BTHD, "k": BTHD, "v": BTHD, "beta": BTH},
    large={"B": 16, "T": 32_768, "H": 64, "D": 128},
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
    shapes={"q": BTHD, "k": BTHD, "v": BTHD, "g": BTHD},
    large={"B": 16, "T": 32_768, "H": 64, "D": 128},
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
        "h": ("B", "T", "D"),
        "d": ("B", "T", "D"),
        **dict.fromkeys(("r", "w", "k", "v", "a", "g"), (1, 1, "D")),
    },
    large={"B": 32, "T": 65_536, "D": 2_048},
    small={"B": 1, "T": 5, "D": 64},
)
