"""Read a trace of 100 MB and say how long it took and how much memory, against the limits of 10 s and 1 GiB.

    python bench/read_profiles.py [MEGABYTES]

The trace is made here, the same each time: a training step over and over, with operators, launches, kernels, copies and
shapes as torch.profiler writes them. Exit status 1 if a limit is not met.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT_S = 10.0
LIMIT_BYTES = 2**30
_READERS = {
    "roofwatch read": "from roofwatch.collector.profiling.profile_formats import read_profile as read",
    "where the time went": "from roofwatch.collector.profiling.time_spent import read_time_spent as read",
}
_MEASURE = """
import sys, time
from pathlib import Path
{load}
began = time.monotonic()
read(Path(sys.argv[1]))
print(time.monotonic() - began)
"""
_OPERATORS = ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::_scaled_dot_product_attention", "aten::gelu")


def step(number: int, start_us: int) -> Iterator[dict[str, Any]]:
    """One operator with its launch and its kernel, and now and then a copy."""
    name = _OPERATORS[number % len(_OPERATORS)]
    on_host: dict[str, Any] = {"ph": "X", "pid": 4321, "tid": 4321}
    on_device: dict[str, Any] = {"ph": "X", "pid": 0, "tid": 7}
    joined = {"correlation": number, "External id": number}
    shapes = {"Input Dims": [[8, 2048, 4096], [4096, 4096], [4096]], "Input type": ["c10::BFloat16"] * 3}
    yield on_host | {"cat": "cpu_op", "name": name, "ts": start_us, "dur": 31.25, "args": {**joined, **shapes}}
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start_us + 12.125, "dur": 6.5}
    yield on_host | call | {"args": {**joined, "cbid": 211}}
    configuration = {"grid": [128, 32, 1], "block": [256, 1, 1], "registers per thread": 128, "shared memory": 49152}
    kernel = (
        f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_128x{64 * (number % 4 + 1)}_32x3_nn_align8>"
    )
    yield on_device | {
        "cat": "kernel",
        "name": kernel,
        "ts": start_us + 25.875,
        "dur": 17.0 + number % 13,
        "args": {**joined, **configuration, "device": 0, "context": 1, "stream": 7, "est. achieved occupancy %": 37},
    }
    if number % 10 == 0:
        copied = {"device": 0, "context": 1, "stream": 7, "bytes": 2**20, "memory bandwidth (GB/s)": 21.5}
        yield on_device | {
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD (Pageable -> Device)",
            "ts": start_us + 47,
            "dur": 2.5,
            "args": {**joined, **copied},
        }


def write_trace(path: Path, size_bytes: int) -> int:
    """Write a trace of about that size; how many events it has."""
    count = number = written = 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1712000000000000000,\n"traceEvents": [\n')
        while written < size_bytes:
            for event in step(number, 6_000_000_000 + 50 * number):
                line = ("" if count == 0 else ",\n") + json.dumps(event)
                written += len(line)
                count += 1
                file.write(line)
            number += 1
        file.write('\n], "traceName": "generated.json"}\n')
    return count


def measure(load: str, path: Path) -> tuple[float, int]:
    """Seconds, and the most memory in bytes of a process that reads the file and does nothing else."""
    # a child of a small process: what this one has held counts for neither
    code = _MEASURE.format(load=load) + "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    seconds, kibibytes = done.stdout.split()
    return float(seconds), int(kibibytes) * 1024


def main() -> int:
    """Make the trace, read it in each way, and print."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 100
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        count = write_trace(path, int(megabytes * 10**6))
        print(f"{path.stat().st_size / 1e6:.0f} MB, {count} events")
        for name, load in _READERS.items():
            seconds, peak_bytes = measure(load, path)
            memory = f"{peak_bytes / 2**20:.0f} MiB of {LIMIT_BYTES / 2**20:.0f} MiB"
            print(f"{name}: {seconds:.1f} s of {LIMIT_S:.0f} s, {memory}")
            is_met = is_met and seconds <= LIMIT_S and peak_bytes <= LIMIT_BYTES
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
