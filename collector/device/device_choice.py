"""The device that a worker runs kernels on: the one asked for, if torch sees it."""

from __future__ import annotations

import re

import torch

from roofwatch.collector.errors import CollectorError

_NAME = re.compile(r"cpu|cuda(?::(\d+))?")


def choose_device(asked: str | None) -> str:
    """The device of a process, by torch's name; None takes a GPU where torch sees one, else the CPU.

    Raises:
        CollectorError: there is no such device; the message says which there are.
    """
    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    name = _NAME.fullmatch(asked)
    if name is None:
        raise CollectorError(f"--device {asked}: kernels run on cpu or cuda; left out: a GPU where there is one")
    if asked == "cpu":
        return asked
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise CollectorError(f"--device {asked}: torch sees no GPU here ({_why()}); --device cpu measures without one")
    if int(name[1] or 0) >= count:
        raise CollectorError(f"--device {asked}: torch sees {count} GPUs here, the last one is cuda:{count - 1}")
    return asked


def _why() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of it is for CPUs alone"
    return "no driver, or none that fits this build, or CUDA_VISIBLE_DEVICES hides them"
