"""No request takes the server above 400 MB."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.api.service import Service

MAX_RESIDENT_BYTES = 400 * 10**6
COUNT = 3_000_000
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
