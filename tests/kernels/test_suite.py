"""What holds of every kernel of the suite."""

from collections.abc import Callable

import pytest
import torch

from collector.record import Outcome
from collector.static import compile_case
from collector.targets import DEFAULT_TARGETS
from kernels.registry import find_kernel, suite
from roofwatch import Case, InputMaker, KernelSpec
from tests.kernels.builders import check, check_stand_in, make_case

DECLARED = [pytest.param(spec, case, id=case.id) for spec in suite() for case in spec.cases]

# What one block may have. Source: CUDA C++ Programming Guide, compute capabilities; AMD CDNA 3 and CDNA 4 white papers.
SHARED_KIB = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "sm_120": 99, "gfx942": 64, "gfx950": 160}

ODD = [
    make_case("softmax", n_rows=1, n_cols=63),
    make_case("softmax", "float16", "bwd", n_rows=3, n_cols=1000),
    make_case("softmax", "bfloat16", "bwd", n_rows=2, n_cols=1),
    make_case("softmax", "bfloat16", "bwd", n_rows=1, n_cols=16_384),  # the longest that is read once
    make_case("softmax", "bfloat16", "bwd", n_rows=2, n_cols=16_385),
    make_case("rms_norm", "float32", "bwd", n_rows=1, n_cols=63),
    make_case("rms_norm", "float16", "bwd", n_rows=5, n_cols=1000),
    make_case("rms_norm", "bfloat16", n_rows=2, n_cols=1),  # whose gradient is all cancellation
    make_case("rms_norm", "bfloat16", "bwd", n_rows=3, n_cols=8192),
    make_case("rms_norm", "float32", "bwd", n_rows=515, n_cols=40),  # three rows per program, two for the last
    make_case("swiglu", "float32", "bwd", n_rows=1, n_cols=63),
    make_case("swiglu", "float16", "bwd", n_rows=3, n_cols=1000),
    make_case("swiglu", "bfloat16", "bwd", n_rows=2, n_cols=1025),  # one element in the last tile
    make_case("swiglu", "float32", "bwd", n_rows=1, n_cols=1),
    make_case("matmul", M=1, N=1, K=1),
    make_case("matmul", "float16", M=1, N=63, K=1000),
    make_case("matmul", "bfloat16", M=63, N=130, K=63),
    make_case("matmul", "float32", M=1100, N=70, K=33),  # two whole groups of tiles and one of two
    make_case("matmul", "bfloat16", M=600, N=500, K=70),  # the large tiles
    make_case("attention", B=1, H=1, T=1, D=16),
    make_case("attention", "float16", B=2, H=3, T=63, D=64),
    make_case("attention", "bfloat16", B=1, H=1, T=300, D=80),  # heads that are no power of two
    make_case("attention", "float32", B=1, H=1, T=50, D=128),
    make_case("attention", "float16", B=1, H=1, T=129, D=1),
]


