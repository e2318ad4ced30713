"""Run one bisection, store its progress and its result in the database, and write it as text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich.table import Table
from rich.text import Text

from roofwatch.bisection.bisect import BisectPlan, bisect
from roofwatch.bisection.commits import list_commits
from roofwatch.ci.bisect.pairs import between_levels, compare_pairs, step_size
from roofwatch.ci.bisect.priors import SAME_CODE
from roofwatch.ci.bisect.search import SearchEnd
from roofwatch.ci.messages import count_of, on_one_line
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.console.terminal import console, make_table
from roofwatch.console.terminal import progress as progress_bar
from roofwatch.model.errors import JournalError
from roofwatch.model.history import CommitRef
from roofwatch.model.triage import (
    Answer,
    BisectionCommit,
    BisectionProgress,
    BisectionResult,
    BisectionState,
    CommitStatus,
)
from roofwatch.model.verdict import Verdict

if TYPE_CHECKING:  # a machine that only measures has no database client
    from roofwatch.bisection.stored import StoredBisection
    from roofwatch.db.bisections import Claim

_BAR_WIDTH = 20
"""Characters of the bar that shows the probability of a commit."""


def run_bisection(
    plan: BisectPlan,
    fork_server: ForkServer,
    url: str | None = None,
    *,
    claim: "Claim | None" = None,
    regression_id: UUID | None = None,
) -> tuple[BisectionResult, Path]:
    """Run a bisection; return how it ended, and the folder of its records.

    Without a URL nothing is stored. A claim is on a requested bisection of that database.

    Raises:
        CollectorError: it cannot be done; the message says why.
        StoreError: the database is not reachable, or another runner works on it.
    """
    stored = None
    if url is not None and claim is not None:
        stored = _continued(url, claim)

    def on_step(progress: BisectionProgress) -> None:
        console().print(step_line(progress), markup=False, soft_wrap=True)
        if stored is not None:
            stored.update(BisectionResult(BisectionState.RUNNING, progress))

    try:
        commits = list_commits(plan.path, plan.commit_range.good_sha, plan.commit_range.bad_sha)
        # Stored only once the ends are commits: a typing error leaves no row.
        if url is not None and stored is None:
            from roofwatch.bisection.stored import begin

            commit_range = replace(
                plan.commit_range,
                good_sha=commits.good_sha,
                bad_sha=commits.shas[-1],
            )
            stored = begin(
                url=url,
                commit_range=commit_range,
                output=plan.output,
                regression_id=regression_id,
            )
        with progress_bar("bisection") as on_progress:
            progress, end = bisect(
                plan=plan,
                commits=commits,
                fork_server=fork_server,
                on_progress=on_progress,
                on_step=on_step,
            )
        result = result_of(progress, end, plan.search.threshold)
        if stored is not None:
            stored.update(result)
    except Exception as error:
        # a JournalError means that another process here works on it: it has not failed
        if stored is not None and (claim is not None or not isinstance(error, JournalError)):
            stored.update(BisectionResult(BisectionState.FAILED, notes=(str(error),)))
        raise
    except BaseException:
        # A runner that is stopped gives a requested bisection back to the others.
        if stored is not None and claim is not None:
            stored.update(BisectionResult(BisectionState.REQUESTED))
        raise
    return result, plan.folder(commits)


def _continued(url: str, claim: "Claim") -> "StoredBisection":
    from roofwatch.bisection.stored import StoredBisection

    return StoredBisection(url, claim)


# --- the result as values and as text


def result_of(progress: BisectionProgress, end: SearchEnd, threshold: float) -> BisectionResult:
    """Describe how a bisection ended; ends that differ by less than the threshold, as a fraction,
    count as equal.
    """
    log_ratios = [commit.log_ratios for commit in progress.commits]
    # Equal sources at both ends: the change came from somewhere else.
    if not progress.is_weighed and not log_ratios[-1]:
        note = "the sources of the kernel are the same at both ends, so nothing was measured"
        return BisectionResult(end.state, progress, notes=(note,))
    if not progress.is_weighed:
        ends = compare_pairs(log_ratios[-1], threshold=threshold)
        low, high = ends.relative_interval

        meaning = "unclear whether the ends differ"
        if ends.verdict is Verdict.UNCHANGED:
            meaning = f"the ends do not differ by {ends.threshold:.1%}"
        measured = (
            f"{ends.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), {ends.block_count} "
            f"blocks per side"
        )
        return BisectionResult(end.state, progress, notes=(f"{meaning}: {measured}",))
    # No pair of the inner commits was measured yet.
    if not end.confidence:
        return BisectionResult(end.state, progress, notes=("the time limit is reached",))
    size = step_size(log_ratios, end.last)
    notes: list[str] = []
    for position in between_levels(log_ratios, size.log_ratio):
        between = progress.commits[position]
        notes.append(
            f"{between.commit.short_sha} is {between.relative_change:+.1%} from the good end, at "
            "neither level: several commits changed the time; bisect on both sides of it"
        )
    first = progress.commits[end.first]
    last = progress.commits[end.last]
    # The compiler made the same code of it, so the kernel itself is not slower.
    if first.reason == SAME_CODE:
        notes.append("the machine code is identical: look at host code and launch arguments")
    if end.state is BisectionState.UNDECIDED:
        why = "more blocks do not help: this is not a single step"
        return BisectionResult(end.state, progress, notes=(why, *notes))
    answer = Answer(
        first=first.commit,
        last=last.commit,
        confidence=min(1.0, end.confidence),
        relative_change=size.relative_change,
        relative_interval=size.relative_interval,
    )
    return BisectionResult(
        state=end.state,
        progress=progress,
        answer=answer,
        notes=tuple(notes),
    )


def commit_table(commits: Sequence[BisectionCommit]) -> Table:
    rows = []
    for candidate in commits:
        change = ""
        if candidate.relative_change is not None:
            change = f"{candidate.relative_change:+.1%}"
        cells = (
            candidate.commit.short_sha,
            candidate.commit.author,
            candidate.commit.subject[:60],
            str(candidate.pair_count or ""),
            change,
            f"{candidate.probability:.1%}",
            "━" * round(candidate.probability * _BAR_WIDTH),
            candidate.reason[:80],
        )
        style = "" if candidate.status is CommitStatus.MEASURED else "dim"
        rows.append([Text(on_one_line(cell), style) for cell in cells])
    return make_table(
        ("commit", "author", "subject", "pairs", "against good", "probability", "", "remark"), rows
    )


def sentences(series: str, result: BisectionResult) -> Iterator[str]:
    """Write the result, what was skipped and why, and how much was measured."""
    answer = result.answer
    progress = result.progress
    if answer is not None and answer.relative_change and answer.relative_interval:
        low, high = answer.relative_interval
        change = "slower" if answer.relative_change > 0 else "faster"
        # several remain if only the last of them can be built
        if result.state is BisectionState.FOUND:
            yield f"{answer.first.sha} is the first {change} commit: {_title(answer.first)}"
        else:
            yield f"the first {change} commit is one of these; only the last can be measured:"
            for candidate in progress.commits:
                if answer.first <= candidate.commit <= answer.last:
                    yield f"  {candidate.commit.sha} {_title(candidate.commit)}"
        yield (
            f"{series}: {answer.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), confidence "
            f"{answer.confidence:.1%}"
        )
    yield from result.notes
    measured = sum(candidate.pair_count > 0 for candidate in progress.commits)
    yield (
        f"{progress.measurement_count} measurements of {measured} of {len(progress.commits)} "
        f"commits and the good end"
    )
    for status, label in ((CommitStatus.SKIPPED, "skipped"), (CommitStatus.SAME, "not measured")):
        for candidate in progress.commits:
            if candidate.status is status:
                remark = f"{candidate.commit.subject[:60]}: {candidate.reason}"
                yield f"{label}: {candidate.commit.short_sha} {on_one_line(remark)}"


def as_json_document(plan: BisectPlan, result: BisectionResult, folder: Path) -> dict[str, Any]:
    progress = result.progress
    return {
        "series": plan.series,
        "good": plan.commit_range.good_sha,
        "bad": plan.commit_range.bad_sha,
        "state": result.state,
        "answer": result.answer,
        "commits": progress.commits,
        "steps": progress.steps,
        "measurement_count": progress.measurement_count,
        "notes": result.notes,
        "summary": list(sentences(plan.series, result)),
        "records": str(folder),
        "exit_code": exit_status(result),
    }


def exit_status(result: BisectionResult) -> int:
    """Return 0 if one commit is named, else 1."""
    if result.state is BisectionState.FOUND:
        return 0
    return 1


def step_line(progress: BisectionProgress) -> str:
    step = progress.steps[-1]
    sha = progress.steps[-1].sha[:8]
    if step.note:
        return f"{sha} skipped: {on_one_line(step.note)}"
    change = f"{step.relative_change:+.1%} in {count_of(step.pair_count, 'pair')}"
    if not progress.is_weighed:
        return f"{sha} {change}: the bad end against the good end"
    return f"{sha} {change}: the change is here or earlier with {step.probability:.1%}"


def _title(commit: CommitRef) -> str:
    return on_one_line(f"{commit.subject} ({commit.author})")
