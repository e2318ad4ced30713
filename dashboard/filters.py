"""Filters of all views."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roofwatch.model.history import Regression, SeriesKey
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import CaseOption, FilterOptions

PARAMETERS: Mapping[str, str] = {
    "branch": "Branch",
    "class": "Runner class",
    "filter_kernel": "Kernel",
    "family": "Kernel family",
    "dtype": "Dtype",
    "tag": "Tag",
    "owner": "Owner",
}
"""Label by name in the address."""
_PARAMETERS_OF_CASES = ("filter_kernel", "family", "dtype", "tag", "owner")
"""Those that narrow cases rather than runs."""

_TAG_GROUPS = {
    "scale": re.compile(r"\d+(\.\d+)?[kmbt]", re.IGNORECASE),
    "phase": re.compile("prefill|decode|train"),
    "parallel": re.compile(r"(tp|ep|pp|dp|cp)\d+"),
    "suite": re.compile("small|quick|full"),
}
"""Groups of tags, recognised by their form, such as `70b` or `tp8`; others are `other`."""


_Values = Mapping[str, Sequence[str]]
"""Values by parameter, or owners by kernel."""


@dataclass(frozen=True)
class Filters:
    """Chosen values by parameter; none means any."""

    facets: FilterOptions
    chosen: _Values = field(default_factory=dict)
    owners: _Values = field(default_factory=dict)
    """Owners by kernel."""

    @property
    def is_narrow(self) -> bool:
        return any(self.chosen.values())

    @property
    def runner_classes(self) -> tuple[str, ...]:
        """Return the chosen runner classes; runs are filtered when read, before the newest are
        taken.
        """
        return tuple(self._of("class"))

    @property
    def branches(self) -> tuple[str, ...]:
        return tuple(self._of("branch"))

    def admits_case(self, case_id: str) -> bool:
        """Check kernel, family, dtype, tag and owner."""
        if self.case_ids is None:
            return True
        return case_id in self.case_ids

    def narrowed(
        self,
        record: RunRecord,
        *,
        kernel: str | None = None,
    ) -> RunRecord:
        """Keep the admitted cases of a record, of one kernel if given."""
        # a record may hold kernels that nobody asked for
        case_ids = {case.case_id for case in record.cases if kernel in (None, case.kernel)}
        admitted = set(filter(self.admits_case, case_ids))
        # everything that a record says of a case goes with the case
        parts = (
            "cases",
            "measurements",
            "accuracies",
            "static_facts",
            "overflow_proofs",
            "operator_costs",
            "counters",
            "profiles",
            "imported",
        )
        narrowed_parts: dict[str, tuple[Any, ...]] = {}
        for name in parts:
            items = getattr(record, name)
            narrowed_parts[name] = tuple(item for item in items if item.case_id in admitted)
        return record.model_copy(update=narrowed_parts)

    def admits_kernel(self, kernel: str) -> bool:
        """Whether any case of the kernel is admitted."""
        # runs without cases of the kernel would be empty pages
        admitted = self.case_ids
        if admitted is None:
            return True
        cases = [case for case in self.facets.cases if case.kernel == kernel]
        return any(case.case_id in admitted for case in cases)

    def admits_runner(self, runner_class: str) -> bool:
        """Check the runner class; machine code has none and is always admitted."""
        classes = self._of("class")
        if not classes or not runner_class:
            return True
        return runner_class in classes

    def admits_commit(self, sha: str) -> bool:
        """Whether the commit was measured on a chosen branch."""
        branches = self._of("branch")
        if not branches:
            return True
        commits_by_branch = self.facets.commits_by_branch
        return any(sha in commits_by_branch.get(branch, ()) for branch in branches)

    def admits_series(self, key: SeriesKey) -> bool:
        if not self.admits_case(key.case_id):
            return False
        return self.admits_runner(key.runner_class)

    def admits_regression(self, regression: Regression) -> bool:
        """Check the commit, and whether any change point is admitted."""
        if not self.admits_commit(regression.commit.sha):
            return False
        return any(self.admits_series(point.series) for point in regression.change_points)

    def owners_of(self, kernels: Iterable[str]) -> list[str]:
        """Return the owners of kernels in order, without duplicates."""
        owners: dict[str, None] = {}
        for kernel in kernels:
            owners |= dict.fromkeys(self.owners.get(kernel, ()))
        return list(owners)

    def _of(self, parameter: str) -> Sequence[str]:
        return self.chosen.get(parameter, ())

    @cached_property
    def case_ids(self) -> frozenset[str] | None:
        """Return the admitted cases; None if all are."""
        demands: list[tuple[str, set[str]]] = []
        for parameter in _PARAMETERS_OF_CASES:
            chosen = self._of(parameter)
            alternatives = [set(chosen)]
            # tags of one group are alternatives, but every group must match
            if parameter == "tag":
                alternatives = _grouped(chosen)
            demands += [(parameter, values) for values in alternatives if values]
        if not demands:
            return None
        admitted: set[str] = set()
        for case in self.facets.cases:
            values_of_case = _values_of(case, self.owners)
            if _meets(values_of_case, demands):
                admitted.add(case.case_id)
        return frozenset(admitted)


def _meets(
    values_of_case: _Values,
    demands: Iterable[tuple[str, set[str]]],
) -> bool:
    """Whether a case has one of the values of every demand."""
    return all(not values.isdisjoint(values_of_case[name]) for name, values in demands)


def _values_of(case: CaseOption, owners: _Values) -> _Values:
    """Return what a case has of each parameter that narrows cases."""
    return {
        "filter_kernel": [case.kernel],
        "family": [case.family],
        "dtype": [case.dtype],
        "tag": case.tags,
        "owner": owners.get(case.kernel, ()),
    }


def options_of(facets: FilterOptions, owners: _Values) -> dict[str, list[str]]:
    """Return the options by parameter."""
    options: dict[str, set[str]] = {name: set() for name in _PARAMETERS_OF_CASES}
    for case in facets.cases:
        values_of_case = _values_of(case, owners)
        for name, values in values_of_case.items():
            # cases of other tools have no family
            options[name].update(filter(None, values))
    options_of_runs = {
        "branch": sorted(facets.commits_by_branch),
        "class": list(facets.runner_classes),
    }
    options_of_cases = {name: sorted(values) for name, values in options.items()}
    return options_of_runs | options_of_cases


def _grouped(tags: Iterable[str]) -> list[set[str]]:
    """Group tags: within a group any may match, but all groups must. `70b`, `8b` and `decode`
    select decoding of either.
    """
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for tag in tags:
        groups[_group_of(tag)].add(tag)
    return list(groups.values())


def _group_of(tag: str) -> str:
    for group, pattern in _TAG_GROUPS.items():
        if pattern.fullmatch(tag):
            return group
    return "other"
