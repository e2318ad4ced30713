"""Store a made-up history of 95 days on three GPUs, to look at the dashboard without a GPU.

    PYTHONPATH=. python -m bench.made_up_history FOLDER
    ROOFWATCH_DATA_DIR=FOLDER roofwatch dashboard

It has five releases, a driver update, throttled days, and changes planted at known commits.
"""

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.machine import Ceiling, DeviceState, Environment
from roofwatch.model.measurement import Block, CacheState, CaseRecord, Measurement, Timer
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Counters, StaticFacts
from tests.builders import (
    make_accuracy,
    make_case,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_source_line,
    make_static_facts,
    make_tensor_error,
)

PROJECT = "kernels/fast"
_DAYS = 95
_COMMITS_A_DAY = 2
_FIRST_NUMBER = 1_180
_RELEASE_EVERY = 38
_AUTHORS = ("Ada Ferreira", "Linus Berg", "Grace Oyelaran", "Jun Watanabe", "Mira Novak")
_SUBJECTS = (
    "Fuse the epilogue into the main loop",
    "Prefetch the next tile",
    "Tune block sizes for long rows",
    "Split the reduction over warps",
    "Bump the pipeline depth",
    "Rework masking of ragged rows",
    "Move scales to registers",
)
_BLOCKS = 8
_RUN_NOISE, _BLOCK_NOISE, _SAMPLE_NOISE = 0.004, 0.003, 0.004
_THROTTLED_DAYS = range(40, 44)
_THROTTLED_FACTOR = 1.09
_DRIVER_DAY = 58
_VENDOR_SHARE = 0.82


@dataclass(frozen=True)
class _Gpu:
    device_name: str
    memory_gib: int
    power_w: float
    compute_capability: str
    target: str
    drivers: tuple[str, str]
    achievable: float
    """Measured ceilings as a share of the datasheet's."""
    measured_every: int
    """Commits from one run to the next."""


_GPUS = (
    _Gpu("NVIDIA H100 80GB HBM3", 80, 700, "9.0", "sm_90", ("570.86.15", "580.65.06"), 0.9, 1),
    _Gpu("NVIDIA B200", 180, 1000, "10.0", "sm_100", ("580.65.06", "580.82.07"), 0.87, 2),
    _Gpu("AMD Instinct MI300X", 192, 750, "9.4", "gfx942", ("6.3.4", "6.4.1"), 0.78, 3),
)
_THROTTLED_GPU = "NVIDIA B200"


@dataclass(frozen=True)
class _Workload:
    case_id: str
    family: str
    flop_count: float
    memory_bytes: float
    vendor: str
    share: float
    """Of the achievable rate, at first."""


_WORKLOADS = (
    _Workload(
        "rms_norm/n_rows=16384,n_cols=8192/bfloat16/fwd",
        "normalisation",
        5.4e8,
        5.4e8,
        "torch",
        0.82,
    ),
    _Workload(
        "rms_norm/n_rows=16384,n_cols=8192/bfloat16/bwd",
        "normalisation",
        1.2e9,
        8.1e8,
        "torch",
        0.69,
    ),
    _Workload(
        "softmax/n_rows=8192,n_cols=32768/bfloat16/fwd", "reduction", 1.3e9, 1.1e9, "torch", 0.78
    ),
    _Workload(
        "flash_attention/B=8,T=4096,H=32,D=128/bfloat16/fwd",
        "attention",
        2.2e12,
        1.1e9,
        "cudnn",
        0.61,
    ),
    _Workload(
        "gemm_fp8/M=8192,N=8192,K=8192/float8_e4m3fn/fwd", "matmul", 1.1e12, 2.7e8, "cublaslt", 0.72
    ),
    _Workload("gemm/M=4096,N=4096,K=4096/bfloat16/fwd", "matmul", 1.37e11, 1.0e8, "cublas", 0.77),
    _Workload("fused_moe/T=4096,E=64,D=4096/bfloat16/fwd", "moe", 8.2e11, 3.2e9, "torch", 0.44),
    _Workload("rope/B=8,T=8192,H=32,D=128/bfloat16/fwd", "position", 4.0e8, 1.1e9, "torch", 0.88),
)


