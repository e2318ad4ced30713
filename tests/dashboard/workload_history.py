"""A workload, measured and profiled on a GPU and on a CPU; the newest commit adds a copy to its
step on the GPU.
"""

from __future__ import annotations

from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.machine import Environment
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.metrics import Better
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CaseProfile
from tests.builders import (
    PROJECT,
    make_activity,
    make_case,
    make_environment,
    make_imported,
    make_measurement,
    make_profile,
    make_record,
)
from tests.dashboard.gpu_history import gpu

COMMIT_COUNT = 12
DECODE = "llama_decode/B=8,T=256,hidden=256/float32/fwd"
FORMULA = "2e+09 FLOP / 1e+06 ns / 1e+15 FLOP/s (a datasheet, dense)"
_NOISE_NS = (0, 900, -700, 300, -400, 800, -900, 500, -300, 600, 0, 0)


def store_workloads(engine: Engine, *, project: str = PROJECT) -> None:
    """Ingest the runs."""
    for number in range(COMMIT_COUNT):
        for environment, step_ns in ((gpu(), 1_000_000), (make_environment(), 40_000_000)):
            ingest_record(engine, _record(number, environment, step_ns=step_ns, project=project))


def _record(number: int, environment: Environment, *, step_ns: int, project: str) -> RunRecord:
    is_slower = number == COMMIT_COUNT - 1 and environment.device_kind == "cuda"
    median_ns = step_ns + _NOISE_NS[number] + (200_000 if is_slower else 0)
    mfu = make_imported(
        case_id=DECODE,
        implementation="triton",
        metric="MFU",
        statistic="value",
        unit="share",
        better=Better.UNKNOWN,
        value=0.002,
        message=FORMULA,
    )
    return make_record(
        number,
        project=project,
        environment=environment,
        cases=(_case(),),
        measurements=[
            make_measurement(DECODE, implementation="triton", median_ns=median_ns),
            make_measurement(DECODE, implementation="torch", median_ns=2.0 * step_ns),
        ],
        imported=(mfu,),
        profiles=(_profile(is_slower=is_slower),),
    )


def _case() -> CaseRecord:
    return make_case(DECODE, family="workloads", token_count=8.0, flop_count=2e9, memory_bytes=1e7)


def _profile(*, is_slower: bool) -> CaseProfile:
    """Three calls of a millisecond, with two kernels; a third one takes another 200 µs."""
    rows = [make_activity("attend", total_ns=2_400_000), make_activity("project", total_ns=300_000)]
    if is_slower:
        rows.append(make_activity("copy", total_ns=600_000))
    busy_ns = sum(row.total_ns for row in rows)
    return make_profile(DECODE, *rows, span_ns=busy_ns + 300_000, busy_ns=busy_ns)
