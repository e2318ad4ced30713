"""Time the ingest of full-size records: `PYTHONPATH=. python bench/ingest.py [--cases 2000] [--rounds 5]`.

Each round stores a synthetic record of a new run in the embedded server; its cases are known after the first round.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome, Telemetry
from roofwatch.collector.record.measurement import Block, CacheState, CaseRecord, Measurement, Timer
from roofwatch.collector.record.record import Commit, RunRecord
from roofwatch.collector.record.results import Accuracy, Counters, StaticFacts, TensorError
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record

_IMPLEMENTATIONS = ("eager", "compile", "triton")
_TARGET_S = 3.0
"""For 2,000 cases on two cores."""
_TARGETS = ("sm_90", "sm_100")
_STARTED_AT = datetime(2026, 3, 1, tzinfo=UTC)
_READINGS_PER_MEASUREMENT = 6


def make_record(number: int, case_count: int) -> RunRecord:
    """Run number `number`: equal cases and machine code in each, new times."""
    rng = np.random.default_rng(number)
    started_at = _STARTED_AT + timedelta(minutes=number)
    case_ids = [f"kernel_{case % 40}/n={case}/float32/fwd" for case in range(case_count)]
    subjects = [(case_id, implementation) for case_id in case_ids for implementation in _IMPLEMENTATIONS]
    return RunRecord(
        run_id=uuid.UUID(int=(case_count << 32) + number),
        project="bench/ingest",
        commit=Commit(
            sha=hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest(),
            parents=(),
            first_parent_count=number + 1,
            committed_at=started_at,
            author="Author",
            subject=f"Change {number}",
            branch="main",
            is_dirty=False,
        ),
        started_at=started_at,
        finished_at=started_at,
        harness_version="1",
        environment=Environment(
            device_kind="cuda",
            device_name="GPU",
            device_memory_bytes=2**36,
            cpu_name="CPU",
            core_count=4,
            thread_count=4,
            os="Linux",
            python_version="3.11",
            torch_version="2.13",
        ),
        ceilings=(Ceiling(resource="memory", level="dram", per_s=1e12, method="best of 5"),),
        cases=tuple(_case(case_id) for case_id in case_ids),
        measurements=tuple(_measurement(rng, started_at, *subject) for subject in subjects),
        accuracies=tuple(_accuracy(*subject) for subject in subjects),
        static_facts=tuple(_static_facts(case_id, target) for case_id in case_ids for target in _TARGETS),
        counters=tuple(_counters(rng, case_id) for case_id in case_ids),
        telemetry=_telemetry(rng, started_at, len(subjects) * _READINGS_PER_MEASUREMENT),
    )


def _case(case_id: str) -> CaseRecord:
    kernel, shape, dtype, direction = case_id.split("/")
    return CaseRecord(
        case_id=case_id,
        kernel=kernel,
        shape={"n": int(shape.removeprefix("n="))},
        dtype=dtype,
        direction="fwd" if direction == "fwd" else "bwd",
        flop_count=1e6,
        memory_bytes=1e6,
    )


def _measurement(rng: np.random.Generator, at: datetime, case_id: str, implementation: str) -> Measurement:
    times = np.round(rng.normal(312_500, 400, size=(5, 20))) * 32  # multiples of 32 ns, the clock's resolution
    state = DeviceState(reading_count=3, sm_clock_mhz=1_980.0, power_w=412.5, temperature_c=61.0)
    return Measurement(
        case_id=case_id,
        implementation=implementation,
        outcome=Outcome.OK,
        timer=Timer.CUPTI,
        cache=CacheState.COLD,
        blocks=tuple(
            Block(started_at=at, samples_ns=tuple(row), kernel_count=1, stopped_by="samples", device_state=state)
            for row in times.tolist()
        ),
        bound="memory",
        utilisation=0.5,
    )


def _accuracy(case_id: str, implementation: str) -> Accuracy:
    errors = tuple(
        TensorError(tensor=tensor, max_abs_error=1e-6, rmse_ratio=1e-7, passed=True) for tensor in ("out", "grad_x")
    )
    return Accuracy(
        case_id=case_id, implementation=implementation, executor="device", outcome=Outcome.OK, tensors=errors
    )


def _static_facts(case_id: str, target: str) -> StaticFacts:
    return StaticFacts(
        case_id=case_id,
        implementation="triton",
        function="_body",
        target=target,
        outcome=Outcome.OK,
        configuration={"BLOCK": 128, "num_warps": 4},
        toolchain={"triton": "3.7.1", "ptxas": "13.0"},
        registers=32,
        shared_bytes=1_024,
        instructions={"global_load.128": 4, "tensor.HGMMA": 32},
        compile_ns={"ttir": 10_000_000, "ptx": 20_000_000, "cubin": 30_000_000},
        code_hash=hashlib.sha256(f"{case_id} {target}".encode()).hexdigest(),
    )


def _counters(rng: np.random.Generator, case_id: str) -> Counters:
    names = ("dram_bytes", "l2_bytes", "sm_throughput", "dram_throughput", "achieved_occupancy", "warp_stall_long")
    values = dict(zip(names, rng.uniform(0, 1, size=len(names)).tolist(), strict=True))
    return Counters(case_id=case_id, implementation="triton", function="_body", values=values)


def _telemetry(rng: np.random.Generator, at: datetime, reading_count: int) -> Telemetry:
    return Telemetry(
        status="ok",
        started_at=at,
        offset_ms=tuple((np.arange(reading_count) * 50.0).tolist()),
        sm_clock_mhz=tuple(rng.choice([1_965.0, 1_980.0], size=reading_count).tolist()),
        memory_clock_mhz=(2_619.0,) * reading_count,
        power_w=tuple(np.round(rng.normal(412, 20, size=reading_count), 1).tolist()),
        temperature_c=tuple(rng.choice([60.0, 61.0], size=reading_count).tolist()),
        energy_j=tuple((np.arange(reading_count) * 20.5).tolist()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
        seconds = []
        for number in range(arguments.rounds + 1):
            record = make_record(number, arguments.cases)
            started = time.monotonic()
            ingest_record(engine, record)
            seconds.append(time.monotonic() - started)
    first, *others = seconds
    print(f"{arguments.cases} cases: first {first:.2f} s, then median {statistics.median(others):.2f} s", end="")
    print(f", {statistics.median(others) / _TARGET_S:.2f} of the target of {_TARGET_S:.0f} s")


if __name__ == "__main__":
    main()
