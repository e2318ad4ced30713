"""Offsets that overflow 32-bit integers are found without a GPU, at sizes that fit into no memory."""

import time
from typing import Any

import pytest
import torch

from roofwatch.collector.compile.proof import prove_case, prove_for_first_target
from roofwatch.model.proofs import OverflowProof, Proof
from tests.suites import offset_kernels as kernels

without_block_pointers = pytest.mark.skipif(
    not kernels.HAS_BLOCK_POINTERS, reason="Triton 3.9 removed block pointers"
)
HUGE: dict[str, Any] = {"n_rows": 2**20, "n_cols": 14_336}
"""Of 28 GiB in bfloat16."""


def proof_of(
    launch: kernels.Launch, *, is_gather: bool = False, limits_budget_s: float = 0, **shape: Any
) -> OverflowProof:
    spec = kernels.declare(launch, is_gather=is_gather, **shape)
    (implementation,) = spec.implementations.values()
    proof = prove_case(
        spec, implementation, spec.cases[0], "sm_90", limits_budget_s=limits_budget_s
    )
    return proof.overflow


def limits_of(proof: OverflowProof) -> dict[str, int]:
    return {limit.dimension: limit.largest for limit in proof.limits}


def test_a_32_bit_row_offset_overflows_at_a_declared_size() -> None:
    proof = proof_of(kernels.by_row(kernels.row_kernel), **HUGE)

    assert proof.proof is Proof.UNSAFE
    assert {(access.pointer, access.kind) for access in proof.unproven} == {
        ("x_ptr", "load"),
        ("y_ptr", "store"),
    }
    first = proof.unproven[0]
    assert first.function == "row_kernel"
    assert first.file == "offset_kernels.py"
    assert first.reason == "a 32-bit integer reaches 15,032,371,200"


def test_the_first_size_that_overflows_is_exact() -> None:
    proof = proof_of(
        kernels.by_row(kernels.row_kernel), n_rows=8_192, n_cols=14_336, limits_budget_s=300
    )

    assert proof.proof is Proof.FITS
    # the last element of the last row: 149,797 x 14,336 - 1 < 2^31
    assert limits_of(proof)["n_rows"] == 149_796
    just_fits = proof_of(kernels.by_row(kernels.row_kernel), n_rows=149_796, n_cols=14_336)
    too_large = proof_of(kernels.by_row(kernels.row_kernel), n_rows=149_800, n_cols=14_336)
    assert (just_fits.proof, too_large.proof) == (Proof.FITS, Proof.UNSAFE)


@pytest.mark.parametrize(
    "launch",
    [
        kernels.by_row(kernels.wide_row_kernel),
        kernels.by_column(kernels.moving_pointer_kernel),
        pytest.param(kernels.by_block_pointer, marks=without_block_pointers),
        kernels.by_descriptor,
        kernels.by_row(kernels.assuming_kernel),
    ],
    ids=["64-bit row", "moving pointer", "block pointer", "descriptor", "assumption"],
)
def test_code_that_cannot_overflow_fits(launch: kernels.Launch) -> None:
    assert proof_of(launch, **HUGE).proof is Proof.FITS


@pytest.mark.parametrize(
    "launch",
    [
        kernels.by_column(kernels.moving_offset_kernel),
        kernels.by_column(kernels.while_kernel),
        kernels.dequantise,
    ],
    ids=["offset in a for loop", "row in a while loop", "product of row and width"],
)
def test_offsets_that_grow_while_a_kernel_runs_are_found(launch: kernels.Launch) -> None:
    assert proof_of(launch, **HUGE).proof is Proof.UNSAFE
    assert proof_of(launch, n_rows=1_024, n_cols=1_024).proof is Proof.FITS


def test_masked_elements_past_the_end_are_no_overflow() -> None:
    assert proof_of(kernels.flat, n_rows=2**20, n_cols=2_047).proof is Proof.FITS
    assert proof_of(kernels.flat, n_rows=2**20, n_cols=2_050).proof is Proof.UNSAFE


