"""Times as multiples of a library's time in the same run, at base and head. Pure.

The clock, the driver and the machine change both times of a run equally, so ratios compare where
times do not.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from roofwatch.ci.judge.change import CaseKey
from roofwatch.ci.judge.pairing import CaseResults, Pairing
from roofwatch.model.library import is_library, reference_among


@dataclass(frozen=True)
class LibraryRatio:
    """Time over the library's time of one case and implementation."""

    case_id: str
    implementation: str
    library: str
    base: float
    head: float

    @property
    def relative_change(self) -> float:
        """(head - base) / base; above 0 is slower against the library."""
        return self.head / self.base - 1


def library_ratios(pairing: Pairing) -> list[LibraryRatio]:
    """Compare the ratios of both sides that have the same library, the largest change first."""
    base_libraries = _libraries(pairing.base_results)
    head_libraries = _libraries(pairing.head_results)
    ratios: list[LibraryRatio] = []
    for key in pairing.keys:
        case_id, implementation = key
        library = head_libraries.get(case_id)
        if library is None or base_libraries.get(case_id) != library:
            continue
        base, head = (_ratio(results) for results in pairing.of(key))
        if base is None or head is None:
            continue
        ratios.append(
            LibraryRatio(
                case_id=case_id,
                implementation=implementation,
                library=library,
                base=base,
                head=head,
            )
        )
    return sorted(ratios, key=lambda ratio: -abs(math.log1p(ratio.relative_change)))


def _libraries(results: Mapping[CaseKey, CaseResults]) -> dict[str, str]:
    """Choose the library of each case that was timed."""
    names: dict[str, list[str]] = defaultdict(list)
    for (case_id, implementation), result in results.items():
        if is_library(implementation) and result.median_ns is not None:
            names[case_id].append(implementation)
    libraries: dict[str, str] = {}
    for case_id, timed_names in names.items():
        reference = reference_among(timed_names)
        if reference is not None:
            libraries[case_id] = reference
    return libraries


def _ratio(results: CaseResults) -> float | None:
    return None if results.measurement is None else results.measurement.ratio_to_reference
