"""Builders of what the kernels' tests are about, and the instructions of a cubin."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.kernels.registry import find_kernel
from roofwatch.model.check_report import CheckReport
from roofwatch.spec import Direction, Implementation, Language


def make_case(
    kernel: str, dtype: str = "float32", direction: str = "fwd", **shape: int | str
) -> Case:
    return replace(cases(shapes=[shape], dtypes=[dtype], directions=[direction])[0], kernel=kernel)


def make_inputs(
    kernel: str, device: str = "cpu", dtype: str = "float32", **shape: int | str
) -> dict[str, Any]:
    """What the kernel declares as its inputs."""
    case = make_case(kernel, dtype, "fwd", **shape)
    return find_kernel(kernel).inputs(case, InputMaker(case, device))


def check(
    spec: KernelSpec, case: Case, *, device: str, implementation: str = "triton"
) -> CheckReport:
    return check_case(spec, case, spec.implementations[implementation], CheckCache(), device=device)


def check_stand_in(spec: KernelSpec, case: Case, launch: Callable[..., Any]) -> CheckReport:
    stand_in = Implementation("stand_in", Language.TORCH, launch, frozenset(Direction))
    return check_case(spec, case, stand_in, CheckCache())


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)")


def instructions(cubin: bytes, folder: Path) -> list[str]:
    """The instructions' names with their suffixes, such as `LDG.E.128.CONSTANT`."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    listing = subprocess.run(
        [triton.knobs.nvidia.cuobjdump.path, "-sass", str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return _INSTRUCTION.findall(listing)
