"""Run one bisection, store its progress and its result in the database, and write it as text."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid5

from rich.table import Table
from rich.text import Text
from sqlalchemy.orm import Session

from roofwatch.bisection.bisect import BisectPlan, bisect
from roofwatch.bisection.commits import describe_machine, list_commits
from roofwatch.ci.bisect.pairs import (
    between_levels,
    compare_pairs,
    range_of,
    series_to_bisect,
    step_size,
)
from roofwatch.ci.bisect.search import SAME_CODE, SearchEnd
from roofwatch.ci.messages import count_of, on_one_line
from roofwatch.collector.redaction import Redaction
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.bisections import (
    Claim,
    ClaimLostError,
    begin_bisection,
    claim_bisection,
    read_bisection,
    update_bisection,
)
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.errors import JournalError
from roofwatch.model.history import CommitRef, Regression
from roofwatch.model.triage import (
    Answer,
    BisectionCommit,
    BisectionProgress,
    BisectionRange,
    BisectionResult,
    BisectionState,
    CommitStatus,
)
from roofwatch.model.verdict import Verdict
from roofwatch.terminal import console, make_table, print_error
from roofwatch.terminal import progress as progress_bar

_BAR_WIDTH = 20
_NAMESPACE = UUID("7d1f2c58-6b0e-4d0a-9b57-3f6c1a9e2d44")


@dataclass(frozen=True)
class StoredBisection:
    """The right to write to one bisection of a database. If the database is away, measuring
    continues.
    """

    url: str
    claim: Claim

    @classmethod
    def begin(
        cls, url: str, asked: BisectionRange, output: Path, *, regression_id: UUID | None
    ) -> Self:
        """Start a bisection from the command line, or continue that of its folder.

        Raises:
            StoreError: the database is not reachable, or another runner works on it.
        """
        with open_store(url) as engine:
            claim = begin_bisection(
                engine,
                asked,
                _claim_id(output),
                requested_by="command line",
                regression_id=regression_id,
            )
        return cls(url, claim)

    def update(self, result: BisectionResult) -> None:
        """Store the progress or the result, without private data of this machine.

        Raises:
            ClaimLostError: another runner has taken it over.
        """
        try:
            with open_store(self.url) as engine:
                update_bisection(engine, self.claim, _redacted(result))
        except ClaimLostError:
            raise
        except StoreError as error:
            print_error(f"{error}; the bisection continues without it")


def _redacted(result: BisectionResult) -> BisectionResult:
    """Remove private data: reasons contain errors of the user's suite."""
    redact, found = Redaction.of_this_machine().text, result.progress
    commits = tuple(replace(one, reason=redact(one.reason)) for one in found.commits)
    steps = tuple(replace(step, note=redact(step.note)) for step in found.steps)
    progress = replace(found, commits=commits, steps=steps)
    return replace(result, progress=progress, notes=tuple(map(redact, result.notes)))


def _claim_id(output: Path) -> UUID:
    """Return the ID with which this machine claims bisections in a folder, the same for a process
    that resumes one.
    """
    return uuid5(_NAMESPACE, f"{platform.node()}\n{output.resolve()}")


def run_bisection(
    plan: BisectPlan,
    fork_server: ForkServer,
    url: str | None = None,
    *,
    claim: Claim | None = None,
    regression_id: UUID | None = None,
) -> tuple[BisectionResult, Path]:
    """Run a bisection; return how it ended, and the folder of its records.

    Without a URL nothing is stored. A claim is on a requested bisection of that database.

    Raises:
        CollectorError: it cannot be done; the message says why.
        StoreError: the database is not reachable, or another runner works on it.
    """
    stored = None if url is None or claim is None else StoredBisection(url, claim)

    def on_step(found: BisectionProgress) -> None:
        console().print(step_line(found), markup=False, soft_wrap=True)
        if stored is not None:
            stored.update(BisectionResult(BisectionState.RUNNING, found))

    try:
        commits = list_commits(plan.path, plan.commit_range.good_sha, plan.commit_range.bad_sha)
        if url is not None and stored is None:
            asked = replace(plan.commit_range, good_sha=commits.good_sha, bad_sha=commits.shas[-1])
            stored = StoredBisection.begin(url, asked, plan.output, regression_id=regression_id)
        with progress_bar("bisection") as on_progress:
            found, end = bisect(plan, commits, fork_server, on_progress, on_step)
        result = result_of(found, end, plan.search.threshold)
        if stored is not None:
            stored.update(result)
    except Exception as error:
        # a JournalError means that another process here works on it: it has not failed
        if stored is not None and (claim is not None or not isinstance(error, JournalError)):
            stored.update(BisectionResult(BisectionState.FAILED, notes=(str(error),)))
        raise
    except BaseException:
        if stored is not None and claim is not None:
            stored.update(BisectionResult(BisectionState.REQUESTED))
        raise
    return result, plan.folder(commits)


def claim_next(
    plan: BisectPlan, fork_server: ForkServer, url: str | None
) -> tuple[BisectPlan, Claim] | None:
    """Claim the oldest request that fits this machine; None if there is none.

    Raises:
        StoreError: no database is configured, or it is not reachable.
        CollectorError: the machine cannot be described.
    """
    if url is None:
        raise StoreError("--next needs a database with requests: set ROOFWATCH_DATABASE_URL")
    runner_class = describe_machine(plan.path, plan.run, fork_server).runner_class
    with open_store(url) as engine, Session(engine) as session:
        claim = claim_bisection(
            engine, plan.commit_range.project, runner_class, _claim_id(plan.output)
        )
        known = None if claim is None else read_bisection(session, claim.bisection_id)
    if claim is None or known is None:
        return None
    return replace(plan, commit_range=known), claim


