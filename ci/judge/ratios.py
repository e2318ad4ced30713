"""Times as multiples of a library's time in the same run, at base and head. Pure.

The clock, the driver and the machine change both times of a run equally, so ratios compare where
times do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from roofwatch.ci.judge.change import Change, ChangeSubject, log_ratio_of
from roofwatch.ci.judge.pairing import CaseResults, Pairing
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.library import is_library, reference_among
from roofwatch.model.metrics import RATIO_TO_REFERENCE
from roofwatch.model.verdict import Reason


@dataclass(frozen=True)
class LibraryEvidence:
    """The library that both sides are compared with."""

    library: str


def judge_library_ratios(pairing: Pairing) -> list[Change[LibraryEvidence]]:
    """Compare the ratios of both sides that have the same library, the largest change first.

    They decide nothing: a ratio also changes with the library.
    """
    base_libraries = _libraries(pairing.base_results)
    head_libraries = _libraries(pairing.head_results)
    ratios: list[Change[LibraryEvidence]] = []
    for key in pairing.keys:
        case_id, _ = key
        library = head_libraries.get(case_id)
        # against another library, the ratios have nothing in common
        if library is None or base_libraries.get(case_id) != library:
            continue
        base, head = (_ratio(results) for results in pairing.of(key))
        if base is None or head is None:
            continue
        ratios.append(
            Change(
                subject=ChangeSubject(*key),
                metric=RATIO_TO_REFERENCE,
                base=base,
                head=head,
                log_ratio=log_ratio_of(base, head),
                reason=Reason.RATIO_CHANGED,
                evidence=LibraryEvidence(library),
            )
        )
    return sorted(ratios, key=lambda ratio: -abs(ratio.log_ratio))


def _libraries(results: Mapping[CaseKey, CaseResults]) -> dict[str, str]:
    """Choose the library of each case that was timed."""
    timed_libraries = [
        key
        for key, result in results.items()
        if is_library(key[1]) and result.median_ns is not None
    ]
    libraries: dict[str, str] = {}
    for case_id, keys in group_by(timed_libraries, lambda key: key[0]).items():
        reference = reference_among([implementation for _, implementation in keys])
        if reference is not None:
            libraries[case_id] = reference
    return libraries


def _ratio(results: CaseResults) -> float | None:
    if results.measurement is None:
        return None
    return results.measurement.ratio_to_reference
