"""Values of what the results of a project can be narrowed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CaseFacet:
    case_id: str
    kernel: str
    dtype: str
    family: str
    """Of kernels; empty where no recent run has the case."""
    tags: tuple[str, ...]
    """Such as its scale, `smoke` or `full`; empty where no recent run has the case."""


@dataclass(frozen=True)
class Facets:
    cases: tuple[CaseFacet, ...]
    commits_by_branch: Mapping[str, frozenset[str]]
    """The shas that were measured under the name of a branch."""
    runner_classes: tuple[str, ...]
    commit_count: int = 0
    """That have runs."""
    source_files: Mapping[str, str] = field(default_factory=dict)
    """Of kernels, from the root of their repository, as the newest run knew it; those that are known."""
    projects: tuple[str, ...] = ()
    """All there are, in alphabetical order."""
