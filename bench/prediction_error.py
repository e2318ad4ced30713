"""The error of predicted changes of a step: delays planted in a kernel of a small transformer block
on the CPU.

    python bench/prediction_error.py

Each row predicts the change of the step from a profile of the base and the paired change of the
kernel alone, then measures the step in pairs of short blocks. Times are CPU times of one thread,
which other processes change less. Requires the extra `measure`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from roofwatch import Case
from roofwatch.ci.ab.compare import PairedEstimate, compare
from roofwatch.ci.ab.prediction import predict_steps, shares_of
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.collector.profiling.case_profile import profile_calls
from roofwatch.collector.workload_values import shares_of_step
from roofwatch.kernels.workloads import SMALL, TORCH, TransformerBlock
from roofwatch.model.verdict import Reason

_KERNEL = "rms_norm/n_rows=1,n_cols=1/float32/fwd"
_STEP = "transformer_inference/T={}/float32/fwd"
_FUNCTION = "bench::rms_norm"
_BLOCKS = 150
_SAMPLES = 3
_TOKENS = (128, 512)
"""Few, where the kernel is a small share of the step, and more."""
_SIZES = (0.3, 1.0, 3.0)
"""Of delays, in times of the kernel."""


class _Delay(NamedTuple):
    of_call: float = 0.0
    """Of the time of each call: slower by one factor everywhere."""
    fixed_ns: float = 0.0
    """In every call, which is another factor where the kernel finds its input in the cache than
    where it does not.
    """


_planted = _Delay()


@torch.library.custom_op(_FUNCTION, mutates_args=())
def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """One operator of the profile, without others inside, that waits as long as planted."""
    # a system call, as for the CPU time, would hand a busy core to others here
    start_ns = time.perf_counter_ns()
    values = x.numpy().astype(np.float64)
    mean_square = np.mean(values * values, axis=-1, keepdims=True)
    root_mean_square = np.sqrt(mean_square + 1e-6)
    normed = values / root_mean_square * weight.numpy()
    result = torch.from_numpy(normed.astype(np.float32))
    now_ns = time.perf_counter_ns()
    end_ns = now_ns + _planted.fixed_ns + _planted.of_call * (now_ns - start_ns)
    while time.perf_counter_ns() < end_ns:
        pass
    return result


def _compare(call: Callable[[], object], delay: _Delay) -> PairedEstimate:
    """Measure a call without and with the delay in interleaved blocks."""
    # An argument would change the operator, and so the profile.
    global _planted
    sides: tuple[list[list[float]], list[list[float]]] = ([], [])
    for _ in range(_BLOCKS):
        # Base and head take turns, so that a busy machine slows both.
        for side, _planted in zip(sides, (_Delay(), delay), strict=True):
            samples: list[float] = []
            for _ in range(_SAMPLES):
                start_ns = time.thread_time_ns()
                call()
                spent_ns = time.thread_time_ns() - start_ns
                samples.append(float(spent_ns))
            side.append(samples)
    _planted = _Delay()
    return compare(*sides, threshold=0.0, error_rate=0.05)


@torch.no_grad()
def main() -> None:
    # one thread, so that both times are of the same work
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| delay | tokens | share | kernel | predicted | measured | error |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for tokens in _TOKENS:
        case = Case("transformer_inference", tuple(SMALL.items()), "float32")
        block = TransformerBlock(case, TORCH._replace(rms_norm=_rms_norm))
        x = torch.randn(1, tokens, SMALL["hidden"])
        positions = torch.arange(tokens)
        rows = x[0]
        weight = block.attention_norm.detach()
        case_id = _STEP.format(tokens)

        def step(
            block: torch.nn.Module = block,
            x: Tensor = x,
            positions: Tensor = positions,
        ) -> object:
            return block(x, positions)

        def kernel(rows: Tensor = rows, weight: Tensor = weight) -> object:
            return _rms_norm(rows, weight)

        profile = profile_calls(
            call=step,
            device="cpu",
            case_id=case_id,
            implementation="torch",
        )
        all_shares = shares_of(shares_of_step(profile))
        shares = [share for share in all_shares if share.function == _FUNCTION]
        starts_ns: list[int] = []
        # enough calls for a median that a busy machine does not move
        for _ in range(200):
            kernel()
            starts_ns.append(time.thread_time_ns())
        kernel_ns = float(np.median(np.diff(starts_ns)))
        delays = [_Delay(of_call=size) for size in _SIZES]
        delays += [_Delay(fixed_ns=size * kernel_ns) for size in _SIZES]
        for delay in delays:
            alone = _compare(kernel, delay)
            whole = _compare(step, delay)
            change = Change(
                subject=ChangeSubject(_KERNEL, "torch"),
                metric="median_ns",
                log_ratio=alone.log_ratio,
                log_interval=alone.log_interval,
                reason=Reason.BEYOND_THRESHOLD,
                evidence=None,
            )
            (predicted,) = predict_steps([change], {(_KERNEL, "torch"): {_FUNCTION}}, shares)
            low, high = whole.relative_interval
            source = predicted.evidence
            lowest, highest = predicted.interval
            cells = [
                "fixed" if delay.fixed_ns else "factor",
                str(tokens),
                f"{source.share:.1%}",
                f"{source.kernel_change:+.1%}",
                f"{predicted.relative_change:+.2%} ({lowest:+.2%} to {highest:+.2%})",
                f"{whole.relative_change:+.2%} ({low:+.2%} to {high:+.2%})",
                f"{predicted.relative_change - whole.relative_change:+.2%}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
