"""Programs that are started from here get the same addresses every time.

A compiler that goes through a table in the order of addresses compiles one text to several codes. ptxas 13.1.80 names
the registers of one of our kernels otherwise in a third of its runs, and in none where programs are not laid out at
random.

Source: personality(2), ADDR_NO_RANDOMIZE.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

_ASK = 0xFFFFFFFF
_NO_RANDOMIZE = 0x0040000


@contextlib.contextmanager
def same_addresses() -> Iterator[bool]:
    """Within it; gives whether the system allows it, which containers may not."""
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is None:  # not Linux
        yield False
        return
    before = personality(ctypes.c_ulong(_ASK))
    is_allowed = before >= 0 and personality(ctypes.c_ulong(before | _NO_RANDOMIZE)) >= 0
    try:
        yield is_allowed
    finally:
        if is_allowed:
            personality(ctypes.c_ulong(before))
