"""Fresh buffers full of NaN, so that an element that a kernel never writes is seen in the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def poisoned_buffers() -> Iterator[None]:
    """Within it every tensor that is allocated and not filled (`torch.empty` and its kin), outputs and workspaces
    alike, starts as NaN, or as the largest number of an integer dtype.

    Source: torch.utils.deterministic.fill_uninitialized_memory, on by default in torch's deterministic mode.
    """
    was_on = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # cuBLAS and others without a deterministic way may stay as they are, so warn only
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=was_warn_only)
