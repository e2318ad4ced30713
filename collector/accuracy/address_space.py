"""Which addresses of this process are mapped."""

from bisect import bisect_right
from pathlib import Path

_MAPS = Path("/proc/self/maps")


class AddressSpace:
    """Ranges of readable and writable memory, read again when an address is in none of them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def forget(self) -> None:
        """Read the ranges again at the next test, because memory may have been freed."""
        self._ranges = []

    def is_mapped(self, begin: int, end: int) -> bool:
        """Whether all bytes from `begin` to `end` are mapped; true where the system cannot tell."""
        if self._contains(begin, end):
            return True
        try:
            self._ranges = _read_ranges(_MAPS.read_text())
        except OSError:
            return True
        return self._contains(begin, end)

    def _contains(self, begin: int, end: int) -> bool:
        position = bisect_right(self._ranges, (begin, 2**64)) - 1
        return position >= 0 and end <= self._ranges[position][1]


def _read_ranges(text: str) -> list[tuple[int, int]]:
    """Writable ranges of `/proc/self/maps`, as begin and end; adjacent ones are merged."""
    ranges: list[tuple[int, int]] = []
    for line in text.splitlines():
        bounds, permissions, *_ = line.split()
        if not permissions.startswith("rw"):
            continue
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        if ranges and ranges[-1][1] == begin:
            begin, _ = ranges.pop()
        ranges.append((begin, end))
    return ranges
