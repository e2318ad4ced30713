"""Controls: rows of a library that are measured in the same run as the code of the project. Pure.

What changes together with a control is the machine, the driver or the library, not the commit.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roofwatch.ci.causes.odds import Odds, cause_of, ranked, weigh
from roofwatch.ci.history.finding import TrendFinding, find_sites, is_outcome
from roofwatch.ci.history.steps import Timeline
from roofwatch.ci.messages import count_of
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Cause, CommitRef, Regression, SeriesKey, Suspect
from roofwatch.model.library import is_library
from roofwatch.model.metrics import RATIO_TO, RATIO_TO_REFERENCE
from roofwatch.model.verdict import Status, Verdict

_SAME_SHARE = 1 / 2
"""A control that changed by at least this share of a change, on the log scale, explains it."""
_QUIET_SHARE = 1 / 4
"""A control that changed by at most this share of a change shows that the machine is the same."""
_CONTROL_ODDS = 9.0
"""Odds of the machine if a control of the same run changed with the series."""
_LIBRARY_ODDS = 3.0
"""Odds of another library if only rows of libraries changed."""
_RUNNER_ODDS = 1.0
"""Odds of the machine then."""
_MEMORY_UNIT = re.compile(r"bytes|[KMGT]i?B|[kMGT]bytes?", re.IGNORECASE)
_NEAR_COMMITS = 5
"""Commits on either side of a change whose values of a control are compared."""

_Place = tuple[str, str, str]
"""Project, case and runner class."""


def controls_among(subjects: Iterable[CaseKey]) -> frozenset[CaseKey]:
    """List the rows of libraries, of the cases that have another row too.

    A case that only libraries compute has no control: they are what the project measures.
    """
    implementations: dict[str, set[str]] = defaultdict(set)
    for case_id, implementation in subjects:
        implementations[case_id].add(implementation)
    controls: set[CaseKey] = set()
    for case_id, names in implementations.items():
        libraries = {name for name in names if is_library(name)}
        # a case that only libraries compute is what the project measures
        if libraries != names:
            controls |= {(case_id, name) for name in libraries}
    return frozenset(controls)


@dataclass(frozen=True)
class ControlLine:
    """The values of a control by commit."""

    series: SeriesKey
    commits: Sequence[CommitRef]
    values: Sequence[float]
    """One for each commit."""

    def log_change_around(self, finding: TrendFinding) -> float | None:
        """Return how far the control changed at the place of a finding; None if it was not measured
        on both sides.
        """
        begin = finding.change.commit
        old_logs: list[float] = []
        new_logs: list[float] = []
        for commit, value in zip(self.commits, self.values, strict=True):
            # a failed run has no time
            if value <= 0:
                continue
            if commit < begin:
                old_logs.append(math.log(value))
            else:
                new_logs.append(math.log(value))
        if not old_logs or not new_logs:
            return None
        old_level = statistics.median(old_logs[-_NEAR_COMMITS:])
        new_level = statistics.median(new_logs[:_NEAR_COMMITS])
        return new_level - old_level


@dataclass
class Controls:
    """The controls of a project, and their values."""

    subjects: set[CaseKey] = field(default_factory=set)
    lines: dict[_Place, list[ControlLine]] = field(default_factory=lambda: defaultdict(list))

    @property
    def all(self) -> list[ControlLine]:
        return [line for lines in self.lines.values() for line in lines]

    def add(self, line: Timeline) -> None:
        control_line = ControlLine(
            series=line.key,
            commits=line.commits,
            values=line.values,
        )
        self.add_line(control_line)

    def add_line(self, line: ControlLine) -> None:
        self.lines[_place_of(line.series)].append(line)

    def merge(self, controls: "Controls") -> None:
        """Add the controls of another part of the history."""
        self.subjects |= controls.subjects
        for controlled, lines in controls.lines.items():
            self.lines[controlled].extend(lines)

    def has(self, series: SeriesKey) -> bool:
        """Whether a series is of a control."""
        if not series.is_performance:
            return False
        return series.case_key in self.subjects

    def explain_ratio(self, finding: TrendFinding) -> bool:
        """Whether a ratio changed because the library's time did, in the opposite direction."""
        series = finding.change.series
        # the title of another tool's ratio begins with that of the divided metric
        divided_title = series.definition.title.partition(RATIO_TO)[0]
        for line in self.lines.get(_place_of(series), ()):
            is_divisor = line.series.definition.title == divided_title
            if series.metric != RATIO_TO_REFERENCE and not is_divisor:
                continue
            change = line.log_change_around(finding)
            # it was not measured on both sides
            if change is None:
                continue
            # the library changed by as much, in the opposite direction
            if -change / finding.log_change >= _SAME_SHARE:
                return True
        return False

    def of(self, finding: TrendFinding) -> dict[str, float]:
        """Return the log change of each control of a finding, by implementation."""
        changes: dict[str, float] = {}
        series = finding.change.series
        for line in self.lines.get(_place_of(series), ()):
            # a control of another metric shows nothing about this one
            if line.series.metric != series.metric:
                continue
            change = line.log_change_around(finding)
            # an infinite change is a failure, which no library shares
            if change is not None and not math.isinf(finding.log_change):
                changes[line.series.implementation] = change
        return changes