@pytest.mark.parametrize(
    ("kernel", "width"),
    [
        # of 100 rows, masked, and 128 columns, not masked
        (kernels.square_kernel, (2**31 - 127 + 98) // 99),
        (kernels.total_kernel, (2**31 - 100 + 126) // 127),
    ],
    ids=["for rows and columns", "and its largest element"],
)
def test_a_mask_on_an_index_that_is_used_twice_limits_only_one_use(kernel: Any, width: int) -> None:
    launch = kernels.by_tile(kernel)

    assert proof_of(launch, n_rows=100, n_cols=width).proof is Proof.UNSAFE
    assert proof_of(launch, n_rows=100, n_cols=width - 1).proof is Proof.FITS


def test_programs_that_return_early_do_not_count() -> None:
    assert proof_of(kernels.returning_early, n_rows=100, n_cols=4_096).proof is Proof.FITS
    assert proof_of(kernels.returning_early, n_rows=2**20, n_cols=4_096).proof is Proof.UNSAFE


def test_loaded_indices_have_the_range_of_the_spec() -> None:
    small = proof_of(kernels.gather, is_gather=True, n_rows=1_000, n_cols=1_000)
    large = proof_of(kernels.gather, is_gather=True, n_rows=2**22, n_cols=1_000)

    assert (small.proof, large.proof) == (Proof.FITS, Proof.UNSAFE)


def test_an_index_without_a_range_cannot_be_told() -> None:
    proof = proof_of(kernels.gather_computed, is_gather=True, n_rows=2**22, n_cols=1_000)

    assert proof.proof is Proof.UNKNOWN
    assert proof.unproven[0].reason == "unknown index from index_ptr"


def test_a_grid_that_no_gpu_launches_is_unsafe() -> None:
    proof = proof_of(kernels.tall, n_rows=65_536, n_cols=16)

    assert proof.proof is Proof.UNSAFE
    assert proof.unproven[0].reason == "grid y is 65,536, and at most 65,535 programs are allowed"


def test_a_launcher_that_calls_torch_compile_is_analysed() -> None:
    halved = torch.compile(lambda x: x / 2)

    def launch(x: torch.Tensor) -> torch.Tensor:
        return kernels.flat(halved(x))

    assert proof_of(launch, n_rows=2**20, n_cols=2_050).proof is Proof.UNSAFE


def test_a_launcher_that_loops_over_a_huge_dimension_is_interrupted() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.shape[0] ** 2):
            x = x[:]
        return kernels.flat(x)

    proof = proof_of(launch, n_rows=16, n_cols=16, limits_budget_s=0.5)

    assert proof.proof is Proof.FITS
    assert "n_rows" not in proof.searched


class DropsExceptions:
    """Runs for longer than the deadline in a destructor, where Python drops exceptions."""

    def __del__(self) -> None:
        ends_s = time.monotonic() + 0.7
        while time.monotonic() < ends_s:
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_deadline_that_passes_in_a_destructor_is_kept() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 16:
            DropsExceptions()
            while True:
                x = x[:]
        return kernels.flat(x)

    proof = proof_of(launch, n_rows=16, n_cols=16, limits_budget_s=0.5)

    assert "n_rows" not in proof.searched


def test_configurations_of_an_autotuned_kernel_are_one_finding() -> None:
    proof = proof_of(kernels.tuned, n_rows=2**20, n_cols=2_050)

    assert [(access.pointer, access.kind) for access in proof.unproven] == [
        ("x_ptr", "load"),
        ("y_ptr", "store"),
    ]


def test_a_launcher_that_fails_says_why() -> None:
    def launch(x: Any) -> Any:
        raise ValueError(f"needs 3 dimensions, got {x.dim()}")

    proof = proof_of(launch, n_rows=2, n_cols=2)

    assert proof.proof is Proof.UNKNOWN
    assert proof.message is not None
    assert "needs 3 dimensions, got 2" in proof.message


def test_a_kernel_that_needs_a_newer_gpu_is_analysed_for_the_first_that_it_compiles_for() -> None:
    spec = kernels.declare(kernels.in_float8, n_rows=4, n_cols=96)
    (implementation,) = spec.implementations.values()
    (case, *_others) = spec.cases
    old = prove_for_first_target(spec, implementation, case, ("sm_80",))
    assert old.overflow.proof is Proof.UNKNOWN
    newer = prove_for_first_target(spec, implementation, case, ("sm_80", "sm_90", "sm_100"))
    assert newer.overflow.proof is Proof.FITS
    assert newer.cost is not None
    assert newer.cost.target == "sm_90"
