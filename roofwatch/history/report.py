"""A bisection in words, tables and values: what the command prints and the database keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from roofwatch.ci.bisect.measurements import between_levels, step_size
from roofwatch.ci.bisect.search import SAME_CODE, weigh
from roofwatch.collector.errors import GitError
from roofwatch.collector.git import run_git
from roofwatch.db.bisections import Answer, BisectionCommit, BisectionProgress, BisectionStep, Standing
from roofwatch.db.values import BisectionState, CommitRef, Verdict
from roofwatch.history.plan import BisectPlan, folder_of
from roofwatch.history.search import Bisected
from roofwatch.history.state import BisectState
from roofwatch.history.survey import repository_of
from roofwatch.terminal import one_line, printable

_BAR_WIDTH = 20
_STANDING_STYLE = {Standing.SKIPPED: "yellow", Standing.SAME: "dim", Standing.OPEN: "dim"}


@dataclass(frozen=True)
class Ended:
    """How a bisection ended."""

    state: BisectionState
    answer: Answer | None
    progress: BisectionProgress
    notes: tuple[str, ...]


def progress_of(state: BisectState, refs: Sequence[CommitRef]) -> BisectionProgress:
    """What is known so far.

    Args:
        state: Of the bisection.
        refs: Its commits.
    """
    evidence = state.evidence()
    probabilities = evidence.probabilities() if len(evidence.log_ratios[-1]) > 1 else [1 / len(refs)] * len(refs)
    reasons = [""] * len(refs) if state.made is None else [each.reason for each in weigh(state.made)]
    commits = tuple(
        BisectionCommit(
            commit=ref,
            probability=min(1.0, float(probabilities[position])),
            standing=_standing(state.trouble_at(position), bool(evidence.log_ratios[position]), reasons[position]),
            reason=state.trouble_at(position) or reasons[position],
            pair_count=len(evidence.log_ratios[position]),
            relative_change=_change(evidence.log_ratios[position]),
        )
        for position, ref in enumerate(refs)
    )
    steps = tuple(
        BisectionStep(
            sha=state.commits[visit.position],
            pair_count=len(visit.log_ratios),
            relative_change=_change(visit.log_ratios),
            probability=visit.probability,
            note=visit.trouble,
            finished_at=visit.finished_at,
        )
        for visit in state.visits
    )
    return BisectionProgress(commits, steps, state.measurement_count)


def end_of(bisected: Bisected, refs: Sequence[CommitRef]) -> Ended:
    """How it ended.

    Args:
        bisected: What came of it.
        refs: Its commits.
    """
    progress = progress_of(bisected.state, refs)
    ends, named = bisected.ends, bisected.named
    if not ends.is_significant:
        low, high = ends.relative_interval
        measured = f"{ends.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), {ends.block_count} blocks a side"
        if ends.verdict is Verdict.UNCHANGED:
            note = f"the ends do not differ by {ends.threshold:.1%}: {measured}"
            return Ended(BisectionState.NO_CHANGE, None, progress, (note,))
        return Ended(BisectionState.UNDECIDED, None, progress, (f"whether the ends differ is not clear: {measured}",))
    if named is None or not bisected.is_decided:
        why = "the time is spent" if named is None else "more blocks do not make it clear: this is not one step"
        return Ended(BisectionState.UNDECIDED, None, progress, (why, *_remarks(bisected, refs)))
    size = step_size(bisected.state.evidence().log_ratios, named.last)
    answer = Answer(
        first=refs[named.first],
        last=refs[named.last],
        confidence=min(1.0, named.confidence),
        relative_change=size.relative_change,
        relative_interval=size.relative_interval,
    )
    state = BisectionState.FOUND if named.first == named.last else BisectionState.NARROWED
    return Ended(state, answer, progress, tuple(_remarks(bisected, refs)))


def table(progress: BisectionProgress) -> Table:
    """One row a commit, the oldest first: what was measured of it, and how likely the change came with it."""
    shown = Table("commit", "author", "subject", "pairs", "against good", "probability", "", "remark")
    for known in progress.commits:
        filled = round(known.probability * _BAR_WIDTH)
        shown.add_row(
            known.commit.short_sha,
            printable(known.commit.author),
            printable(known.commit.subject[:60]),
            str(known.pair_count or ""),
            "" if known.relative_change is None else f"{known.relative_change:+.1%}",
            f"{known.probability:.1%}",
            "━" * filled,
            printable(known.reason[:80]),
            style=_STANDING_STYLE.get(known.standing),
        )
    return shown


def sentences(ended: Ended, asked: BisectPlan) -> Iterator[str]:
    """The answer, what was skipped and why, what it took, and what else is to be known."""
    answer, commits = ended.answer, ended.progress.commits
    if answer is not None:
        low, high = answer.relative_interval
        moved = "slower" if answer.relative_change > 0 else "faster"
        if ended.state is BisectionState.FOUND:
            yield f"{answer.first.sha} is the first {moved} commit: {_who_and_what(answer.first)}"
        else:
            yield f"the first {moved} commit is one of these, of which none can be measured but the last:"
            for known in _between(commits, answer):
                yield f"  {known.commit.sha} {_who_and_what(known.commit)}"
        yield (
            f"{asked.series}: {answer.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), "
            f"confidence {answer.confidence:.1%}"
        )
        yield from _way_into_merge(asked.path, answer)
    yield from ended.notes
    measured = sum(known.pair_count > 0 for known in commits)
    yield f"{ended.progress.measurement_count} measurements of {measured} of {len(commits)} commits and the good end"
    for standing, what in ((Standing.SKIPPED, "skipped"), (Standing.SAME, "not measured")):
        for known in commits:
            if known.standing is standing:
                subject, reason = one_line(known.commit.subject[:60]), one_line(known.reason)
                yield f"{what}: {known.commit.short_sha} {subject}: {reason}"


def exit_status(ended: Ended) -> int:
    """0 where one commit is named, else 1."""
    return 0 if ended.state is BisectionState.FOUND else 1


def as_json_document(asked: BisectPlan, ended: Ended) -> dict[str, Any]:
    """The whole of it for machines."""
    return {
        "series": asked.series,
        "good": asked.good,
        "bad": asked.bad,
        "state": ended.state,
        "answer": ended.answer,
        "commits": ended.progress.commits,
        "steps": ended.progress.steps,
        "measurement_count": ended.progress.measurement_count,
        "notes": ended.notes,
        "records": str(folder_of(asked)),
        "exit_code": exit_status(ended),
    }


def step_line(state: BisectState, refs: Sequence[CommitRef]) -> str:
    """What the last visit said, in a line."""
    visit = state.visits[-1]
    ref = refs[visit.position]
    if visit.trouble:
        return f"{ref.short_sha} skipped: {one_line(visit.trouble)}"
    change = _change(visit.log_ratios)
    found = "" if change is None else f"{change:+.1%} in {len(visit.log_ratios)} pairs"
    if visit.position == len(refs) - 1 and len(state.visits) == 1:
        return f"{ref.short_sha} {found}: the bad end against the good end"
    return f"{ref.short_sha} {found}: the change is here or before with {visit.probability:.1%}"


def _standing(trouble: str, is_measured: bool, reason: str) -> Standing:
    if trouble:
        return Standing.SKIPPED
    if is_measured:
        return Standing.MEASURED
    return Standing.SAME if reason else Standing.OPEN


def _who_and_what(commit: CommitRef) -> str:
    return one_line(f"{commit.subject} ({commit.author})")


def _change(log_ratios: Sequence[float]) -> float | None:
    return math.expm1(median(log_ratios)) if log_ratios else None


def _between(commits: Sequence[BisectionCommit], answer: Answer) -> list[BisectionCommit]:
    shas = [known.commit.sha for known in commits]
    return list(commits[shas.index(answer.first.sha) : shas.index(answer.last.sha) + 1])


def _remarks(bisected: Bisected, refs: Sequence[CommitRef]) -> Iterator[str]:
    log_ratios = bisected.state.evidence().log_ratios
    if bisected.named is not None:
        step = step_size(log_ratios, bisected.named.last).log_ratio
        for level in between_levels(log_ratios, step):
            yield (
                f"{refs[level.position].short_sha} is {level.relative_change:+.1%} from the good end, on no level: "
                "more than one commit changed it, so bisect between these too"
            )
    if bisected.named is not None and bisected.state.made is not None:
        weight = weigh(bisected.state.made)[bisected.named.first]
        if weight.reason == SAME_CODE:
            yield "its machine code is as before: look at the host's part, or at what it is launched with"


def _way_into_merge(path: Path | None, answer: Answer) -> Iterator[str]:
    """How to go on inside, where the commit is a merge."""
    if answer.first.sha != answer.last.sha:
        return
    repository = repository_of(path)
    try:
        parents = run_git(repository, "show", "-s", "--format=%P", "--end-of-options", answer.first.sha).split()
        if len(parents) != 2:
            return
        base = run_git(repository, "merge-base", *parents).strip()
    except GitError:
        return
    yield f"it is a merge; what is inside: roofwatch bisect ... --good {base[:12]} --bad {parents[1][:12]}"
