"""The tools that read a cubin: `cuobjdump` and `nvdisasm`, which come with Triton."""

from __future__ import annotations

import re
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from roofwatch.collector.errors import ToolchainError

_RESOURCE_USAGE = re.compile(
    r"Function (?P<symbol>\S+):\s*REG:(?P<registers>\d+) STACK:(?P<stack>\d+) .*?LOCAL:(?P<local>\d+)"
)
_PTXAS_RELEASE = re.compile(r"V(\d+\.\d+\.\d+)")
_BLACKWELL = 100
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/")
_INSTRUCTION_BYTES = 16
"""Of every NVIDIA GPU since Volta."""


def resource_usage(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Registers per thread, and bytes per thread of stack and local memory, by function: what the driver would report
    after loading.

    Raises:
        ToolchainError: cuobjdump is not there or cannot read the cubin.
    """
    listing = _run("cuobjdump", ("-res-usage",), cubin)
    found = {
        match["symbol"]: (int(match["registers"]), int(match["stack"]) + int(match["local"]))
        for match in _RESOURCE_USAGE.finditer(listing)
    }
    if not found:
        raise ToolchainError(f"cuobjdump gave no resource usage but {listing[:200]!r}")
    return found


def sass(codes: Sequence[bytes], arch: int) -> list[str]:
    """The instructions of each piece of machine code as text, a line each.

    One start of nvdisasm reads all of them: it takes a third of a second, which is as long as reading many kernels.

    Args:
        codes: Instructions alone, as `binary.instruction_bytes` has them.
        arch: For which all of them are.

    Raises:
        ToolchainError: nvdisasm is not there or cannot read the code.
    """
    # the flow of data is worked out for drawings of it, and takes half of the time
    listing = _run("nvdisasm", ("--no-dataflow", "--binary", f"SM{arch}"), b"".join(codes))
    ends = list(accumulate(map(len, codes)))
    lines: list[list[str]] = [[] for _ in codes]
    for line in listing.splitlines():
        address = _ADDRESS.match(line)
        if address is not None:
            lines[bisect_right(ends, int(address[1], 16))].append(line)
    for code, own in zip(codes, lines, strict=True):
        if len(own) * _INSTRUCTION_BYTES != len(code):
            raise ToolchainError(f"nvdisasm read {len(own)} instructions in {len(code)} bytes of code for sm_{arch}")
    return ["\n".join(own) for own in lines]


@lru_cache
def ptxas_version(arch: int) -> str:
    """Of the ptxas that Triton runs for an architecture: Blackwell has its own.

    Raises:
        ToolchainError: it is not there.
    """
    path = _tool("ptxas_blackwell" if arch >= _BLACKWELL else "ptxas")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    release = _PTXAS_RELEASE.search(said)
    if release is None:
        raise ToolchainError(f"{path} --version says no version but {said[:200]!r}")
    return release[1]


def _run(name: str, options: tuple[str, ...], content: bytes) -> str:
    path = _tool(name)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        done = subprocess.run([path, *options, file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{path} cannot read what was compiled: {done.stderr.strip()[:500]}")
    return done.stdout


def _tool(name: str) -> str:
    import triton

    knobs = triton.knobs.nvidia
    try:
        return str(getattr(knobs, name).path)
    except RuntimeError as error:
        raise ToolchainError(
            f"{name.replace('_', '-')}, which comes with Triton, is not there: install Triton again with pip install "
            f"--force-reinstall triton, or let TRITON_{name.upper()}_PATH name one ({error})"
        ) from error
