"""What the reader narrowed every view to, and whether something is within it. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from roofwatch.db.queries.results import CaseOption, FilterOptions
from roofwatch.db.values import Regression, SeriesKey

PARAMETERS: Mapping[str, str] = {
    "branch": "Branch",
    "class": "Runner class",
    "family": "Kernel family",
    "dtype": "Dtype",
    "tag": "Tag",
    "owner": "Owner",
}
"""What can be narrowed by: the name in the address, and the label."""

_TAG_GROUPS = {
    "scale": re.compile(r"\d+(\.\d+)?[kmbt]", re.IGNORECASE),
    "phase": re.compile("prefill|decode|train"),
    "parallel": re.compile(r"(tp|ep|pp|dp|cp)\d+"),
    "suite": re.compile("small|quick|full"),
}
"""What a tag is about, by its form, such as `70b` or `tp8`, or by its word; the words of a project's own are `other`.
"""


@dataclass(frozen=True)
class Filters:
    """Chosen values by parameter. A parameter without any admits everything, known to the facets or not."""

    facets: FilterOptions
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of kernels; those that somebody is known to own."""

    @property
    def is_narrow(self) -> bool:
        return any(self.chosen.values())

    @property
    def runner_classes(self) -> tuple[str, ...]:
        """That were chosen; none where any will do. Runs are narrowed by them where they are read: before, not after
        the newest of them are taken.
        """
        return tuple(self._of("class"))

    @property
    def branches(self) -> tuple[str, ...]:
        """Likewise."""
        return tuple(self._of("branch"))

    def admits_case(self, case_id: str) -> bool:
        """By family, dtype, tag and owner."""
        return self.case_ids is None or case_id in self.case_ids

    def admits_kernel(self, kernel: str) -> bool:
        """Any of its cases is admitted."""
        return self._admitted_kernels is None or kernel in self._admitted_kernels

    def admits_runner(self, runner_class: str) -> bool:
        """Machine code belongs to no runner, whose class is empty there, and is always admitted."""
        classes = self._of("class")
        return not classes or not runner_class or runner_class in classes

    def admits_commit(self, sha: str) -> bool:
        """It was measured under the name of a chosen branch."""
        return self._admitted_commits is None or sha in self._admitted_commits

    def admits_series(self, key: SeriesKey) -> bool:
        return self.admits_case(key.case_id) and self.admits_runner(key.runner_class)

    def admits_regression(self, regression: Regression) -> bool:
        """Its commit is, and any of its change points."""
        return self.admits_commit(regression.commit.sha) and any(
            self.admits_series(point.series) for point in regression.change_points
        )

    def owners_of(self, kernels: Iterable[str]) -> list[str]:
        """Each once, in the order of the kernels."""
        return list(dict.fromkeys(owner for kernel in kernels for owner in self.owners.get(kernel, ())))

    def families_of(self, kernels: Iterable[str]) -> list[str]:
        """Each once, in the order of the kernels; of kernels that no recent run has none."""
        found = (self._family_of.get(kernel) for kernel in kernels)
        return list(dict.fromkeys(family for family in found if family))

    def _of(self, parameter: str) -> Sequence[str]:
        return self.chosen.get(parameter, ())

    @cached_property
    def case_ids(self) -> frozenset[str] | None:
        """Of the admitted cases; None where no choice is about cases, and all are admitted."""
        if not any(self._of(parameter) for parameter in ("family", "dtype", "tag", "owner")):
            return None
        return frozenset(case.case_id for case in self.facets.cases if self._is_within(case))

    @cached_property
    def _family_of(self) -> Mapping[str, str]:
        return {case.kernel: case.family for case in self.facets.cases if case.family}

    @cached_property
    def _admitted_kernels(self) -> frozenset[str] | None:
        admitted = self.case_ids
        return (
            None if admitted is None else frozenset(one.kernel for one in self.facets.cases if one.case_id in admitted)
        )

    @cached_property
    def _admitted_commits(self) -> frozenset[str] | None:
        branches = self._of("branch")
        if not branches:
            return None
        return frozenset().union(*(self.facets.commits_by_branch.get(branch, frozenset()) for branch in branches))

    def _is_within(self, case: CaseOption) -> bool:
        families, dtypes, tags, owners = (self._of(name) for name in ("family", "dtype", "tag", "owner"))
        return (
            (not families or case.family in families)
            and (not dtypes or case.dtype in dtypes)
            and all(not own.isdisjoint(case.tags) for own in _grouped(tags))
            and (not owners or not set(owners).isdisjoint(self.owners.get(case.kernel, ())))
        )


def options_of(facets: FilterOptions, owners: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What may be chosen, by parameter."""
    return {
        "branch": sorted(facets.commits_by_branch),
        "class": list(facets.runner_classes),
        "family": sorted({case.family for case in facets.cases if case.family}),
        "dtype": sorted({case.dtype for case in facets.cases}),
        "tag": sorted({tag for case in facets.cases for tag in case.tags}),
        "owner": sorted({owner for own in owners.values() for owner in own}),
    }


def group_of(tag: str) -> str:
    return next((group for group, pattern in _TAG_GROUPS.items() if pattern.fullmatch(tag)), "other")


def _grouped(tags: Iterable[str]) -> list[set[str]]:
    """Tags of one group stand for each other, those of different groups must all hold: `70b` and `8b` with `decode` are
    the decoding of either.
    """
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for tag in tags:
        groups[group_of(tag)].add(tag)
    return list(groups.values())
