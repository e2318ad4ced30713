"""Python's search for cycles that nobody needs, left off for a while."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_left_alone(*, collects_first: bool = False) -> Iterator[None]:
    """Look for no garbage for the time of a `with` block: where the search would fall into what is timed, or takes time
    and finds nothing, since much is made and kept. Afterwards it is as it was.

    Args:
        collects_first: Once before the block, so that what others left is not kept for so long.
    """
    was_enabled = gc.isenabled()
    if collects_first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