@dataclass(frozen=True)
class _Planted:
    """From a commit on, a kernel takes longer by a factor, on the devices named."""

    kernel: str
    number: int
    factor: float
    devices: tuple[str, ...] = tuple(gpu.device_name for gpu in _GPUS)


_PLANTED = (
    _Planted("flash_attention", 40, 1.22),
    _Planted("flash_attention", 66, 1 / 1.22),
    _Planted("softmax", 96, 0.88),
    _Planted("rms_norm", 128, 1.08, ("NVIDIA H100 80GB HBM3",)),
    _Planted("gemm_fp8", 171, 1.31, ("NVIDIA B200",)),
    _Planted("fused_moe", 180, 1.12),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    start = time.perf_counter()
    with open_store(folder=arguments.folder) as engine:
        count = 0
        for record in records():
            ingest_record(engine, record)
            count += 1
        regressions = analyse_project(engine, PROJECT)
    print(f"{count} runs, {len(regressions)} changes, {time.perf_counter() - start:.0f} s")
    for regression in regressions:
        print(f"{regression.commit.subject}: {regression.summary}")


def records(*, days: int = _DAYS) -> Iterator[RunRecord]:
    """Make the runs, oldest commit first."""
    noise = random.Random(7)  # noqa: S311 -- not for secrets
    first = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    first -= timedelta(days=days)
    for number in range(days * _COMMITS_A_DAY):
        for gpu in _GPUS:
            if number % gpu.measured_every == 0:
                committed_at = first + timedelta(days=number / _COMMITS_A_DAY)
                yield _record(number, gpu, committed_at, noise)


def _record(number: int, gpu: _Gpu, committed_at: datetime, noise: random.Random) -> RunRecord:
    day = number // _COMMITS_A_DAY
    pull_request = _FIRST_NUMBER + number
    is_release = number % _RELEASE_EVERY == _RELEASE_EVERY - 1
    commit = make_commit(
        number,
        committed_at=committed_at,
        author=_AUTHORS[number % len(_AUTHORS)],
        subject=f"{_SUBJECTS[number % len(_SUBJECTS)]} (#{pull_request})",
        tags=(f"v0.{number // _RELEASE_EVERY + 1}.0",) if is_release else (),
    )
    environment = _environment(gpu, day)
    ceilings = _ceilings(gpu)
    is_throttled = gpu.device_name == _THROTTLED_GPU and day in _THROTTLED_DAYS
    started_at = committed_at + timedelta(minutes=20)
    measurements: list[Measurement] = []
    for workload in _WORKLOADS:
        measurements += _both(workload, gpu, ceilings, number, started_at, is_throttled, noise)
    return make_record(
        number,
        project=PROJECT,
        commit=commit,
        environment=environment,
        ceilings=ceilings,
        cases=[_case(workload) for workload in _WORKLOADS],
        measurements=measurements,
        static_facts=list(_facts(gpu, number)),
        accuracies=[
            make_accuracy(
                workload.case_id,
                implementation="triton",
                tensors=(make_tensor_error(rmse_ratio=2e-3, baseline_rmse_ratio=2.1e-3),),
            )
            for workload in _WORKLOADS
        ],
        counters=[_counters(workload) for workload in _WORKLOADS[:2]],
        source_lines=[
            make_source_line(
                kernel=_kernel(workload),
                implementation="triton",
                function=f"_{_kernel(workload)}_kernel",
                file=f"kernels/{_kernel(workload)}.py",
                is_jitted=True,
            )
            for workload in {_kernel(workload): workload for workload in _WORKLOADS}.values()
        ],
        finished_at=started_at + timedelta(minutes=6),
        spent_ns={"compile": 60 * 10**9, "check": 40 * 10**9, "timing": 240 * 10**9},
        suite="bench_kernels.py",
    )


def _kernel(workload: _Workload) -> str:
    return workload.case_id.partition("/")[0]


def _case(workload: _Workload) -> CaseRecord:
    return make_case(
        workload.case_id,
        flop_count=workload.flop_count,
        memory_bytes=workload.memory_bytes,
        family=workload.family,
    )


def _environment(gpu: _Gpu, day: int) -> Environment:
    is_updated = day >= _DRIVER_DAY
    return make_environment(
        device_kind="cuda",
        device_name=gpu.device_name,
        device_memory_bytes=gpu.memory_gib * 2**30,
        power_limit_w=gpu.power_w,
        driver_version=gpu.drivers[is_updated],
        compute_capability=gpu.compute_capability,
        cuda_version="13.0",
        triton_version="3.7.1" if day >= 30 else "3.6.0",
    )


def _ceilings(gpu: _Gpu) -> tuple[Ceiling, ...]:
    published = datasheet_ceilings(gpu.device_name, ["bfloat16", "float8_e4m3fn"])
    return tuple(
        ceiling.model_copy(
            update={
                "per_s": ceiling.per_s * gpu.achievable,
                "source": "measured",
                "method": "best of 5",
            }
        )
        for ceiling in published
    )


def _ideal_ns(workload: _Workload, ceilings: tuple[Ceiling, ...]) -> tuple[float, str]:
    """Return the least possible time and what limits it."""
    dtype = workload.case_id.split("/")[2]
    memory = next(ceiling for ceiling in ceilings if ceiling.resource == "memory")
    compute = next(ceiling for ceiling in ceilings if ceiling.dtype == dtype)
    return max(
        (workload.memory_bytes / memory.per_s * 1e9, "memory"),
        (workload.flop_count / compute.per_s * 1e9, "compute"),
    )


def _both(
    workload: _Workload,
    gpu: _Gpu,
    ceilings: tuple[Ceiling, ...],
    number: int,
    started_at: datetime,
    is_throttled: bool,
    noise: random.Random,
) -> list[Measurement]:
    ideal_ns, bound = _ideal_ns(workload, ceilings)
    machine = noise.gauss(1, _RUN_NOISE) * (_THROTTLED_FACTOR if is_throttled else 1)
    effect = 1.0
    for planted in _PLANTED:
        is_on = number >= planted.number and gpu.device_name in planted.devices
        if planted.kernel == _kernel(workload) and is_on:
            effect *= planted.factor
    times_ns = {
        "triton": ideal_ns / workload.share * effect * machine,
        workload.vendor: ideal_ns / _VENDOR_SHARE * machine,
    }
    state = DeviceState(
        reading_count=10,
        sm_clock_mhz=1_400 if is_throttled else 1_900,
        power_w=600.0,
        temperature_c=89 if is_throttled else 62,
        degraded_by=("hw_thermal_slowdown",) if is_throttled else (),
    )
    measurements: list[Measurement] = []
    for implementation, time_ns in times_ns.items():
        blocks = tuple(_blocks(time_ns, started_at, state, noise))
        measurements.append(
            make_measurement(
                workload.case_id,
                implementation=implementation,
                blocks=blocks,
                timer=Timer.CUPTI,
                cache=CacheState.COLD,
                bound=bound,
                utilisation=ideal_ns / time_ns,
                reference_ns=None
                if implementation == workload.vendor
                else times_ns[workload.vendor],
            )
        )
    return measurements


def _blocks(
    time_ns: float, started_at: datetime, state: DeviceState, noise: random.Random
) -> Iterator[Block]:
    for number in range(_BLOCKS):
        block_ns = time_ns * noise.gauss(1, _BLOCK_NOISE)
        yield Block(
            started_at=started_at + timedelta(seconds=0.5 * number),
            samples_ns=tuple(block_ns * noise.gauss(1, _SAMPLE_NOISE) for _ in range(4)),
            device_state=state,
        )


def _facts(gpu: _Gpu, number: int) -> Iterator[StaticFacts]:
    for workload in _WORKLOADS:
        kernel = _kernel(workload)
        changes = [planted for planted in _PLANTED if planted.kernel == kernel]
        version = sum(number >= planted.number for planted in changes)
        yield make_static_facts(
            workload.case_id,
            implementation="triton",
            function=f"_{kernel}_kernel",
            target=gpu.target,
            registers=96 + 32 * version,
            code=f"{kernel} {version} {gpu.target}",
        )


def _counters(workload: _Workload) -> Counters:
    return Counters(
        case_id=workload.case_id,
        implementation="triton",
        function=f"_{_kernel(workload)}_kernel",
        values={
            "dram_bytes": workload.memory_bytes * 1.05,
            "l2_hit_share": 0.12,
            "achieved_occupancy_share": 0.47,
        },
    )


if __name__ == "__main__":
    main()
