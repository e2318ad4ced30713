"""What holds of the kernels that several processes launch together, in groups of real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed

from roofwatch import Case, KernelSpec
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.collectives import (
    all_gather_spec,
    all_reduce,
    all_reduce_rms_norm_spec,
    all_reduce_spec,
    all_to_all_spec,
    reduce_scatter_spec,
    require_divisible_rows,
)
from roofwatch.model.check_report import CheckReport
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_protocol import CheckAccuracy, TimeBlock, WorkerSettings
from tests.kernels.builders import make_case

SUITE = SuiteSource(Path(__file__).parents[1] / "suites" / "bench_collectives.py")
COLLECTIVES = [
    all_reduce_spec,
    all_reduce_rms_norm_spec,
    all_gather_spec,
    reduce_scatter_spec,
    all_to_all_spec,
]
FOR_ALL_RANKS_THE_SAME = {"all_reduce", "all_reduce_rms_norm", "all_gather"}


def small(spec: KernelSpec) -> list[Case]:
    return [case for case in spec.cases if "small" in case.tags]


CHECKED = [
    pytest.param(spec, case, id=case.id)
    for spec in COLLECTIVES
    for case in (*small(spec), *spec.edges)
]


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with (
        ForkServer() as fork_server,
        WorkerPool(
            fork_server, WorkerSettings(source=SUITE, device="cpu", thread_count=1)
        ) as workers,
    ):
        yield workers


def check(workers: WorkerPool, spec: KernelSpec, case: Case, implementation: str) -> CheckReport:
    job = CheckAccuracy(
        case_id=case.id, implementation=implementation, rank_count=spec.rank_count(case)
    )
    reply = workers.request(job, timeout_s=60)
    assert reply.checked is not None, reply.failure
    return reply.checked.report


@pytest.mark.parametrize(("spec", "case"), CHECKED)
def test_every_rank_gets_over_gloo_what_the_reference_says(
    workers: WorkerPool, spec: KernelSpec, case: Case
):
    accuracy = check(workers, spec, case, "gloo")
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs that torch can use")
@pytest.mark.parametrize("spec", COLLECTIVES, ids=lambda spec: spec.name)
def test_every_rank_gets_over_nccl_what_the_reference_says(spec: KernelSpec):
    with (
        ForkServer() as fork_server,
        WorkerPool(fork_server, WorkerSettings(source=SUITE, device="cuda")) as on_gpus,
    ):
        for case in (*small(spec), *(edge for edge in spec.edges if edge["ranks"] == 2)):
            accuracy = check(on_gpus, spec, case, "nccl")
            assert accuracy.outcome is Outcome.OK, f"{case.id}: {accuracy.message}"
            sampling = SamplingPlan(warmup_ms=1, budget_ms=2)
            job = TimeBlock(case_id=case.id, implementation="nccl", rank_count=2, plan=sampling)
            assert on_gpus.request(job, timeout_s=60).block is not None


@pytest.mark.parametrize(
    "way",
    [
        "sound",
        "zeroed",
        "without_the_other_ranks",
        "for_the_next_rank",
        "with_its_last_tile_one_late",
    ],
)
@pytest.mark.parametrize("spec", COLLECTIVES, ids=lambda spec: spec.name)
def test_only_a_broken_collective_is_found_incorrect(
    workers: WorkerPool, spec: KernelSpec, way: str
):
    accuracy = check(workers, spec, small(spec)[0], way)
    is_right = way == "sound" or (
        way == "for_the_next_rank" and spec.name in FOR_ALL_RANKS_THE_SAME
    )
    assert accuracy.outcome is (Outcome.OK if is_right else Outcome.INCORRECT)


def test_nccl_carries_no_cpu_tensors(workers: WorkerPool):
    job = CheckAccuracy(case_id=all_reduce_spec.cases[0].id, implementation="nccl", rank_count=2)
    failure = workers.request(job, timeout_s=60).failure
    assert failure is not None
    assert (failure.outcome, failure.message) == (
        Outcome.UNSUPPORTED,
        "UnsupportedError: needs cuda tensors, got cpu",
    )


@pytest.mark.parametrize(
    ("spec", "flop_count", "memory_bytes", "bus_bytes"),
    [
        # 15 elements on each of four ranks, 30 bytes; every one is added 3 times, by one of the
        # four
        (all_reduce_spec, 0.75 * 15, 30 + 30, 1.5 * 30),
        # and the residual, a weight of 5 elements and a second result
        (all_reduce_rms_norm_spec, 0.75 * 15 + 5 * 15, 4 * 30 + 10, 1.5 * 30),
        # 30 bytes from each of four ranks
        (all_gather_spec, 0, 30 + 120, 0.75 * 120),
        # 60 elements on each of four ranks, of which each gets the sum of 15
        (reduce_scatter_spec, 3 * 15, 120 + 30, 0.75 * 120),
        (all_to_all_spec, 0, 120 + 120, 0.75 * 120),
    ],
    ids=lambda value: value.name if isinstance(value, KernelSpec) else None,
)
def test_cost_of_fifteen_elements_for_each_of_four_ranks(
    spec: KernelSpec, flop_count: float, memory_bytes: float, bus_bytes: float
):
    case = make_case(spec.name, "bfloat16", ranks=4, n_rows=3, n_cols=5)
    assert spec.flop_count(case) == flop_count
    assert spec.memory_bytes(case) == memory_bytes
    assert spec.bus_bytes is not None
    assert spec.bus_bytes(case) == bus_bytes


@pytest.fixture
def group_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = distributed.HashStore()  # type: ignore[attr-defined]  # torch's annotations leave it out
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_a_process_without_a_group_is_told_how_to_make_one():
    with pytest.raises(
        KernelError, match=r"in no group; call torch\.distributed\.init_process_group"
    ):
        all_reduce(torch.randn(1, 2, 3), rank=0)


@pytest.mark.parametrize(
    ("x", "rank", "message"),
    [
        (torch.randn(2, 4, 8), 0, r"the data of 1 ranks, got 2; pass \[1, n_rows, n_cols\]"),
        (torch.randn(1, 4, 8), 1, r"rank must be 0, got 1; pass torch.distributed.get_rank\(\)"),
        (torch.randn(1, 8, 4).transpose(1, 2), 0, r"call x.contiguous\(\)"),
        (torch.randn(1, 4, 16)[..., :8], 0, r"call x.contiguous\(\)"),
        (torch.randn(4, 8), 0, r"call x.reshape"),
        (torch.randn(1, 4, 8, requires_grad=True), 0, r"pass x.detach\(\)"),
    ],
)
@pytest.mark.usefixtures("group_of_one")
def test_data_that_does_not_fit_the_group_is_refused(x: torch.Tensor, rank: int, message: str):
    with pytest.raises(KernelError, match=message):
        all_reduce(x, rank)


@pytest.mark.usefixtures("group_of_one")
def test_the_sum_over_a_group_of_one_is_a_copy():
    x = torch.randn(1, 4, 8)
    out = all_reduce(x, rank=0)
    assert torch.equal(out, x[0])
    assert out.data_ptr() != x.data_ptr()


def test_rows_that_cannot_be_shared_equally_are_refused():
    with pytest.raises(
        KernelError, match="must be a multiple of the 3 ranks, got 7; pad x with 2 rows"
    ):
        require_divisible_rows("all_to_all", torch.empty(3, 7, 5))
