"""A project measured on a GPU: telemetry, counters, autotuning, a calibration."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from sqlalchemy import Engine

from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome, Telemetry
from roofwatch.collector.record.measurement import AutotuneTiming, Autotuning, Block, Measurement, Timer
from roofwatch.collector.record.record import Pairing, RunRecord, Side, SourceLine
from roofwatch.collector.record.results import Counters, ProfilerFinding
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_case,
    make_ceiling,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
    make_tensor_error,
)
from tests.collector.nvml import make_reading, telemetry_of

RUN_COUNT = 6
HOT_AT = 4
"""The run in which the device grew too hot."""
SOFTMAX = "softmax/n_rows=4096,n_cols=8192/bfloat16/fwd"
SOFTMAX_SMALL = "softmax/n_rows=64,n_cols=128/bfloat16/fwd"
GEMM = "gemm/M=4096,N=4096,K=4096/bfloat16/fwd"
BLOCK_COUNT = 8
_COST = {SOFTMAX: (1.7e8, 1.34e8), SOFTMAX_SMALL: (4e4, 3.3e4), GEMM: (1.37e11, 1e8)}
_FAMILY = {SOFTMAX: "reduction", SOFTMAX_SMALL: "reduction", GEMM: "matmul"}


def gpu() -> Environment:
    return make_environment(
        device_kind="cuda",
        device_name="NVIDIA H200",
        device_memory_bytes=141 * 2**30,
        power_limit_w=700.0,
        driver_version="580.65.06",
        compute_capability="9.0",
        cuda_version="13.0",
    )


def gpu_ceilings() -> tuple[Ceiling, ...]:
    return (
        make_ceiling(per_s=4.1e12),
        make_ceiling(level="cache", per_s=9e12, up_to_bytes=50 * 2**20),
        make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=7.2e14),
    )


def store_gpu_history(engine: Engine, *, project: str = PROJECT) -> list[RunRecord]:
    """Ingest the runs of six commits and a calibration of the first; returns the six."""
    records = [gpu_record(number, project=project) for number in range(RUN_COUNT)]
    for record in (*records, *calibration(project=project)):
        ingest_record(engine, record)
    return records


def gpu_record(number: int = 0, *, environment: Environment | None = None, project: str = PROJECT) -> RunRecord:
    commit = make_commit(number)
    started_at = commit.committed_at + timedelta(hours=1)
    is_hot = number == HOT_AT
    return make_record(
        number,
        project=project,
        environment=environment or gpu(),
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=30),
        ceilings=gpu_ceilings(),
        cases=tuple(
            make_case(case_id, flop_count=flops, memory_bytes=memory, family=_FAMILY[case_id])
            for case_id, (flops, memory) in _COST.items()
        ),
        measurements=_measurements(started_at, is_hot=is_hot),
        accuracies=[
            make_accuracy(
                SOFTMAX,
                implementation="triton",
                tensors=(
                    make_tensor_error(rmse_ratio=2e-3, baseline_rmse_ratio=2.1e-3, max_abs_error=4e-3),
                    make_tensor_error(tensor="grad_x", rmse_ratio=1e-3, max_abs_error=2e-3),
                ),
            )
        ],
        static_facts=[
            make_static_facts(
                SOFTMAX,
                function="_softmax_kernel",
                target=target,
                registers=64 + number,
                theoretical_occupancy=0.5,
                occupancy_limits=("registers",),
                thread_count=256,
                spill_store_count=0,
                spill_load_count=0,
                code=f"{target} {number}",
            )
            for target in ("sm_90", "sm_100")
        ],
        counters=(
            Counters(
                case_id=SOFTMAX,
                implementation="triton",
                function="_softmax_kernel",
                values={"dram_bytes": 1.3e8, "l2_hit_share": 0.12, "achieved_occupancy_share": 0.47},
                findings=(ProfilerFinding(rule="occupancy", message="limited by registers", estimated_speedup=0.1),),
            ),
        ),
        source_lines=(
            SourceLine(
                kernel="softmax",
                implementation="triton",
                function="_softmax_kernel",
                file="kernels/softmax.py",
                line=12,
                is_jitted=True,
            ),
        ),
        telemetry=telemetry(started_at, is_hot=is_hot),
        spent_ns={
            "start": 4_000_000_000,
            "compile": 6_000_000_000,
            "check": 9_000_000_000,
            "warm_up": 2_000_000_000,
            "timing": 5_000_000_000,
        },
    )


def telemetry(started_at: datetime, *, is_hot: bool = False) -> Telemetry:
    """Thirty seconds at 20 Hz; a hot device is throttled in the last third."""
    readings = [
        make_reading(
            50.0 * step,
            sm_clock_mhz=1_200 if is_hot and step > 400 else 1_980,
            temperature_c=88 if is_hot and step > 400 else 50 + step // 60,
            clock_event_reasons=("hw_thermal_slowdown",) if is_hot and step > 400 else (),
        )
        for step in range(600)
    ]
    return telemetry_of(readings, started_at=started_at)


def calibration(*, project: str = PROJECT) -> tuple[RunRecord, RunRecord]:
    """The first commit against itself, in one job."""
    pair_id = uuid.uuid4()

    def one_side(side: Side) -> RunRecord:
        offset = 1.001 if side is Side.HEAD else 1.0
        started_at = make_commit(0).committed_at + timedelta(hours=2)
        measured = measurement(
            SOFTMAX, "triton", 40_000.0 * offset, started_at=started_at, stride=2 if side is Side.HEAD else 1
        )
        cases = (make_case(SOFTMAX, flop_count=1.7e8, memory_bytes=1.34e8, family="reduction"),)
        return make_record(
            0,
            project=project,
            environment=gpu(),
            started_at=started_at,
            finished_at=started_at + timedelta(seconds=30),
            ceilings=gpu_ceilings(),
            measurements=[measured],
            cases=cases,
            pairing=Pairing(pair_id=pair_id, side=side),
        )

    return one_side(Side.BASE), one_side(Side.HEAD)


def _measurements(started_at: datetime, *, is_hot: bool) -> list[Measurement]:
    slower = 1.3 if is_hot else 1.0
    return [
        measurement(SOFTMAX, "triton", 40_000.0 * slower, started_at=started_at, is_hot=is_hot),
        measurement(SOFTMAX, "eager", 62_000.0, started_at=started_at + timedelta(seconds=8)),
        measurement(SOFTMAX_SMALL, "triton", 3_000.0, started_at=started_at + timedelta(seconds=14)),
        measurement(SOFTMAX_SMALL, "eager", 3_010.0, started_at=started_at + timedelta(seconds=18)),
        measurement(GEMM, "eager", 210_000.0, started_at=started_at + timedelta(seconds=22), bound="compute"),
        make_measurement(GEMM, implementation="triton", outcome=Outcome.OUT_OF_MEMORY),
    ]


def measurement(
    case_id: str,
    implementation: str,
    median_ns: float,
    *,
    started_at: datetime,
    is_hot: bool = False,
    bound: str = "memory",
    stride: int = 1,
) -> Measurement:
    """Eight blocks, half a second apart, that vary by 0.5 %; the stride changes their order."""
    blocks = tuple(
        Block(
            started_at=started_at + timedelta(seconds=0.5 * step),
            samples_ns=tuple(
                median_ns * (1 + 0.005 * (step * stride % 3 - 1)) * wobble for wobble in (0.99, 1.0, 1.01)
            ),
            device_state=DeviceState(
                reading_count=10,
                sm_clock_mhz=1_200 if is_hot else 1_980,
                power_w=400.0,
                temperature_c=88 if is_hot else 55,
                energy_per_launch_j=median_ns * 4e-7,
                clock_event_reasons=("hw_thermal_slowdown",) if is_hot else (),
                degraded_by=("hw_thermal_slowdown",) if is_hot else (),
            ),
        )
        for step in range(BLOCK_COUNT)
    )
    tuned = Autotuning(
        function="_softmax_kernel",
        key="8192",
        chosen={"BLOCK": 1024, "num_warps": 8},
        timings=tuple(
            AutotuneTiming(
                configuration={"BLOCK": block, "num_warps": warps},
                time_ns=None
                if block == 8192 and warps == 4
                else 40_000.0 * (1 + abs(block - 1024) / 4096 + warps / 80),
            )
            for block in (512, 1024, 8192)
            for warps in (4, 8)
        ),
        duration_ns=900_000_000,
    )
    return make_measurement(
        case_id,
        implementation=implementation,
        blocks=blocks,
        timer=Timer.CUPTI,
        bound=bound,
        utilisation=0.8,
        launches_per_sample=10,
        autotuning=(tuned,) if implementation == "triton" and case_id == SOFTMAX else (),
    )
