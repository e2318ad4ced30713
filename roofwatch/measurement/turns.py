"""Turns of the processes that measure on one machine."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roofwatch.model.files import make_folder

_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@contextmanager
def measuring_alone(data_dir: Path) -> Iterator[None]:
    """Wait until no other runner or watch of this data folder measures on the same devices, and
    keep others waiting.

    Processes that were given different devices do not wait for each other.
    """
    visible = "-".join(os.environ.get(name, "all") for name in _DEVICES)
    make_folder(data_dir)
    lock = data_dir / f"measuring-{re.sub(r'[^0-9A-Za-z-]', '_', visible)[:200]}.lock"
    with lock.open("w") as file:
        # the kernel ends it with the process, however that ends
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
