"""Finds the largest size of each dimension at which every offset of a case fits into 32 bits."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from roofwatch.collector.deadline import interrupted_at
from roofwatch.model.proofs import SizeLimit, UnprovenAccess
from roofwatch.spec import Case

_LARGEST = 2**31 - 1
_GROWTH = 8
_MAX_GRANULE = 64
_MAX_STEP_S = 2.0

Overflow = Callable[[Case], UnprovenAccess | None]
"""The first overflow of a case; raises if its launcher refuses the size."""


class _RefusedError(Exception):
    """The launcher does not accept the size."""


@dataclass(frozen=True)
class FoundLimits:
    limits: tuple[SizeLimit, ...] = ()
    searched: tuple[str, ...] = ()
    """Dimensions whose search ended; of the others nothing is known."""


def find_limits(case: Case, overflow: Overflow, *, deadline_s: float) -> FoundLimits:
    """Enlarge one dimension after the other until something overflows, and find the first size.

    A dimension that its launcher refuses to enlarge has no limit.
    """
    limits: list[SizeLimit] = []
    searched: list[str] = []
    for dimension, length in case.shape:
        # a dimension may be a word, or broadcast
        if isinstance(length, str) or length < 1:
            continue
        search = _Search(
            case=case,
            dimension=dimension,
            length=length,
            overflow=overflow,
            deadline_s=deadline_s,
        )
        try:
            limit = search.run()
        except TimeoutError:
            # it had no time for this dimension, and may have some for a smaller one
            continue
        searched.append(dimension)
        if limit is not None:
            limits.append(limit)
    return FoundLimits(tuple(limits), tuple(searched))


class _Search:
    def __init__(
        self,
        case: Case,
        dimension: str,
        length: int,
        overflow: Overflow,
        deadline_s: float,
    ) -> None:
        self._case = case
        self._dimension = dimension
        self._length = length
        self._overflow = overflow
        self._deadline_s = deadline_s
        self._is_slow = False

    def run(self) -> SizeLimit | None:
        """Find the largest size that fits: coarse steps first, then single ones."""
        too_large = self._first_too_large()
        if too_large is None:
            return None
        granule = min(self._length & -self._length, _MAX_GRANULE)
        fits, fails, first = self._bisected(*too_large, granule)
        # the granule only makes the first search shorter
        if granule > 1:
            fits, _, first = self._bisected(
                fits=fits,
                fails=fails,
                first=first,
                granule=1,
            )
        return SizeLimit(
            dimension=self._dimension,
            declared=self._length,
            largest=fits,
            first=first,
        )

    def _first_too_large(self) -> tuple[int, int, UnprovenAccess] | None:
        """Return a size that fits, a larger one that overflows, and what does."""
        fits = self._length
        factor = _GROWTH
        while factor > 1:
            larger = fits * factor
            if larger > _LARGEST:
                factor //= 2
                continue
            try:
                first = self._at(larger)
            except _RefusedError:
                # a launcher may refuse a large step and take a smaller one
                factor //= 2
                continue
            if first is not None:
                return fits, larger, first
            fits = larger
        return None

    def _bisected(
        self,
        fits: int,
        fails: int,
        first: UnprovenAccess,
        granule: int,
    ) -> tuple[int, int, UnprovenAccess]:
        """Narrow the gap between a size that fits and one that does not to a granule."""
        while fails - fits > granule:
            middle = fits + (fails - fits) // (2 * granule) * granule
            if middle == fits:
                middle = fits + granule
            try:
                overflow = self._at(middle)
            except _RefusedError:
                fails = middle
                continue
            if overflow is None:
                fits = middle
            else:
                fails = middle
                first = overflow
        return fits, fails, first

    def _at(self, length: int) -> UnprovenAccess | None:
        """The overflow at a size; None if there is none."""
        if time.monotonic() > self._deadline_s or self._is_slow:
            raise TimeoutError
        shape = tuple(
            (name, length if name == self._dimension else value) for name, value in self._case.shape
        )
        began_s = time.monotonic()
        try:
            # a launcher may loop over a huge dimension
            with interrupted_at(self._deadline_s, TimeoutError):
                return self._overflow(replace(self._case, shape=shape))
        except TimeoutError:
            raise
        except Exception as error:
            raise _RefusedError from error
        finally:
            # a size that the code is unrolled for is no size that grows
            self._is_slow = time.monotonic() - began_s > _MAX_STEP_S
