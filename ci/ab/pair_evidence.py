"""Paired measurements as evidence: what comparing two commits side by side says of a step between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.changepoint import detect
from roofwatch.ci.history.trend_finding import Status
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Pair, SeriesKey, Verdict


class PairEvidence:
    """Comparisons of paired measurements, by what was measured. Blocks of several pairs of the same thing add up."""

    def __init__(self, pairs: Sequence[Pair], thresholds: Thresholds) -> None:
        blocks: dict[tuple[object, ...], tuple[list[tuple[float, ...]], list[tuple[float, ...]]]] = {}
        for pair in pairs:
            if len(pair.base_blocks_ns) != len(pair.head_blocks_ns):
                continue  # one side was cut short: its blocks have no partners
            key = (
                pair.project,
                pair.case_id,
                pair.implementation,
                pair.runner_class,
                pair.base.sha,
                pair.head.sha,
            )
            base, head = blocks.setdefault(key, ([], []))
            base.extend(pair.base_blocks_ns)
            head.extend(pair.head_blocks_ns)
        self._comparisons = {
            key: compare(base, head, threshold=thresholds.relative_change)
            for key, (base, head) in blocks.items()
            if base
        }

    def find(self, key: SeriesKey, base: CommitRef, head: CommitRef) -> Comparison | None:
        measured = (key.project, key.case_id, key.implementation, key.runner_class, base.sha, head.sha)
        return self._comparisons.get(measured)


def look_again(
    key: SeriesKey,
    commits: Sequence[CommitRef],
    step: detect.ChangePoint,
    verdict: Verdict,
    evidence: PairEvidence,
) -> tuple[int, Status, Comparison | None]:
    """Hold a step against the paired measurements of its commits, and of the neighbouring ones that it may as well
    lie at: the index it is at, how sure that is, and the comparison that says so.
    """
    neighbours = [index for index in step.candidates if abs(index - step.index) == 1]
    open_at: tuple[int, Comparison | None] | None = None
    for index in [step.index, *neighbours]:
        comparison = evidence.find(key, commits[index - 1], commits[index])
        if comparison is not None and comparison.verdict is verdict:
            return index, Status.CONFIRMED, comparison
        if (comparison is None or not _rules_out(comparison, step, verdict)) and open_at is None:
            open_at = index, comparison
    if open_at is not None:
        return open_at[0], Status.UNCONFIRMED, open_at[1]
    return step.index, Status.REFUTED, evidence.find(key, commits[step.index - 1], commits[step.index])


def _rules_out(comparison: Comparison, step: detect.ChangePoint, verdict: Verdict) -> bool:
    """Whether a paired measurement leaves no room for a step: it says unchanged or the opposite, or its interval
    holds no change at all and ends below half of the step.
    """
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison.verdict is not verdict
    low, high = comparison.relative_interval
    ratio = step.after / step.before
    if verdict is Verdict.REGRESSED:
        return low <= 0 and 1 + high < ratio**0.5
    return high >= 0 and 1 + low > ratio**0.5


def in_words(comparison: Comparison) -> str:
    low, high = comparison.relative_interval
    return (
        f"{comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%}, "
        f"{comparison.block_count} blocks): {comparison.verdict}"
    )
