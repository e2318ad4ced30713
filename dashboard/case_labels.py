"""Short names of cases: without what is the same in all cases of their kernel."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from roofwatch.dashboard.wording import shortened
from roofwatch.model.history import SeriesKey

_NEXT_PARAMETER = re.compile(r",(?=[A-Za-z_]\w*=)")
"""Values of other tools' parameters may have commas too."""
_LONGEST = 80
_PartsByCase = dict[str, list[str]]
"""Parameters such as `n=128` by case id."""


def case_labels(keys: Iterable[SeriesKey]) -> Mapping[str, str]:
    """Return a label by case id; empty for the only case of a kernel that another tool measured."""
    labels: dict[str, str] = {}
    imported_by_kernel: defaultdict[str, _PartsByCase] = defaultdict(dict)
    for key in keys:
        case_id = key.case_id
        without_kernel = case_id.removeprefix(key.kernel)
        rest = without_kernel.removeprefix("/")
        # our own ids are short, and have the same parts everywhere
        labels[case_id] = shortened(rest, length=_LONGEST)
        if key.is_imported:
            parts_by_case = imported_by_kernel[key.kernel]
            parts_by_case[case_id] = _NEXT_PARAMETER.split(rest)
    for parts_by_case in imported_by_kernel.values():
        labels |= _differing_parts(parts_by_case)
    return labels


def _differing_parts(parts_by_case: _PartsByCase) -> dict[str, str]:
    """Return the parts of each case that not every case of its kernel has."""
    counts = Counter[str]()
    for parts in parts_by_case.values():
        # a parameter counts once for each case
        counts.update(set(parts))
    case_count = len(parts_by_case)
    labels: dict[str, str] = {}
    for case_id, parts in parts_by_case.items():
        # what all cases share tells none of them apart
        differing = [part for part in parts if counts[part] < case_count]
        label = ", ".join(differing)
        labels[case_id] = shortened(label, length=_LONGEST)
    return labels
