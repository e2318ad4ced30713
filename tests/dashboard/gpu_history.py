"""A project measured on a GPU: telemetry, counters, autotuning, a calibration."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.machine import Ceiling, DeviceState, Environment, Outcome, Telemetry
from roofwatch.model.measurement import AutotuneTiming, Autotuning, Measurement, Timer
from roofwatch.model.record import PairMember, RunRecord, Side
from roofwatch.model.results import Counters, ProfilerFinding
from tests.builders import (
    make_accuracy,
    make_blocks,
    make_case,
    make_ceiling,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_source_line,
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
_FUNCTION = "_softmax_kernel"
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


def store_gpu_history(engine: Engine) -> list[RunRecord]:
    """Ingest the runs of six commits and a calibration of the first; returns the six."""
    records = [gpu_record(number) for number in range(RUN_COUNT)]
    for record in (*records, *calibration()):
        ingest_record(engine, record)
    return records


def gpu_record(number: int = 0, **fields: Any) -> RunRecord:
    started_at = make_commit(number).committed_at + timedelta(hours=1)
    is_hot = number == HOT_AT
    seconds = {"start": 4, "compile": 6, "check": 9, "warm_up": 2, "timing": 5}
    defaults: dict[str, Any] = {
        "environment": gpu(),
        "finished_at": started_at + timedelta(seconds=30),
        "ceilings": gpu_ceilings(),
        "cases": [
            make_case(case_id, flop_count=flops, memory_bytes=memory, family=_FAMILY[case_id])
            for case_id, (flops, memory) in _COST.items()
        ],
        "measurements": [
            measurement(
                SOFTMAX,
                "triton",
                52_000.0 if is_hot else 40_000.0,
                started_at=started_at,
                is_hot=is_hot,
            ),
            measurement(SOFTMAX, "torch", 62_000.0, started_at=started_at + timedelta(seconds=8)),
            measurement(
                SOFTMAX_SMALL, "triton", 3_000.0, started_at=started_at + timedelta(seconds=14)
            ),
            measurement(
                SOFTMAX_SMALL, "torch", 3_010.0, started_at=started_at + timedelta(seconds=18)
            ),
            measurement(GEMM, "torch", 210_000.0, started_at=started_at + timedelta(seconds=22)),
            make_measurement(GEMM, implementation="triton", outcome=Outcome.OUT_OF_MEMORY),
        ],
        "accuracies": [
            make_accuracy(
                SOFTMAX,
                implementation="triton",
                tensors=(
                    make_tensor_error(
                        rmse_ratio=2e-3, baseline_rmse_ratio=2.1e-3, max_abs_error=4e-3
                    ),
                    make_tensor_error(tensor="grad_x", rmse_ratio=1e-3, max_abs_error=2e-3),
                ),
            )
        ],
        "static_facts": [
            make_static_facts(
                SOFTMAX, function=_FUNCTION, target=target, registers=64 + number, code=f"{number}"
            )
            for target in ("sm_90", "sm_100")
        ],
        "counters": [
            Counters(
                case_id=SOFTMAX,
                implementation="triton",
                function=_FUNCTION,
                values={
                    "dram_bytes": 1.3e8,
                    "l2_hit_share": 0.12,
                    "achieved_occupancy_share": 0.47,
                },
                findings=(
                    ProfilerFinding(
                        rule="occupancy", message="limited by registers", estimated_speedup=0.1
                    ),
                ),
            )
        ],
        "source_lines": [
            make_source_line(
                kernel="softmax",
                implementation="triton",
                function=_FUNCTION,
                file="kernels/softmax.py",
                is_jitted=True,
            )
        ],
        "telemetry": _telemetry(started_at, is_hot=is_hot),
        "spent_ns": {name: count * 10**9 for name, count in seconds.items()},
    }
    return make_record(number, **defaults | fields)


def _telemetry(started_at: datetime, *, is_hot: bool) -> Telemetry:
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


def calibration(**fields: Any) -> list[RunRecord]:
    """The first commit against itself, in one job."""
    pair_id, started_at = uuid.uuid4(), make_commit(0).committed_at + timedelta(hours=2)
    return [
        gpu_record(
            started_at=started_at,
            finished_at=started_at + timedelta(seconds=30),
            measurements=[
                measurement(SOFTMAX, "triton", median_ns, started_at=started_at, stride=stride)
            ],
            telemetry=None,
            spent_ns={},
            pairing=PairMember(pair_id=pair_id, side=side),
            **fields,
        )
        for side, median_ns, stride in ((Side.BASE, 40_000.0, 1), (Side.HEAD, 40_040.0, 2))
    ]


def measurement(
    case_id: str,
    implementation: str,
    median_ns: float,
    *,
    started_at: datetime,
    is_hot: bool = False,
    stride: int = 1,
) -> Measurement:
    """Eight blocks, half a second apart, that vary by 0.5 %; the stride changes their order."""
    faults = ("hw_thermal_slowdown",) if is_hot else ()
    state = DeviceState(
        reading_count=10,
        sm_clock_mhz=1_200 if is_hot else 1_980,
        power_w=400.0,
        temperature_c=88 if is_hot else 55,
        energy_per_launch_j=median_ns * 4e-7,
        clock_event_reasons=faults,
        degraded_by=faults,
    )
    blocks = [
        block.model_copy(
            update={"started_at": started_at + timedelta(seconds=0.5 * step), "device_state": state}
        )
        for step, block in enumerate(
            make_blocks(
                median_ns * (1 + 0.005 * (step * stride % 3 - 1)) for step in range(BLOCK_COUNT)
            )
        )
    ]
    is_tuned = implementation == "triton" and case_id == SOFTMAX
    return make_measurement(
        case_id,
        implementation=implementation,
        blocks=blocks,
        timer=Timer.CUPTI,
        bound="compute" if case_id == GEMM else "memory",
        utilisation=0.8,
        launches_per_sample=10,
        autotuning=(_tuned(),) if is_tuned else (),
    )


def _tuned() -> Autotuning:
    timings = [
        AutotuneTiming(
            configuration={"BLOCK": block, "num_warps": warps},
            time_ns=None
            if (block, warps) == (8192, 4)
            else 40_000.0 * (1 + abs(block - 1024) / 4096 + warps / 80),
        )
        for block in (512, 1024, 8192)
        for warps in (4, 8)
    ]
    return Autotuning(
        function=_FUNCTION,
        key="8192",
        chosen=timings[3].configuration,
        timings=timings,
        duration_ns=900_000_000,
    )