@pytest.mark.parametrize(("spec", "case"), DECLARED)
def test_every_declared_case_agrees_with_the_float64_reference(spec: KernelSpec, case: Case, device: str):
    checked = case if device == "cuda" else spec.interpreted_case(case)
    accuracy = check(spec, checked, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize("case", ODD, ids=lambda case: case.id)
def test_odd_single_and_edge_sizes_agree_with_the_float64_reference(case: Case, device: str):
    accuracy = check(find_kernel(case.kernel), case, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


def test_the_buffers_that_launchers_allocate_start_full_of_nan(device: str):
    assert torch.zeros(2, device=device).new_empty(5).isnan().all()
    assert torch.empty_like(torch.zeros(5, device=device, dtype=torch.bfloat16)).isnan().all()


@pytest.mark.parametrize(("spec", "case"), DECLARED)
def test_the_torch_implementation_agrees_with_the_reference_that_it_does_not_share(spec: KernelSpec, case: Case):
    accuracy = check(spec, spec.interpreted_case(case), device="cpu", implementation="eager")
    assert accuracy.outcome is Outcome.OK, accuracy.message
    assert spec.implementations["eager"].launch is not spec.reference


@pytest.mark.parametrize("spec", suite(), ids=lambda spec: spec.name)
def test_torch_compile_takes_the_torch_implementation_as_one_graph(spec: KernelSpec):
    case = spec.interpreted_case(spec.cases[-1])
    assert spec.implementations["compile"].is_compiled
    traced = torch.compile(spec.implementations["compile"].launch, backend="aot_eager", fullgraph=True)
    accuracy = check_stand_in(spec, case, traced)
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize(("spec", "case"), DECLARED)
def test_every_launch_compiles_for_every_target_without_spilling(
    spec: KernelSpec, case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    facts = compile_case(spec, spec.implementations["triton"], case)
    assert [fact.target for fact in facts] == list(DEFAULT_TARGETS)
    for fact in facts:
        assert fact.outcome is Outcome.OK, fact.message
        assert fact.local_bytes == 0, fact
        assert not fact.spilled_registers, fact
        assert fact.shared_bytes is not None
        assert fact.shared_bytes <= SHARED_KIB[fact.target] * 1024, fact


# Broken on purpose. The loosest dtype of the tolerance table, at a shape with several tiles and square where the
# input's copy must have the result's shape.
BREAKABLE = [
    make_case("softmax", "bfloat16", "bwd", n_rows=4, n_cols=130),
    make_case("rms_norm", "bfloat16", "bwd", n_rows=4, n_cols=130),
    make_case("swiglu", "bfloat16", "bwd", n_rows=4, n_cols=130),
    make_case("matmul", "bfloat16", M=130, N=130, K=130),
    make_case("attention", "bfloat16", B=1, H=2, T=130, D=16),
]
TILE = 64
Break = Callable[[KernelSpec, dict[str, torch.Tensor]], torch.Tensor]


def gives_zeros(spec: KernelSpec, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    result: torch.Tensor = spec.reference(**inputs) * 0
    return result


def copies_an_input(_spec: KernelSpec, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    # all of them are in the graph, so that the gradients exist
    return next(iter(inputs.values())) + 0 * sum(value.sum() for value in inputs.values())


def starts_the_last_tile_one_row_late(spec: KernelSpec, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    result: torch.Tensor = spec.reference(**inputs)
    along = -1 if result.ndim == 2 else -2
    return torch.cat(
        [result.narrow(along, 0, 2 * TILE), result.narrow(along, 2 * TILE - 1, result.shape[along] - 2 * TILE)], along
    )


def leaves_the_last_tile_out_of_the_gradient(spec: KernelSpec, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    whole: torch.Tensor = spec.reference(**inputs)
    return torch.cat([whole[:, : 2 * TILE], whole[:, 2 * TILE :].detach()], dim=1)


@pytest.mark.parametrize("broken", [gives_zeros, copies_an_input, starts_the_last_tile_one_row_late])
@pytest.mark.parametrize("case", BREAKABLE, ids=lambda case: case.kernel)
def test_a_broken_kernel_is_found_incorrect(case: Case, broken: Break):
    spec = find_kernel(case.kernel)
    accuracy = check_stand_in(spec, case, lambda **inputs: broken(spec, inputs))
    assert accuracy.outcome is Outcome.INCORRECT
    assert "out" in [tensor.tensor for tensor in accuracy.tensors if not tensor.passed]


@pytest.mark.parametrize("case", [case for case in BREAKABLE if case.is_backward], ids=lambda case: case.kernel)
def test_a_broken_backward_pass_behind_a_right_result_is_found_incorrect(case: Case):
    spec = find_kernel(case.kernel)
    accuracy = check_stand_in(spec, case, lambda **inputs: leaves_the_last_tile_out_of_the_gradient(spec, inputs))
    assert accuracy.outcome is Outcome.INCORRECT
    failed = [tensor.tensor for tensor in accuracy.tensors if not tensor.passed]
    assert failed == [f"grad_{name}" for name in spec.inputs(case, InputMaker(case))]


@pytest.mark.parametrize("case", BREAKABLE, ids=lambda case: case.kernel)
def test_a_sound_stand_in_passes_where_the_broken_ones_fail(case: Case):
    spec = find_kernel(case.kernel)
    assert check_stand_in(spec, case, spec.reference).outcome is Outcome.OK