def settle_controls(
    findings: Iterable[TrendFinding],
    controls: Controls,
) -> tuple[list[TrendFinding], list[TrendFinding]]:
    """Use the values of controls as evidence about other series.

    A change that its control shares, in the same direction and of about its size, is the runner's,
    and has no p-value of its own. Failures of a control stay, and so do its measured times.

    Returns:
        The findings without those of imported controls, and these.
    """
    settled: list[TrendFinding] = []
    of_libraries: list[TrendFinding] = []
    for finding in findings:
        series = finding.change.series
        is_own = not finding.is_performance or finding.status is Status.CONFIRMED
        # a library's imported time is evidence and no finding of the project
        if controls.has(series) and series.is_imported and not is_outcome(finding.change):
            of_libraries.append(finding)
        elif is_own or controls.has(series):
            settled.append(finding)
        else:
            settled.append(_weighed(finding, controls.of(finding)))
    return _settle_ratios(settled, of_libraries, controls), of_libraries


def _weighed(finding: TrendFinding, changes: Mapping[str, float]) -> TrendFinding:
    """Weigh a finding by the log changes of its controls."""
    if not changes:
        return finding
    shares = {name: change / finding.log_change for name, change in changes.items()}
    # the control that changed most like the series
    nearest = max(shares, key=lambda name: shares[name])
    share = shares[nearest]
    relative_change = math.expm1(changes[nearest])
    sentence = f"{nearest}, measured in the same runs, changed by {relative_change:+.1%}"
    if share >= _SAME_SHARE:
        # no machine changes how much memory is allocated
        is_memory = _MEMORY_UNIT.fullmatch(finding.change.series.definition.unit) is not None
        if is_memory:
            cause = Cause.HARNESS
        else:
            cause = Cause.RUNNER
        odds = {cause: Odds(_CONTROL_ODDS, f"{sentence} at the same place")}
        return replace(
            finding,
            suspects=weigh(odds),
            p_value=None,
        )
    # a control that changed by a part of it says neither
    if abs(share) > _QUIET_SHARE:
        return finding
    suspects = [_against_code(suspect, sentence) for suspect in finding.suspects]
    return replace(finding, suspects=ranked(suspects))


def _against_code(suspect: Suspect, sentence: str) -> Suspect:
    """Add to the suspicion of the code that the machine stayed the same."""
    if suspect.cause is not Cause.CODE:
        return suspect
    if suspect.sentence:
        sentence = f"{suspect.sentence}; {sentence}"
    return replace(suspect, sentence=sentence)


