"""Short names of cases: without what is the same in all cases of their kernel."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from roofwatch.dashboard.wording import shortened
from roofwatch.model.history import SeriesKey

_NEXT_PARAMETER = re.compile(r",(?=[A-Za-z_]\w*=)")
"""Values of other tools' parameters may have commas too."""


def case_labels(keys: Iterable[SeriesKey]) -> Mapping[str, str]:
    """Return a label by case id; empty for the only case of a kernel that another tool measured."""
    parts_by_case: dict[str, list[str]] = {}
    imported_by_kernel: defaultdict[str, set[str]] = defaultdict(set)
    labels: dict[str, str] = {}
    for key in keys:
        rest = key.case_id.removeprefix(key.kernel).removeprefix("/")
        labels[key.case_id] = shortened(rest, length=80)
        # our own ids are short, and have the same parts everywhere
        if key.is_imported:
            parts_by_case[key.case_id] = _NEXT_PARAMETER.split(rest)
            imported_by_kernel[key.kernel].add(key.case_id)
    for case_ids in imported_by_kernel.values():
        counts = Counter[str]()
        for case_id in case_ids:
            # a parameter counts once for each case
            counts.update(set(parts_by_case[case_id]))
        for case_id in case_ids:
            # what all cases share tells none of them apart
            differing = [part for part in parts_by_case[case_id] if counts[part] < len(case_ids)]
            labels[case_id] = shortened(", ".join(differing), length=80)
    return labels