def read_regression(
    url: str | None, folder: Path, project: str, regression_id: UUID
) -> tuple[Regression, BisectionRange | None]:
    """Read a regression from the database at a URL, else from the embedded one of a folder.

    Returns:
        The regression, and what to bisect; None if no time changed in a step.

    Raises:
        StoreError: there is no such regression.
    """
    with open_store(url, folder=folder) as engine, Session(engine) as session:
        triaged = list_triaged(session, project)
        found = next(
            (one.regression for one in triaged if one.regression_id == str(regression_id)), None
        )
        if found is None:
            raise StoreError(f"regression {regression_id}: not in project {project!r}")
        point = series_to_bisect(found)
        if point is None:
            return found, None
        series = read_series(session, project, keys=[point.series])
        return found, range_of(project, point, series)


# --- the result as values and as text


def result_of(found: BisectionProgress, end: SearchEnd, threshold: float) -> BisectionResult:
    """Describe how a bisection ended; ends that differ by less than the threshold, as a fraction,
    count as equal.
    """
    log_ratios = [one.log_ratios for one in found.commits]
    if not found.is_weighed:
        ends = compare_pairs(log_ratios[-1], threshold=threshold)
        low, high = ends.relative_interval
        is_equal = ends.verdict is Verdict.UNCHANGED
        meaning = (
            f"the ends do not differ by {ends.threshold:.1%}"
            if is_equal
            else "unclear whether the ends differ"
        )
        measured = (
            f"{ends.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), {ends.block_count} "
            f"blocks per side"
        )
        return BisectionResult(end.state, found, notes=(f"{meaning}: {measured}",))
    if not end.confidence:
        return BisectionResult(end.state, found, notes=("the time limit is reached",))
    size = step_size(log_ratios, end.last)
    notes = [
        f"{one.commit.short_sha} is {one.relative_change:+.1%} from the good end, at neither "
        f"level: several commits "
        "changed the time; bisect on both sides of it"
        for one in (
            found.commits[position] for position in between_levels(log_ratios, size.log_ratio)
        )
    ]
    first, last = found.commits[end.first], found.commits[end.last]
    if first.reason == SAME_CODE:
        notes.append("the machine code is identical: look at host code and launch arguments")
    if end.state is BisectionState.UNDECIDED:
        why = "more blocks do not help: this is not a single step"
        return BisectionResult(end.state, found, notes=(why, *notes))
    answer = Answer(
        first.commit,
        last.commit,
        min(1.0, end.confidence),
        size.relative_change,
        size.relative_interval,
    )
    return BisectionResult(end.state, found, answer, tuple(notes))


def commit_table(commits: Sequence[BisectionCommit]) -> Table:
    rows = []
    for known in commits:
        cells = (
            known.commit.short_sha,
            known.commit.author,
            known.commit.subject[:60],
            str(known.pair_count or ""),
            "" if known.relative_change is None else f"{known.relative_change:+.1%}",
            f"{known.probability:.1%}",
            "━" * round(known.probability * _BAR_WIDTH),
            known.reason[:80],
        )
        style = "" if known.status is CommitStatus.MEASURED else "dim"
        rows.append([Text(on_one_line(cell), style) for cell in cells])
    return make_table(
        ("commit", "author", "subject", "pairs", "against good", "probability", "", "remark"), rows
    )


def sentences(series: str, result: BisectionResult) -> Iterator[str]:
    """Write the result, what was skipped and why, and how much was measured."""
    answer, progress = result.answer, result.progress
    if answer is not None and answer.relative_change and answer.relative_interval:
        low, high = answer.relative_interval
        change = "slower" if answer.relative_change > 0 else "faster"
        if result.state is BisectionState.FOUND:
            yield f"{answer.first.sha} is the first {change} commit: {_title(answer.first)}"
        else:
            yield f"the first {change} commit is one of these; only the last can be measured:"
            named = [
                one.commit for one in progress.commits if answer.first <= one.commit <= answer.last
            ]
            yield from (f"  {commit.sha} {_title(commit)}" for commit in named)
        yield (
            f"{series}: {answer.relative_change:+.1%} ({low:+.1%} to {high:+.1%}), confidence "
            f"{answer.confidence:.1%}"
        )
    yield from result.notes
    measured = sum(known.pair_count > 0 for known in progress.commits)
    yield (
        f"{progress.measurement_count} measurements of {measured} of {len(progress.commits)} "
        f"commits and the good end"
    )
    for status, label in ((CommitStatus.SKIPPED, "skipped"), (CommitStatus.SAME, "not measured")):
        for known in progress.commits:
            if known.status is status:
                yield (
                    f"{label}: {known.commit.short_sha} "
                    f"{on_one_line(f'{known.commit.subject[:60]}: {known.reason}')}"
                )


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
    return 0 if result.state is BisectionState.FOUND else 1


def step_line(found: BisectionProgress) -> str:
    step, sha = found.steps[-1], found.steps[-1].sha[:8]
    if step.note:
        return f"{sha} skipped: {on_one_line(step.note)}"
    change = f"{step.relative_change:+.1%} in {count_of(step.pair_count, 'pair')}"
    if not found.is_weighed:
        return f"{sha} {change}: the bad end against the good end"
    return f"{sha} {change}: the change is here or earlier with {step.probability:.1%}"


def _title(commit: CommitRef) -> str:
    return on_one_line(f"{commit.subject} ({commit.author})")
