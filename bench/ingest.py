"""Time the ingest of full-size records: `PYTHONPATH=. python bench/ingest.py [--cases 2000] [--rounds 5]`.

Each round stores a synthetic record of a new run in the embedded server; its cases are known after the first round.
"""

import argparse
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np

from roofwatch.collector.record.machine import DeviceState, Telemetry
from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import NOON, make_accuracy, make_measurement, make_record, make_static_facts, make_tensor_error

_IMPLEMENTATIONS = ("torch", "compile", "triton")
_TARGET_S = 3.0
"""For 2,000 cases on two cores."""
_TARGETS = ("sm_90", "sm_100")
_READINGS_PER_MEASUREMENT = 6
_TENSORS = tuple(make_tensor_error(tensor=tensor) for tensor in ("out", "grad_x"))
_COUNTERS = ("dram_bytes", "l2_bytes", "sm_throughput", "dram_throughput", "achieved_occupancy", "warp_stall_long")


def make_full_record(number: int, case_count: int) -> RunRecord:
    """Run number `number`: equal cases and machine code in each, new times."""
    rng = np.random.default_rng(number)
    case_ids = [f"kernel_{case % 40}/n={case}/float32/fwd" for case in range(case_count)]
    subjects = [(case_id, implementation) for case_id in case_ids for implementation in _IMPLEMENTATIONS]
    return make_record(
        number,
        measurements=[_measurement(rng, case_id, implementation) for case_id, implementation in subjects],
        accuracies=[
            make_accuracy(case_id, implementation=implementation, tensors=_TENSORS)
            for case_id, implementation in subjects
        ],
        static_facts=[
            make_static_facts(case_id, code=f"{case_id} {target}", target=target, instructions={"global_load.128": 4})
            for case_id in case_ids
            for target in _TARGETS
        ],
        counters=tuple(
            Counters(
                case_id=case_id,
                implementation="triton",
                function="_body",
                values=dict(zip(_COUNTERS, rng.uniform(0, 1, size=len(_COUNTERS)).tolist(), strict=True)),
            )
            for case_id in case_ids
        ),
        telemetry=_telemetry(rng, NOON, len(subjects) * _READINGS_PER_MEASUREMENT),
    )


def _measurement(rng: np.random.Generator, case_id: str, implementation: str) -> Measurement:
    times = np.round(rng.normal(312_500, 400, size=(5, 20))) * 32  # multiples of 32 ns, the clock's resolution
    state = DeviceState(reading_count=3, sm_clock_mhz=1_980.0, power_w=412.5, temperature_c=61.0)
    blocks = tuple(
        Block(started_at=NOON, samples_ns=tuple(row), kernel_count=1, stopped_by="samples", device_state=state)
        for row in times.tolist()
    )
    return make_measurement(case_id, implementation=implementation, blocks=blocks)


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
            record = make_full_record(number, arguments.cases)
            started = time.monotonic()
            ingest_record(engine, record)
            seconds.append(time.monotonic() - started)
    first, *others = seconds
    print(f"{arguments.cases} cases: first {first:.2f} s, then median {statistics.median(others):.2f} s", end="")
    print(f", {statistics.median(others) / _TARGET_S:.2f} of the target of {_TARGET_S:.0f} s")


if __name__ == "__main__":
    main()
