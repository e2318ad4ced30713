"""Every wrapper and rival is called as on a GPU, on tensors without data: calls that this version
of torch does not accept show without a GPU.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from roofwatch.collector.compile.counted_calls import counting_calls
from roofwatch.collector.compile.dataless import call_for_target
from roofwatch.kernels.registry import find_kernel, suite
from roofwatch.spec import Case, Direction, Implementation, KernelSpec, Language, UnsupportedError

NEEDS_DATA_OR_DEVICE = (UnsupportedError, DynamicOutputShapeException, torch.AcceleratorError)
"""What a rival ends in that reads its inputs, that another device is for, or that asks the driver
of a build of torch for CUDA.
"""


def calls() -> Iterator[tuple[KernelSpec, Implementation, Case]]:
    """The first quick case of each direction, of all implementations in torch."""
    for spec in suite():
        if spec.rank_dimension is not None:
            continue
        for implementation in spec.implementations.values():
            if implementation.language is not Language.TORCH or implementation.is_compiled:
                continue
            if implementation.name == "eager_graph":  # captures a real CUDA graph
                continue
            for direction in Direction:
                case = next((case for case in spec.cases if case.direction is direction), None)
                if case is not None and direction in implementation.directions:
                    yield spec, implementation, case


ALL_CALLS = list(calls())


@pytest.mark.parametrize(
    ("spec", "implementation", "case"),
    ALL_CALLS,
    ids=[f"{case.id}-{implementation.name}" for _, implementation, case in ALL_CALLS],
)
def test_a_rival_accepts_its_arguments_on_a_gpu(
    spec: KernelSpec, implementation: Implementation, case: Case
) -> None:
    with counting_calls() as mode:
        try:
            call_for_target(spec, implementation, case, "sm_90", mode=mode, ranges={})
        except NEEDS_DATA_OR_DEVICE as error:
            pytest.skip(f"{type(error).__name__}: needs data or another device")
    assert mode.counts.by_name, "operators of torch ran"


def test_the_fp8_rival_accumulates_as_fast_as_libraries_call_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = find_kernel("fp8_matmul_rowwise")
    calls: list[dict[str, Any]] = []

    def noted(x: torch.Tensor, weight: torch.Tensor, *_scales: torch.Tensor, **options: Any) -> Any:
        calls.append(options)
        return x.new_empty((x.shape[0], weight.shape[1]), dtype=options["out_dtype"])

    monkeypatch.setattr(torch, "_scaled_mm", noted)
    with counting_calls() as mode:
        call_for_target(
            spec, spec.implementations["scaled_mm"], spec.cases[0], "sm_90", mode=mode, ranges={}
        )

    assert [call["use_fast_accum"] for call in calls] == [True]
