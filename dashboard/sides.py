"""What can be set against each other: commits, runs, branches, toolchains, devices, each spoken for by a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum

from roofwatch.dashboard.wording import choice_text
from roofwatch.dashboard.zone import written
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.db.queries.fleet_values import FleetRun


class By(StrEnum):
    """What one side is."""

    COMMITS = "commits"
    RUNS = "runs"
    BRANCHES = "branches"
    TOOLCHAINS = "toolchains"
    DEVICES = "devices"


def runs_by(by: By, runs: Sequence[FleetRun], facets: Facets) -> dict[str, list[FleetRun]]:
    """The runs of each thing that may be chosen, in the order of its newest run.

    Args:
        by: What is chosen.
        runs: The newest first.
        facets: Which commits are of which branch.

    Returns:
        Of each choice its runs, first the one that speaks for it: of a commit that is on its branch before one that is
        no longer, of a clean work tree before a dirty one, by itself before a side of a pair, which measures fewer
        cases, then the newest.
    """
    found: dict[str, list[FleetRun]] = {}
    for run in runs:
        for choice in _choices(by, run, facets.commits_by_branch):
            found.setdefault(choice, []).append(run)
    # sorting keeps the newest first among equals
    return {
        choice: sorted(own, key=lambda run: (run.is_unreachable, run.is_dirty, run.is_paired))
        for choice, own in found.items()
    }


def run_for(runs: Sequence[FleetRun], *, runner_class: str | None = None) -> FleetRun:
    """The run that speaks for a choice: the first on the runner class of the other side, else the first."""
    return next((run for run in runs if run.runner_class == runner_class), runs[0])


def title_of(by: By, choice: str, runs: Sequence[FleetRun], zone: tzinfo) -> str:
    """What is read in the list of choices."""
    if by is By.COMMITS:
        return choice_text(runs[0].commit, is_unreachable=runs[0].is_unreachable)
    if by is By.RUNS:
        run = runs[0]
        left = ", no longer on its branch" if run.is_unreachable else ""
        return f"{written(run.started_at, zone)} {run.commit.short_sha} on {run.runner_class} ({choice[:8]}{left})"
    return choice


def _choices(by: By, run: FleetRun, commits_by_branch: Mapping[str, frozenset[str]]) -> list[str]:
    environment = run.environment
    if by is By.RUNS:
        return [run.run_id]
    if by is By.COMMITS:
        return [run.commit.sha]
    if by is By.DEVICES:
        return [run.runner_class]
    if by is By.BRANCHES:
        return [branch for branch, shas in commits_by_branch.items() if run.commit.sha in shas]
    versions = (
        ("torch", environment.torch_version),
        ("triton", environment.triton_version),
        ("CUDA", environment.cuda_version),
        ("driver", environment.driver_version),
    )
    return [", ".join(f"{name} {version}" for name, version in versions if version)]
