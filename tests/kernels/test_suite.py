"""What holds of every kernel of the suite."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.layouts import layouts_of
from roofwatch.collector.accuracy.regimes import regimes_of
from roofwatch.collector.compile.static import compile_case
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import DTYPES
from roofwatch.kernels.low_precision.w4a16_matmul import MAX_FEW_ROWS
from roofwatch.kernels.registry import single_kernels
from roofwatch.model.machine import Outcome
from roofwatch.spec import Direction, Implementation, Language
from tests.kernels.builders import check, check_stand_in, make_case
from tests.kernels.conftest import IS_INTERPRETED

# What one block may have. Source: CUDA C++ Programming Guide, compute capabilities; AMD CDNA 3 and
# CDNA 4 white papers.
SHARED_KIB = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "sm_120": 99, "gfx942": 64, "gfx950": 160}


def launched_alone() -> list[KernelSpec]:
    """Those that one process launches; test_collectives.py makes the same claims of the others."""
    return [spec for spec in single_kernels() if spec.rank_dimension is None]


def stand_ins(spec: KernelSpec) -> list[Case]:
    """The small cases that all others shrink to."""
    return list({case.id: case for case in map(spec.interpreted_case, spec.cases)}.values())


def launched_cases(spec: KernelSpec) -> list[Case]:
    """In the interpreter the stand-ins; on a GPU the real ones that take moments."""
    return (
        stand_ins(spec)
        if IS_INTERPRETED
        else [case for case in spec.cases if case.tags & {"small", "quick"}]
    )


def first_of_each_kind(cases: Iterable[Case]) -> list[Case]:
    """One case of each dtype and direction."""
    found: dict[tuple[str, Direction], Case] = {}
    for case in cases:
        found.setdefault((case.dtype, case.direction), case)
    return list(found.values())


def params(cases_of: Callable[[KernelSpec], Iterable[Case]]) -> list[Any]:
    return [
        pytest.param(spec, case, id=case.id) for spec in launched_alone() for case in cases_of(spec)
    ]


@pytest.mark.parametrize(("spec", "case"), params(launched_cases))
def test_every_declared_case_agrees_with_the_float64_reference(
    spec: KernelSpec, case: Case, device: str
):
    accuracy = check(spec, case, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize(("spec", "case"), params(lambda spec: spec.edges))
def test_odd_single_and_empty_sizes_agree_with_the_float64_reference(
    spec: KernelSpec, case: Case, device: str
):
    accuracy = check(spec, case, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


def test_the_buffers_that_launchers_allocate_start_full_of_nan(device: str):
    assert torch.zeros(2, device=device).new_empty(5).isnan().all()
    assert torch.empty_like(torch.zeros(5, device=device, dtype=torch.bfloat16)).isnan().all()


@pytest.mark.parametrize(("spec", "case"), params(stand_ins))
def test_each_torch_implementation_agrees_with_the_reference_that_it_does_not_share(
    spec: KernelSpec, case: Case
):
    assert spec.implementations["torch"].launch is not spec.reference
    for implementation in spec.implementations.values():
        if implementation.language is not Language.TORCH or implementation.is_compiled:
            continue
        if case.direction not in implementation.directions:
            continue
        try:
            accuracy = check(spec, case, device="cpu", implementation=implementation.name)
        except UnsupportedError:
            assert implementation.name != "torch"  # which everything is compared with, everywhere
        else:
            assert accuracy.outcome is Outcome.OK, f"{implementation.name}: {accuracy.message}"


@pytest.mark.parametrize("spec", launched_alone(), ids=lambda spec: spec.name)
def test_every_memory_layout_is_read_right_or_refused(spec: KernelSpec, device: str):
    case = smallest(spec)
    implementation = spec.implementations["triton"]
    cache = CheckCache()
    for layout in layouts_of(cache.prepare(spec, case, device)):
        report = check_case(spec, case, implementation, cache, device=device, layout=layout)
        assert not report.outcome.is_failure, f"{layout}: {report.message}"


@pytest.mark.parametrize("spec", launched_alone(), ids=lambda spec: spec.name)
def test_other_values_are_computed_right_or_not_tried(spec: KernelSpec, device: str):
    case = smallest(spec)
    implementation = spec.implementations["triton"]
    cache = CheckCache()
    for regime in regimes_of(cache.prepare(spec, case, device)):
        report = check_case(spec, case, implementation, cache, device=device, regime=regime)
        assert not report.outcome.is_failure, f"{regime}: {report.message}"


@pytest.mark.xdist_group(
    "torch_compile"
)  # one worker: to load what traces takes as long as all of these tests
@pytest.mark.parametrize("spec", launched_alone(), ids=lambda spec: spec.name)
def test_torch_compile_takes_the_torch_implementation_as_one_graph(spec: KernelSpec):
    case = smallest(spec)
    assert spec.implementations["compile"].is_compiled
    traced = torch.compile(
        spec.implementations["compile"].launch, backend="aot_eager", fullgraph=True
    )
    accuracy = check_stand_in(spec, case, traced)
    assert accuracy.outcome is Outcome.OK, accuracy.message


class CallsOfOurs(TorchDispatchMode):
    """Notes the calls of operators of the namespace `roofwatch`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "roofwatch":
            self.calls[func.name()] = (func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


DIFFERENTIABLE = [spec for spec in single_kernels() if any(case.is_backward for case in spec.cases)]


@pytest.mark.parametrize("spec", DIFFERENTIABLE, ids=lambda spec: spec.name)
def test_a_differentiable_kernel_is_an_operator_that_torch_can_trace(spec: KernelSpec, device: str):
    with CallsOfOurs() as noted:
        check(spec, shortened(smallest(spec)), device=device)
    assert len(noted.calls) >= 2  # forward and backward
    for name, (operator, arguments, keywords) in noted.calls.items():
        # gradients of gradients are not offered
        is_forward = not name.endswith("_backward")
        torch.library.opcheck(operator, tuple(as_leaves(arguments, is_forward)), keywords)


MOST = {"T": 20, "n_cols": 40}


def shortened(case: Case) -> Case:
    """One tile of tokens and columns: of their number a tracer keeps a symbol, and of what an
    operator does with them it sees nothing.
    """
    return replace(
        case,
        shape=tuple(
            (name, min(MOST[name], length) if name in MOST else length)
            for name, length in case.shape
        ),
    )


def as_leaves(arguments: Iterable[Any], with_gradients: bool) -> Iterable[Any]:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield (
                argument.detach().clone().requires_grad_(with_gradients and argument.requires_grad)
            )
        else:
            yield argument


TILES_FOR_MORE_ROWS = {
    name: [make_case(name, dtype, M=M, N=1024, K=256) for M in (MAX_FEW_ROWS + 1, 64, 8192)]
    for name, dtype in (("ternary_matmul", "int8"), ("w4a16_matmul", "bfloat16"))
}


def compiled_cases(spec: KernelSpec) -> list[Case]:
    quick = [case for case in spec.cases if "quick" in case.tags]
    return [*first_of_each_kind(quick), *TILES_FOR_MORE_ROWS.get(spec.name, [])]


TRITON_RELEASE = triton.__version__.rpartition(".")[0]
# Bytes a thread that one release of Triton spills with the tile that every other one keeps in
# registers. With Triton 3.9, all seven tiles tried of 64 heads spill, 88 to 1,072 bytes. One of 32
# heads does not, but is predicted 48 % slower with Triton 3.7.1, and 46 % with 3.9.
KNOWN_SPILL_BYTES = {("_mla_decode_kernel", "sm_90", "3.9"): 256}


@pytest.mark.slow
@pytest.mark.usefixtures("compilers_cache")
@pytest.mark.parametrize(
    ("spec", "implementation", "case"),
    [
        pytest.param(spec, implementation, case, id=f"{case.id}-{implementation.name}")
        for spec in launched_alone()
        for implementation in spec.implementations.values()
        if implementation.language is not Language.TORCH
        for case in compiled_cases(spec)
        if case.direction in implementation.directions
    ],
)
def test_every_launch_compiles_for_every_target_without_spilling(
    spec: KernelSpec, implementation: Implementation, case: Case
):
    facts = compile_case(spec, implementation, case)
    assert {fact.target for fact in facts} == set(DEFAULT_TARGETS)
    for fact in facts:
        if fact.target in implementation.unsupported_targets:
            assert fact.outcome is Outcome.UNSUPPORTED, fact
            continue
        assert fact.outcome is Outcome.OK, fact.message
        known_bytes = KNOWN_SPILL_BYTES.get((fact.function, fact.target, TRITON_RELEASE), 0)
        assert fact.local_bytes == known_bytes, fact
        assert not fact.spilled_registers, fact
        assert fact.shared_bytes is not None
        assert fact.shared_bytes <= SHARED_KIB[fact.target] * 1024, fact


# Broken on purpose.
Outputs = torch.Tensor | tuple[torch.Tensor, ...]
Break = Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]


