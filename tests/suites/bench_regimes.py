"""Cross-entropy gradients, one of them wrong where one logit dominates, and sums in bfloat16."""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases


@triton.jit
def _gradient_kernel(
    x_ptr,
    lse_ptr,
    target_ptr,
    upstream_ptr,
    grad_ptr,
    n_cols,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask).to(tl.float32)  # [BLOCK]
    lse = tl.load(lse_ptr + row).to(tl.float32)
    upstream = tl.load(upstream_ptr + row).to(tl.float32)
    hit = tl.where(cols == tl.load(target_ptr + row), 1.0, 0.0)
    probability = tl.exp(x - lse)
    if ROUNDS:  # loses all digits of 1 - probability where one logit dominates
        probability = probability.to(tl.bfloat16).to(tl.float32)
    grad = (probability - hit) * upstream
    tl.store(grad_ptr + row * n_cols + cols, grad, mask=mask)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target, rounds):
        x = x.contiguous()
        lse = x.float().logsumexp(-1)
        ctx.save_for_backward(x, lse, target)
        ctx.rounds = rounds
        picked = x.float().gather(-1, target[:, None])[:, 0]
        return (lse - picked).to(x.dtype)

    @staticmethod
    def backward(ctx, upstream):
        x, lse, target = ctx.saved_tensors
        grad = torch.empty_like(x)
        n_rows, n_cols = x.shape
        tensors = (x, lse, target, upstream.contiguous(), grad)
        _gradient_kernel[(n_rows,)](*tensors, n_cols, ROUNDS=ctx.rounds, BLOCK=64)
        return grad, None, None


def _inputs(case, make):
    return {
        "x": make.logits(case["n_rows"], case["n_cols"]),
        "target": make.integers(case["n_rows"], high=case["n_cols"]),
    }


def _cross_entropy(x, target):
    return torch.nn.functional.cross_entropy(x, target, reduction="none")


def declare(name):
    spec = KernelSpec(
        name=name,
        inputs=_inputs,
        reference=_cross_entropy,
        cases=cases(shapes=[{"n_rows": 16, "n_cols": 64}], dtypes=["bfloat16"], directions=["bwd"]),
        flop_count=lambda case: 8 * case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 4 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("torch")(lambda x, target: _cross_entropy(x.float(), target).to(x.dtype))
    return spec


right = declare("right")
right.implementation("triton")(lambda x, target: _CrossEntropy.apply(x, target, False))
rounded = declare("rounded")
rounded.implementation("triton")(lambda x, target: _CrossEntropy.apply(x, target, True))


@triton.jit
def _softmax_kernel(x_ptr, y_ptr, n_cols, PADDING: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=PADDING)  # [BLOCK]
    probability = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, probability / tl.sum(probability, axis=0), mask=mask)


def _softmax(x, padding):
    x = x.contiguous()
    y = torch.empty_like(x)
    _softmax_kernel[(x.shape[0],)](x, y, x.shape[1], PADDING=padding, BLOCK=64)
    return y


def declare_softmax(name, padding):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.logits(case["n_rows"], case["n_cols"])},
        reference=lambda x: x.softmax(-1),
        cases=cases(shapes=[{"n_rows": 4, "n_cols": 60}], dtypes=["float32"]),
        flop_count=lambda case: 4 * case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 8 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("triton")(lambda x: _softmax(x, padding))
    return spec


padded_low = declare_softmax("padded_low", float("-inf"))
padded_high = declare_softmax("padded_high", -30.0)


@triton.jit
def _loss_kernel(
    x_ptr, target_ptr, loss_ptr, n_rows, n_cols, PADDING: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=PADDING).to(tl.float32)  # [BLOCK]
    picked = tl.load(x_ptr + row * n_cols + tl.load(target_ptr + row)).to(tl.float32)
    largest = tl.max(x, axis=0)
    lse = largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))
    tl.atomic_add(loss_ptr, (lse - picked) / n_rows)


def _loss(x, target, padding):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    loss = torch.zeros((), dtype=torch.float32)
    _loss_kernel[(n_rows,)](x, target, loss, n_rows, n_cols, PADDING=padding, BLOCK=64)
    return loss.to(x.dtype)


def declare_loss(name, padding):
    spec = KernelSpec(
        name=name,
        inputs=_inputs,
        reference=lambda x, target: torch.nn.functional.cross_entropy(x, target),
        cases=cases(shapes=[{"n_rows": 16, "n_cols": 60}], dtypes=["bfloat16"]),
        flop_count=lambda case: 4 * case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("torch")(
        lambda x, target: torch.nn.functional.cross_entropy(x.float(), target).to(x.dtype)
    )
    spec.implementation("triton")(lambda x, target: _loss(x, target, padding))
    return spec


right_loss = declare_loss("right_loss", float("-inf"))
padded_loss = declare_loss("padded_loss", -30.0)


# some packages give functions of Triton names of their own
cast = tl.cast


@triton.jit
def _row_sum_kernel(x_ptr, y_ptr, n_cols, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    if WIDE:
        x = cast(x, tl.float32)
    tl.store(y_ptr + row, tl.sum(x, axis=0))  # in bfloat16 unless wide


def _row_sum(x, *, wide):
    x = x.contiguous()
    y = x.new_empty(x.shape[0])
    _row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], WIDE=wide, BLOCK=1024)
    return y


def declare_sum(name, *, wide):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.terms(case["n_rows"], case["n_cols"])},
        reference=lambda x: x.sum(-1),
        cases=cases(shapes=[{"n_rows": 64, "n_cols": 1024}], dtypes=["bfloat16"]),
        flop_count=lambda case: case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("torch")(lambda x: x.float().sum(-1).to(x.dtype))
    spec.implementation("triton")(lambda x: _row_sum(x, wide=wide))
    return spec


wide_sum = declare_sum("wide_sum", wide=True)
narrow_sum = declare_sum("narrow_sum", wide=False)