def _settle_ratios(
    findings: Sequence[TrendFinding],
    of_libraries: Sequence[TrendFinding],
    controls: Controls,
) -> list[TrendFinding]:
    """Judge changes of a ratio to a library by what its two times did at the same place.

    If the project's time changed too, the ratio is further evidence without a p-value. If only the
    library's time changed, the ratio says nothing about the project. A ratio that changed alone is
    a finding: it has less noise than both times.
    """
    changed = _times_by_place([*findings, *of_libraries])
    settled: list[TrendFinding] = []
    for finding in findings:
        series = finding.change.series
        if not series.is_ratio_to_reference or is_outcome(finding.change):
            settled.append(finding)
            continue
        nearby = [
            neighbour
            for neighbour in changed.get(_place_of(series), [])
            if neighbour.reach.touches(finding.reach)
        ]
        # the project's own time, and not that of the library
        times = [
            neighbour
            for neighbour in nearby
            if neighbour.change.series.implementation == series.implementation
        ]
        if times:
            verdict = finding.change.verdict
            same_direction = [time for time in times if time.change.verdict is verdict]
            # the time says it already, with its own p-value
            if same_direction:
                suspects = same_direction[0].suspects
                settled.append(
                    replace(
                        finding,
                        suspects=suspects,
                        p_value=None,
                    )
                )
        elif not nearby and not controls.explain_ratio(finding):
            settled.append(finding)
    return settled


def _times_by_place(findings: Iterable[TrendFinding]) -> dict[_Place, list[TrendFinding]]:
    times = [finding for finding in findings if finding.is_performance]
    return group_by(times, lambda finding: _place_of(finding.change.series))


def _place_of(series: SeriesKey) -> _Place:
    return series.project, series.case_id, series.runner_class


# --- changes of libraries alone


def library_events(
    of_libraries: Sequence[TrendFinding],
    others: Sequence[TrendFinding],
) -> list[Regression]:
    """Report slowdowns that only rows of libraries show: one event for each place, without alert.

    Args:
        of_libraries: Findings of controls.
        others: All other findings, which a slowdown of the machine would show too.
    """
    nearby = _times_by_place(others)
    unshared: list[TrendFinding] = []
    for finding in of_libraries:
        neighbours = nearby.get(_place_of(finding.change.series), [])
        is_shared = any(
            neighbour.reach.touches(finding.reach) and neighbour.direction is finding.direction
            for neighbour in neighbours
        )
        if finding.direction is Verdict.REGRESSED and not is_shared:
            unshared.append(finding)
    by_project = group_by(unshared, lambda finding: finding.change.series.project)
    return [
        _library_event(site.findings, site.commit)
        for slower in by_project.values()
        for site in find_sites(slower)
    ]


def _library_event(findings: Collection[TrendFinding], commit: CommitRef) -> Regression:
    """Report rows of libraries that got slower in one place."""

    def size_at_commit(finding: TrendFinding) -> tuple[bool, float]:
        return finding.change.commit == commit, finding.log_cost_change

    largest = max(findings, key=size_at_commit)
    change = largest.change
    relative_change = change.relative_change or 0.0
    names = sorted({finding.change.series.implementation for finding in findings})
    listed = ", ".join(names)
    count = count_of(len(findings), "row")
    sentence = (
        f"only rows of libraries changed in these cases ({listed}), which the project's code does "
        f"not change"
    )
    suspects = weigh(
        {
            Cause.TOOLCHAIN: Odds(_LIBRARY_ODDS, sentence),
            Cause.RUNNER: Odds(_RUNNER_ODDS, sentence),
        }
    )
    return Regression(
        project=change.series.project,
        commit=commit,
        kernel=f"{listed} (library)",
        verdict=Verdict.REGRESSED,
        cause=cause_of(suspects),
        summary=(
            f"{count} of libraries got slower ({listed}), {relative_change:+.1%} in "
            f"{change.series.label}: the toolchain or the runner rather than the project's code"
        ),
        change_points=(change,),
        suspects=suspects,
        outline=largest.outline,
    )
