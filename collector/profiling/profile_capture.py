"""Some calls of a case under torch's profiler, in the process that makes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from roofwatch.collector.profiling.case_rows import profile_of_calls
from roofwatch.collector.record.results import CaseProfile

PROFILED_CALLS = 3
"""Enough to see what differs from call to call, few enough for a call of thousands of kernels."""
_WARM_UP_CALLS = 2
"""A library chooses its kernel, and takes its workspace, in the first."""
_SILENT = "99"


def profile_calls(call: Callable[[], object], device: str, *, case_id: str, implementation: str) -> CaseProfile:
    """Profile a few calls, after some that are not.

    For a process of its own: CUPTI serves one profiler at a time, and a timer may hold it.

    Args:
        call: Does the case's work.
        device: That it runs on.
        case_id: Of the call.
        implementation: Of the call.

    Raises:
        ProfileError: the profiler recorded nothing.
    """
    # Kineto would print when it starts and stops
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    is_on_gpu = device != "cpu"
    for _ in range(_WARM_UP_CALLS):
        call()
    _wait(is_on_gpu=is_on_gpu)
    # torch.profiler's own class imports all of inductor first
    with profile(use_device="cuda" if is_on_gpu else None, use_kineto=True) as recorded:
        for _ in range(PROFILED_CALLS):
            call()
        _wait(is_on_gpu=is_on_gpu)
    with tempfile.TemporaryDirectory(prefix="roofwatch-profile-") as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        content = trace.read_bytes()
    return profile_of_calls(content, case_id=case_id, implementation=implementation, call_count=PROFILED_CALLS)


def _wait(*, is_on_gpu: bool) -> None:
    if is_on_gpu:
        torch.cuda.synchronize()
