"""Every wrapper and rival is called as on a GPU, on tensors without data: calls and kernels that
this version of torch or Triton does not accept show without a GPU.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._pytree import tree_map

from roofwatch.collector.accuracy.evaluation import outputs_by_name
from roofwatch.collector.compile.counted_calls import counting_calls
from roofwatch.collector.compile.dataless import call_for_target, call_with_or_without_data
from roofwatch.collector.compile.traced_launches import (
    IrCache,
    TracedLaunch,
    tracing_launches,
)
from roofwatch.kernels.building_blocks.rivals import RIVALS
from roofwatch.kernels.registry import find_kernel, suite
from roofwatch.spec import (
    Case,
    Direction,
    Implementation,
    InputMaker,
    KernelSpec,
    Language,
    UnsupportedError,
)

NEEDS_DATA_OR_DEVICE = (
    UnsupportedError,
    DataDependentOutputException,
    DynamicOutputShapeException,
    torch.AcceleratorError,
)
"""What a rival ends in that reads its inputs, that another device is for, or that asks the driver
of a build of torch for CUDA.
"""
NO_DRIVER = (
    "Found no NVIDIA driver",
    # the engine of torch 2.11 that runs a backward pass asks for the device's context
    "hasPrimaryContext expects a valid device index",
)
CAPTURES_A_GRAPH = {"eager_graph", "triton_graph"}
"""Implementations that need a real GPU."""


def calls() -> Iterator[tuple[KernelSpec, Implementation, Case]]:
    """The first case of each direction, of all implementations that can be called here."""
    for spec in suite():
        if spec.rank_dimension is not None:
            continue
        for implementation in spec.implementations.values():
            if implementation.is_compiled or implementation.name in CAPTURES_A_GRAPH:
                continue
            # launchers of other packages launch kernels of Triton, which needs their data
            if implementation.name in RIVALS:
                continue
            for direction in Direction:
                case = next((case for case in spec.cases if case.direction is direction), None)
                if case is not None and direction in implementation.directions:
                    yield spec, implementation, case


Call = tuple[KernelSpec, Implementation, Case]
ALL_CALLS = list(calls())
RIVAL_CALLS = [call for call in ALL_CALLS if call[1].language is Language.TORCH]
WRAPPER_CALLS = [
    call
    for call in ALL_CALLS
    if call[1].language is not Language.TORCH and "sm_90" not in call[1].unsupported_targets
]
FORWARD_CALLS = [call for call in RIVAL_CALLS if not call[2].is_backward]


def names_of(some_calls: list[Call]) -> list[str]:
    return [f"{case.id}-{implementation.name}" for _, implementation, case in some_calls]


@pytest.mark.parametrize(
    ("spec", "implementation", "case"),
    RIVAL_CALLS,
    ids=names_of(RIVAL_CALLS),
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


@pytest.mark.skipif(
    torch.version.cuda is None, reason="this build of torch has no operators for CUDA"
)
@pytest.mark.parametrize(
    ("spec", "implementation", "case"), FORWARD_CALLS, ids=names_of(FORWARD_CALLS)
)
def test_a_rival_gives_its_results_on_the_gpu_of_its_inputs(
    spec: KernelSpec, implementation: Implementation, case: Case
) -> None:
    # some spec derives an input from the numbers of another one
    made_inputs = spec.inputs(case, InputMaker(case, "cpu", only_integers=True))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():

        def on_gpu(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return mode.from_tensor(value).to("cuda")
            return value

        inputs = tree_map(on_gpu, made_inputs)
        try:
            outputs = outputs_by_name(implementation.launch(**inputs))
        except NEEDS_DATA_OR_DEVICE as error:
            pytest.skip(f"{type(error).__name__}: needs data or another device")
        except RuntimeError as error:
            if not any(text in str(error) for text in NO_DRIVER):
                raise
            pytest.skip("asks the driver")

    assert {output.device.type for output in outputs.values()} == {"cuda"}


@pytest.mark.parametrize(
    ("spec", "implementation", "case"), WRAPPER_CALLS, ids=names_of(WRAPPER_CALLS)
)
def test_a_wrapper_launches_on_a_gpu_what_triton_accepts(
    spec: KernelSpec, implementation: Implementation, case: Case
) -> None:
    def launches(*, has_data: bool) -> list[TracedLaunch]:
        tracing = tracing_launches("sm_90", cache=IrCache(), most_configurations=1)
        with counting_calls() as mode, tracing as traced:
            call_for_target(
                spec, implementation, case, "sm_90", mode=mode, ranges={}, has_data=has_data
            )
        return traced

    traced = call_with_or_without_data(launches)

    assert traced
    assert [launch.message for launch in traced if launch.message] == []


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


def test_grouped_heads_are_refused_where_torch_cannot_take_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = find_kernel("attention_varlen")
    grouped = next(case for case in spec.cases if case.dtype == "bfloat16")

    def older(q: torch.Tensor, *_arguments: object, window_size: tuple[int, int]) -> torch.Tensor:
        assert window_size == (-1, 0)
        return q.clone()

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", older)
    with counting_calls() as mode, pytest.raises(UnsupportedError, match="no grouped heads"):
        call_for_target(spec, spec.implementations["flash"], grouped, "sm_90", mode=mode, ranges={})
