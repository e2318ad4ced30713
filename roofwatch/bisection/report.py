"""The result of a bisection as values for the database and as text for the terminal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from roofwatch.bisection.bisect import BisectPlan, BisectState
from roofwatch.ci.bisect.pairs import between_levels, compare_pairs, step_size
from roofwatch.ci.bisect.search import SAME_CODE, Result, prior_weights
from roofwatch.ci.report.markdown import count_of
from roofwatch.db.bisections import Answer, BisectionCommit, BisectionProgress, BisectionStep, CommitStatus
from roofwatch.db.values import BisectionState, CommitRef, Verdict
from roofwatch.terminal import one_line, printable

_BAR_WIDTH = 20


@dataclass(frozen=True)
class Ended:
    """How a bisection ended."""

    state: BisectionState
    answer: Answer | None
    progress: BisectionProgress
    notes: tuple[str, ...]


def progress_of(state: BisectState, refs: Sequence[CommitRef]) -> BisectionProgress:
    """Describe each commit and each step so far."""
    evidence = state.evidence()
    probabilities = evidence.probabilities() if len(evidence.log_ratios[-1]) > 1 else [1 / len(refs)] * len(refs)
    reasons = [""] * len(refs) if state.inputs is None else [one.reason for one in prior_weights(state.inputs)]
    commits = []
    for position, (ref, pairs) in enumerate(zip(refs, evidence.log_ratios, strict=True)):
        error, reason = state.error_at(position), reasons[position]
        standing = CommitStatus.SAME if reason else CommitStatus.OPEN
        if error or pairs:
            standing = CommitStatus.SKIPPED if error else CommitStatus.MEASURED
        probability = min(1.0, float(probabilities[position]))
        commits.append(BisectionCommit(ref, probability, standing, error or reason, len(pairs), _change(pairs)))
    steps = [
        BisectionStep(
            sha=state.commits[visit.position],
            pair_count=len(visit.pair.log_ratios),
            relative_change=_change(visit.pair.log_ratios),
            probability=visit.probability,
            note=visit.pair.error,
            finished_at=visit.finished_at,
        )
        for visit in state.visits
    ]
    return BisectionProgress(tuple(commits), tuple(steps), 2 * sum(visit.pair.block_count for visit in state.visits))


def end_of(plan: BisectPlan, state: BisectState, result: Result, refs: Sequence[CommitRef]) -> Ended:
    """Describe how a bisection ended."""
    progress, log_ratios = progress_of(state, refs), state.evidence().log_ratios
    if state.inputs is None:
        ends = compare_pairs(log_ratios[-1], threshold=plan.search.threshold)
        low, high = ends.relative_interval
        is_equal = ends.verdict is Verdict.UNCHANGED
        meaning = f"the ends do not differ by {ends.threshold:.1%}" if is_equal else "unclear whether the ends differ"
        measured = f"{ends.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), {ends.block_count} blocks per side"
        return Ended(result.state, None, progress, (f"{meaning}: {measured}",))
    notes = list(_notes(state, result, refs)) if result.confidence else []
    if result.state is BisectionState.UNDECIDED:
        why = "more blocks do not help: this is not a single step" if result.confidence else "the time limit is reached"
        return Ended(result.state, None, progress, (why, *notes))
    size = step_size(log_ratios, result.last)
    confidence = min(1.0, result.confidence)
    first, last = refs[result.first], refs[result.last]
    answer = Answer(first, last, confidence, size.relative_change, size.relative_interval)
    return Ended(result.state, answer, progress, tuple(notes))


def _notes(state: BisectState, result: Result, refs: Sequence[CommitRef]) -> Iterator[str]:
    log_ratios = state.evidence().log_ratios
    for position in between_levels(log_ratios, step_size(log_ratios, result.last).log_ratio):
        yield (
            f"{refs[position].short_sha} is {_change(log_ratios[position]):+.1%} from the good end, at neither level: "
            "several commits changed the time; bisect on both sides of it"
        )
    if state.inputs is not None and prior_weights(state.inputs)[result.first].reason == SAME_CODE:
        yield "the machine code is identical: look at host code and launch arguments"


def table(progress: BisectionProgress) -> Table:
    """Show one row per commit, the oldest first."""
    shown = Table("commit", "author", "subject", "pairs", "against good", "probability", "", "remark")
    for known in progress.commits:
        shown.add_row(
            known.commit.short_sha,
            printable(known.commit.author),
            printable(known.commit.subject[:60]),
            str(known.pair_count or ""),
            "" if known.relative_change is None else f"{known.relative_change:+.1%}",
            f"{known.probability:.1%}",
            "━" * round(known.probability * _BAR_WIDTH),
            printable(known.reason[:80]),
            style=None if known.status is CommitStatus.MEASURED else "dim",
        )
    return shown


def sentences(plan: BisectPlan, ended: Ended) -> Iterator[str]:
    """Write the result, what was skipped and why, and how much was measured."""
    answer, commits = ended.answer, ended.progress.commits
    if answer is not None:
        low, high = answer.relative_interval
        change = "slower" if answer.relative_change > 0 else "faster"
        named = [one.commit for one in commits if answer.first <= one.commit <= answer.last]
        if ended.state is BisectionState.FOUND:
            yield f"{answer.first.sha} is the first {change} commit: {_title(answer.first)}"
        else:
            yield f"the first {change} commit is one of these; only the last can be measured:"
            yield from (f"  {commit.sha} {_title(commit)}" for commit in named)
        yield (
            f"{plan.series}: {answer.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), "
            f"confidence {answer.confidence:.1%}"
        )
    yield from ended.notes
    measured = sum(known.pair_count > 0 for known in commits)
    yield f"{ended.progress.measurement_count} measurements of {measured} of {len(commits)} commits and the good end"
    for status, label in ((CommitStatus.SKIPPED, "skipped"), (CommitStatus.SAME, "not measured")):
        for known in commits:
            if known.status is status:
                yield f"{label}: {known.commit.short_sha} {one_line(f'{known.commit.subject[:60]}: {known.reason}')}"


def exit_status(ended: Ended) -> int:
    """Return 0 if one commit is named, else 1."""
    return 0 if ended.state is BisectionState.FOUND else 1


def as_json_document(plan: BisectPlan, ended: Ended, folder: Path) -> dict[str, Any]:
    return {
        "series": plan.series,
        "good": plan.commit_range.good_sha,
        "bad": plan.commit_range.bad_sha,
        "state": ended.state,
        "answer": ended.answer,
        "commits": ended.progress.commits,
        "steps": ended.progress.steps,
        "measurement_count": ended.progress.measurement_count,
        "notes": ended.notes,
        "summary": list(sentences(plan, ended)),
        "records": str(folder),
        "exit_code": exit_status(ended),
    }


def step_line(state: BisectState, refs: Sequence[CommitRef]) -> str:
    """Write the last step in one line."""
    visit = state.visits[-1]
    ref = refs[visit.position]
    if visit.pair.error:
        return f"{ref.short_sha} skipped: {one_line(visit.pair.error)}"
    found = f"{_change(visit.pair.log_ratios):+.1%} in {count_of(len(visit.pair.log_ratios), 'pair')}"
    if state.inputs is None:
        return f"{ref.short_sha} {found}: the bad end against the good end"
    return f"{ref.short_sha} {found}: the change is here or earlier with {visit.probability:.1%}"


def _title(commit: CommitRef) -> str:
    return one_line(f"{commit.subject} ({commit.author})")


def _change(log_ratios: Sequence[float]) -> float | None:
    return math.expm1(median(log_ratios)) if log_ratios else None
