"""No request takes the server above 400 MB."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import orjson
import psutil
import pytest

from roofwatch.model.machine import DeviceState, Telemetry
from roofwatch.model.measurement import Block
from roofwatch.model.record import RunRecord
from tests.api.service import Service
from tests.builders import NOON, make_accuracy, make_measurement, make_record

MAX_RESIDENT_BYTES = 400 * 10**6
COLUMNS = (b"offset_ms", b"power_w", b"temperature_c", b"sm_clock_mhz", b"energy_j")
READING_COUNT = 250_000
"""Three and a half hours."""
BOMBS = {
    "texts": b'["a' + b'","a' * 15_000_000 + b'"]',
    "different texts": b'{"x": [' + b",".join(b'"%07d"' % i for i in range(1_400_000)) + b"]}",
    "numbers": b"[" + b"[" + b"1.5," * 40_000 + b"1.5]," * 1 + b"1]",
    "arrays": b"[" + b"[]," * 499_000 + b"[]]",
    "objects": b"[" + b'{"a":1},' * 499_000 + b"1]",
    "wrong results": b'{"schema_version":"1.2","run_id":"x","measurements":[{"blocks":['
    + b"1," * 49_999
    + b"1]}]}",
    "a long document": b'{"a":"' + b"a" * 10**9 + b'"}',
    "wrong readings": b'{"schema_version":"1.0","run_id":"x","telemetry":{'
    + b",".join(b'"%s":[' % name + b"-1," * 290_000 + b"-1]" for name in COLUMNS)
    + b"}}",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service")) as service:
        yield service


def peak_bytes(service: Service) -> int:
    """The most memory that the API's process ever had."""
    status = Path(f"/proc/{service.api_pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def post(service: Service, body: bytes) -> int:
    request = urllib.request.Request(  # noqa: S310  our own address
        f"{service.url}/v1/records",
        data=gzip.compress(body, compresslevel=1),
        headers={
            "Authorization": f"Bearer {service.token}",
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  our own address
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_memory_of_hostile_requests_is_bounded(service: Service, kind: str) -> None:
    assert psutil.pid_exists(service.api_pid)

    status = post(service, BOMBS[kind])

    assert status in {413, 422}
    assert peak_bytes(service) < MAX_RESIDENT_BYTES


def large_record() -> RunRecord:
    """41 MB: 10,000 measurements of 100 samples with spans, and a result of each."""
    rng = np.random.default_rng(7)
    state = DeviceState(
        reading_count=3,
        sm_clock_mhz=1_980.0,
        memory_clock_mhz=2_619.0,
        power_w=412.5,
        temperature_c=61.0,
        memory_temperature_c=71.0,
        energy_per_launch_j=0.001_23,
    )
    case_ids = [f"rms_norm/n={number}/float32/fwd" for number in range(10_000)]
    measurements = []
    for case_id in case_ids:
        # multiples of 32 ns, the clock's resolution
        times_ns = np.round(rng.normal(312_500, 400, size=(5, 20))) * 32
        blocks = tuple(
            Block(
                started_at=NOON,
                samples_ns=tuple(block_ns),
                span_ns=tuple(time_ns + 1 for time_ns in block_ns),
                host_ns=1_234.5,
                launch_delay_ns=777.25,
                kernel_count=1,
                device_state=state,
            )
            for block_ns in times_ns.tolist()
        )
        measurements.append(make_measurement(case_id, blocks=blocks))
    accuracies = [make_accuracy(case_id) for case_id in case_ids]
    return make_record(measurements=measurements, accuracies=accuracies)


def long_record() -> RunRecord:
    """One result, and the readings of a run of hours."""
    numbers = np.arange(READING_COUNT, dtype=float)
    telemetry = Telemetry(
        status="ok",
        started_at=NOON,
        offset_ms=tuple((numbers * 50).tolist()),
        sm_clock_mhz=(1_980.0,) * READING_COUNT,
        power_w=tuple((400 + numbers % 17).tolist()),
        temperature_c=(61.0,) * READING_COUNT,
        energy_j=tuple((numbers * 20.5).tolist()),
        clock_event_reasons=(("sw_power_cap",),) * READING_COUNT,
    )
    return make_record(2, telemetry=telemetry)


@pytest.mark.slow
@pytest.mark.parametrize("make", [large_record, long_record])
def test_memory_of_large_records_is_bounded(
    service: Service, make: Callable[[], RunRecord]
) -> None:
    status = post(service, orjson.dumps(make().to_dict()))

    assert status == 201
    assert peak_bytes(service) < MAX_RESIDENT_BYTES