def smallest(spec: KernelSpec) -> Case:
    """The cheapest stand-in, with a backward pass where there is one."""
    candidates = stand_ins(spec)
    return min(
        [case for case in candidates if case.is_backward] or candidates,
        key=lambda case: (spec.memory_bytes(case), case.id),
    )


def sound(spec: KernelSpec, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The reference's own result, in the dtypes that the eager implementation gives."""
    wide = {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in inputs.items()
    }
    with torch.no_grad():
        plain = as_tuple(spec.implementations["torch"].launch(**inputs))
    return tuple(
        output.to(like.dtype)
        for output, like in zip(as_tuple(spec.reference(**wide)), plain, strict=True)
    )


def as_tuple(outputs: Outputs) -> tuple[torch.Tensor, ...]:
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def broken_launch(spec: KernelSpec, break_one: Break) -> Callable[..., Outputs]:
    """A launch that computes the reference's result and breaks each of its tensors."""

    def launch(**inputs: Any) -> Outputs:
        # 8-bit floats cannot be computed with
        outputs = tuple(
            break_one(output.double(), inputs).to(output.dtype) for output in sound(spec, inputs)
        )
        return outputs if len(outputs) > 1 else outputs[0]

    return launch


def unbroken(output: torch.Tensor, _inputs: dict[str, Any]) -> torch.Tensor:
    return output


def zeroed(output: torch.Tensor, _inputs: dict[str, Any]) -> torch.Tensor:
    return output * 0


def copied_from_an_input(output: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    first = next(
        value for value in inputs.values() if isinstance(value, torch.Tensor) and value.numel()
    )
    enough = first.flatten().to(output.dtype).repeat(-(-output.numel() // first.numel()))
    # the result stays in the graph, so that the gradients exist
    return enough[: output.numel()].reshape(output.shape) + output * 0


def with_its_last_tile_one_late(output: torch.Tensor, _inputs: dict[str, Any]) -> torch.Tensor:
    along = max(range(output.ndim), key=lambda dim: output.shape[dim])
    length = output.shape[along]
    tile = min(64, length // 2)
    return torch.cat(
        [output.narrow(along, 0, length - tile), output.narrow(along, length - tile - 1, tile)],
        along,
    )


@pytest.mark.parametrize(
    "break_one",
    [unbroken, zeroed, copied_from_an_input, with_its_last_tile_one_late],
    ids=lambda break_one: break_one.__name__,
)
@pytest.mark.parametrize("spec", launched_alone(), ids=lambda spec: spec.name)
def test_only_a_broken_kernel_is_found_incorrect(spec: KernelSpec, break_one: Break):
    accuracy = check_stand_in(spec, smallest(spec), broken_launch(spec, break_one))
    is_right = break_one is unbroken or (
        spec.name == "memory_copy" and break_one is copied_from_an_input
    )
    assert accuracy.outcome is (Outcome.OK if is_right else Outcome.INCORRECT)


@pytest.mark.parametrize("spec", DIFFERENTIABLE, ids=lambda spec: spec.name)
def test_a_gradient_expanded_from_a_scalar_is_read_right(spec: KernelSpec, device: str):
    case = smallest(spec)
    launch = spec.implementations["triton"].launch

    def gradients(expands: bool) -> list[torch.Tensor]:
        made = spec.inputs(case, InputMaker(case, device))
        leaves = [
            value.requires_grad_()
            for name, value in made.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.is_leaf
            if spec.gradients is None or name in spec.gradients
        ]
        outputs = as_tuple(launch(**made))
        upstream = [
            torch.ones((), device=device, dtype=out.dtype).expand(out.shape) for out in outputs
        ]
        given = upstream if expands else [one.contiguous() for one in upstream]
        found = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
        return [one for one in found if one is not None]

    for expanded, contiguous in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(expanded, contiguous)


@pytest.mark.parametrize(
    "spec",
    [spec for spec in launched_alone() if spec not in DIFFERENTIABLE],
    ids=lambda spec: spec.name,
)
def test_a_forward_only_kernel_refuses_gradients(spec: KernelSpec):
    made = spec.inputs(smallest(spec), InputMaker(smallest(spec)))
    next(
        value
        for value in made.values()
        if isinstance(value, torch.Tensor) and value.dtype in DTYPES
    ).requires_grad_()
    with pytest.raises(
        KernelError, match=r"requires a gradient, .* call it under torch.no_grad\(\)"
    ):
        spec.implementations["triton"].launch(**made)


def detached_in_its_last_tile(output: torch.Tensor, _inputs: dict[str, Any]) -> torch.Tensor:
    along = max(range(output.ndim), key=lambda dim: output.shape[dim])
    tile = min(64, -(-output.shape[along] // 2))
    kept = output.shape[along] - tile
    return torch.cat(
        [output.narrow(along, 0, kept), output.narrow(along, kept, tile).detach()], along
    )


@pytest.mark.parametrize("spec", DIFFERENTIABLE, ids=lambda spec: spec.name)
def test_a_broken_backward_pass_behind_a_right_result_is_found_incorrect(spec: KernelSpec):
    case = smallest(spec)
    accuracy = check_stand_in(spec, case, broken_launch(spec, detached_in_its_last_tile))
    assert accuracy.outcome is Outcome.INCORRECT
    failed = [tensor.tensor for tensor in accuracy.tensors if not tensor.passed]
    assert failed
    assert all(name.startswith("grad_") for name in failed)


def test_inputs_are_random_and_the_same_in_every_run():
    for spec in single_kernels():
        case = smallest(spec)
        first, again = (spec.inputs(case, InputMaker(case)) for _ in range(2))
        for name, value in first.items():
            if isinstance(value, torch.Tensor):
                bits, bits_again = (
                    tensor.contiguous().view(torch.uint8) for tensor in (value, again[name])
                )
                assert torch.equal(bits, bits_again), f"{spec.name} {name}"
                assert value.numel() < 2 or bits.unique().numel() > 1, (
                    f"{spec.name} {name} is constant"
                )


def test_kernels_of_language_models_count_their_tokens():
    # group_norm_silu is of image models
    specs = [
        one
        for one in single_kernels()
        if one.family in {"attention", "MLP", "MoE"} or "rms_norm" in one.name
    ]

    counts = {
        case.id: spec.token_count and spec.token_count(case)
        for spec in specs
        for case in spec.cases
    }

    assert counts
    assert not [case_id for case_id, count in counts.items() if not count]
