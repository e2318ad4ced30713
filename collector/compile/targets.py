"""GPU targets that kernels are compiled for, whether or not such a GPU is there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roofwatch.collector.errors import CollectorError

DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")


class TargetError(CollectorError):
    """Not a target that this version knows."""


@dataclass(frozen=True)
class Target:
    backend: str
    arch: int | str
    warp_size: int


def parse_target(name: str) -> Target:
    """Read `sm_90` or `gfx942`.

    Raises:
        TargetError: neither an NVIDIA nor an AMD target.
    """
    if re.fullmatch(r"sm_\d{2,3}", name):
        return Target("cuda", int(name.removeprefix("sm_")), 32)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", name):
        # CDNA (gfx9) has wavefronts of 64 threads, RDNA of 32
        return Target("hip", name, 64 if name.startswith("gfx9") else 32)
    raise TargetError(f"target {name!r} is not known; use for example {', '.join(DEFAULT_TARGETS)}")
