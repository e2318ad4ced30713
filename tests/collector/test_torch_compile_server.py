"""What all workers of a machine with a GPU inherit of torch.compile, without CUDA being touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.collector.nvml import FOLDER
from tests.collector.stub_library import build_stub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.version.cuda is None, reason="this torch was built without CUDA"),
]
PROGRAM = """
import json, os, sys, threading
import torch
from roofwatch.collector.workers import fork_server

def refuse(*_):
    raise AssertionError("CUDA was asked, which no fork survives")

for name in ("_cuda_getDeviceCount", "_cuda_init"):
    setattr(torch._C, name, refuse)
fork_server._load_torch_compile_beside_gpu()
facts = {
    "loaded": "torch._inductor.compile_fx" in sys.modules,
    "threads": threading.active_count(),
    "variable": os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"),
}
print(json.dumps(facts))
"""


def loaded_with(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.strip().splitlines()[-1]


def test_compilers_are_loaded_by_nvml_without_cuda_or_threads(tmp_path: Path) -> None:
    library = build_stub("stub_nvml.c", tmp_path / "libnvidia-ml.so.1")
    shutil.copy(FOLDER / "profiles" / "h100.txt", tmp_path / "profile")

    facts = loaded_with(
        LD_LIBRARY_PATH=str(library.parent), STUB_NVML_PROFILE=str(tmp_path / "profile")
    )

    assert facts == '{"loaded": true, "threads": 1, "variable": null}'


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_nvml_each_worker_loads_them_itself() -> None:
    facts = loaded_with()

    assert facts == '{"loaded": false, "threads": 1, "variable": null}'
