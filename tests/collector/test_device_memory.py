"""GPU memory shared by two processes, through a driver that shares the host's memory instead."""

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collector.workers.device_memory import create_device_memory, open_device_memory
from roofwatch.model.errors import CollectorError
from tests.collector.stub_library import build_stub

BYTE_COUNT = 5_000_000
"""No multiple of what the driver allocates."""
OTHER_PROCESS = """
import ctypes, os, socket, sys
from roofwatch.collector.workers import device_memory

device_memory._LIBRARY = sys.argv[2]
control = socket.socket(fileno=int(sys.argv[1]))
_, (descriptor,), _, _ = socket.recv_fds(control, 100, 1)
memory = device_memory.open_device_memory(descriptor, int(sys.argv[3]), 0)
os.close(descriptor)
received = ctypes.string_at(memory.address, 5)
ctypes.memmove(memory.address + memory.byte_count - 5, received[::-1], 5)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub("stub_libcuda.c", tmp_path_factory.mktemp("driver") / "libcuda.so.1")


@pytest.fixture(autouse=True)
def _driver(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.collector.workers.device_memory._LIBRARY", str(library))


def test_what_one_process_writes_another_reads_through_a_file_descriptor(library: Path) -> None:
    memory, descriptor = create_device_memory(BYTE_COUNT, 0)
    ctypes.memmove(memory.address, b"hello", 5)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with control, theirs:
        command = [sys.executable, "-c", OTHER_PROCESS, theirs.fileno(), library, BYTE_COUNT]
        process = subprocess.Popen(list(map(str, command)), pass_fds=(theirs.fileno(),))
        socket.send_fds(control, [b"memory"], [descriptor])
        os.close(descriptor)
        assert process.wait(60) == 0

    assert ctypes.string_at(memory.address + BYTE_COUNT - 5, 5) == b"olleh"


def test_a_descriptor_that_cannot_be_mapped_is_an_error_that_names_the_function() -> None:
    not_open = 1_000

    with pytest.raises(CollectorError, match=r"cannot share memory .*\(cuMemMap: CUDA error"):
        open_device_memory(not_open, BYTE_COUNT, 0)
