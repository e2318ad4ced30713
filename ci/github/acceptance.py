"""The regressions of a report with the size of each, and what an acceptance of them covers.

Pure.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.change_words import worst_first
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.comparison import StaticChange
from roofwatch.ci.static.facts import DECISIVE_FACTS, CodeFacts, code_facts
from roofwatch.model.acceptance import MAX_BOUNDS, Grain
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MAX_SERIES = 300
"""Characters."""
_MAX_CHANGE = 1e6
_NOT_FINITE = 1e31
"""Error of a result with NaN or infinity; larger than any finite error of a record."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Findings(_Document):
    """The regressions of a report, as far as needed to accept them and to compare them with those
    of another report.
    """

    head_sha: str
    most: dict[str, float]
    """Size up to which an acceptance covers a finding, by hash of the finding or its group."""
    grain: Grain = Grain.FINDING
    """The finest for which `most` has at most `MAX_BOUNDS` entries."""
    wrong_count: int = 0
    """Wrong results among them."""
    worst: tuple[str, str] | None = None
    """Case and implementation of the worst slowdown."""
    project: str = ""
    """Of the records; empty in states of older versions."""
    least: dict[Grain, dict[str, float]] = Field(default_factory=dict, exclude=True)
    """Smallest credible size, by the same hash; of a group the largest of its findings."""


class Acceptance(_Document):
    """Which comment accepted which findings. Its author, date and reason are read from that comment
    each time.
    """

    comment_id: int
    most: dict[str, float]
    """As in `Findings`."""
    grain: Grain = Grain.FINDING
    wrong_results: bool = False
    """Whether its author meant wrong results too."""

    def covers(self, findings: Findings) -> bool:
        """Return whether every finding was accepted, and none is noticeably larger than then."""
        if findings.wrong_count and not self.wrong_results:
            return False
        sizes = findings.least.get(self.grain, {}).items()
        if not sizes:
            return False
        # what was not accepted has no size up to which it is covered
        return all(size <= self.most.get(key, -math.inf) for key, size in sizes)


def findings_of(judgements: Sequence[PullRequestJudgement], head_sha: str) -> Findings | None:
    """Return what can be accepted in a commit: regressions and removed benchmarks; None without
    any.
    """
    sizes: list[_Size] = []
    cases: list[Change[CaseEvidence]] = []
    for judgement in judgements:
        sizes += _sizes(judgement)
        cases += judgement.cases
    if not sizes:
        return None
    largest_sizes = [(name, size) for name, _, size in sizes]
    smallest_sizes = [(name, size) for name, size, _ in sizes]
    most = {grain: _largest(grain, largest_sizes) for grain in Grain}
    least = {grain: _largest(grain, smallest_sizes) for grain in Grain}
    # there are fewer reasons and measures than bounds, so the coarsest always fits
    grain = next(grain for grain in Grain if len(most[grain]) <= MAX_BOUNDS)
    regressed = [case for case in worst_first(cases) if case.verdict is Verdict.REGRESSED]
    slower = [case.case_key for case in regressed if case.log_interval is not None]
    return Findings(
        head_sha=head_sha,
        most=most[grain],
        grain=grain,
        worst=slower[0] if slower and len("".join(slower[0])) <= MAX_SERIES else None,
        least=least,
        project=judgements[0].project,
        wrong_count=sum(case.reason is Reason.WRONG_RESULT for case in regressed),
    )


def _largest(grain: Grain, sizes: Iterable[tuple[tuple[str, ...], float]]) -> dict[str, float]:
    """Return the largest size of each group, by the group's key."""
    largest: dict[str, float] = {}
    for name, size in sizes:
        key = grain.key_of(name)
        largest[key] = max(float(f"{size:.4g}"), largest.get(key, 0.0))
    return largest


_Size = tuple[tuple[str, ...], float, float]
"""Names of the finding and its measure, its smallest credible size, and the size up to which it is
accepted.
"""


def _sizes(judgement: PullRequestJudgement) -> Iterator[_Size]:
    for case in judgement.cases:
        if case.verdict is Verdict.REGRESSED:
            yield from _case_sizes(case)
        elif is_removed(case):
            # a removed case has no size that could grow
            yield (*case.case_key, Reason.REMOVED_CASE, ""), 0.0, 0.0
    for code in judgement.static:
        if code.verdict is Verdict.REGRESSED:
            subject = code.subject
            function = (*subject.case_key, subject.part, subject.target, code.reason)
            for measure, size in _code_sizes(code).items():
                yield (*function, measure), size, size
    for launch in judgement.secondary_changes:
        if launch.verdict is Verdict.REGRESSED:
            exact = launch.relative_change, launch.relative_change
            # a counted value is exact
            low, high = launch.relative_interval or exact
            name = (*launch.case_key, launch.reason, launch.metric)
            yield name, min(low, _MAX_CHANGE), min(high, _MAX_CHANGE)


def _case_sizes(case: Change[CaseEvidence]) -> Iterator[_Size]:
    name = *case.case_key, case.reason
    base = case.evidence.base
    head = case.evidence.head
    if case.relative_interval is not None:
        low, high = case.relative_interval
        yield (*name, "time"), min(low, _MAX_CHANGE), min(high, _MAX_CHANGE)
    elif head is None or case.reason is not Reason.WRONG_RESULT:
        yield (*name, "" if head is None else str(head.failure)), 0.0, 0.0
    else:
        # a tensor with NaN or infinity has no error, so it is missing among the tensors
        tensor_count = 1 if base is None else base.tensor_count
        for measure in ("rmse_ratio", "max_abs_error"):
            error = getattr(head, measure)
            if error is None or head.tensor_count < tensor_count:
                error = _NOT_FINITE
            yield (*name, measure), error, error * (1 + THRESHOLDS.error_relative_change)


def _code_sizes(change: StaticChange) -> dict[str, float]:
    """Return what got worse in a function, and how bad it is now."""
    evidence = change.evidence
    if isinstance(evidence, AnalysisEvidence):
        return evidence.head.badness
    # a failure has no size, only a kind
    if evidence.head is None or evidence.head.outcome is not Outcome.OK:
        return {"" if evidence.head is None else str(evidence.head.outcome): 0.0}
    sizes = _badness(code_facts(evidence.head))
    if evidence.base is not None and evidence.base.outcome is Outcome.OK:
        base_sizes = _badness(code_facts(evidence.base))
        sizes = {
            name: size
            for name, size in sizes.items()
            if name in base_sizes and size > base_sizes[name]
        }
    return sizes or {"": 0.0}


def _badness(facts: CodeFacts) -> dict[str, float]:
    """Return the numbers by which machine code is judged, as sizes that grow when it gets worse."""
    widths = {"read": facts.reads.main_width, "write": facts.writes.main_width}
    sizes = {name: facts.values[name] for name in DECISIVE_FACTS if name in facts.values}
    for name, width in widths.items():
        # without accesses there is no width
        if width:
            sizes[f"{name} instructions per byte"] = 8 / width
    if facts.tensor_path is not None:
        sizes["tensor path"] = 1 / (1 + facts.tensor_path)
    return sizes
