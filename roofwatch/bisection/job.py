"""Run one bisection, and store its progress and its result in the database."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID, uuid5

from sqlalchemy.orm import Session

from roofwatch.bisection.bisect import BisectPlan, bisect
from roofwatch.bisection.commits import describe_machine, list_commits
from roofwatch.bisection.report import result_of, step_line
from roofwatch.ci.bisect.pairs import range_of, series_to_bisect
from roofwatch.collector.errors import JournalError
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
from roofwatch.db.regression_values import BisectionProgress, BisectionRange, BisectionResult, BisectionState
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.terminal import console, print_error
from roofwatch.terminal import progress as progress_bar

_NAMESPACE = UUID("7d1f2c58-6b0e-4d0a-9b57-3f6c1a9e2d44")


@dataclass(frozen=True)
class StoredBisection:
    """The right to write to one bisection of a database. If the database is away, measuring continues."""

    url: str
    claim: Claim

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
    """Return the ID with which this machine claims bisections in a folder, the same for a process that resumes one."""
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
            own, by = _claim_id(plan.output), "command line"
            with open_store(url) as engine:
                begun = begin_bisection(engine, asked, own, requested_by=by, regression_id=regression_id)
            stored = StoredBisection(url, begun)
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


def claim_next(plan: BisectPlan, fork_server: ForkServer, url: str | None) -> tuple[BisectPlan, Claim] | None:
    """Claim the oldest request that fits this machine; None if there is none.

    Raises:
        StoreError: no database is configured, or it is not reachable.
        CollectorError: the machine cannot be described.
    """
    if url is None:
        raise StoreError("--next needs a database with requests: set ROOFWATCH_DATABASE_URL")
    runner_class = describe_machine(plan.path, plan.run, fork_server).runner_class
    with open_store(url) as engine, Session(engine) as session:
        claim = claim_bisection(engine, plan.commit_range.project, runner_class, _claim_id(plan.output))
        known = None if claim is None else read_bisection(session, claim.bisection_id)
    if claim is None or known is None:
        return None
    return replace(plan, commit_range=known), claim


def range_of_regression(url: str | None, folder: Path, project: str, regression_id: UUID) -> BisectionRange:
    """Read what to bisect for a regression from the database at a URL, else from the embedded one of a folder.

    Raises:
        StoreError: no such regression, or nothing of it to bisect.
    """
    with open_store(url, folder=folder) as engine, Session(engine) as session:
        triaged = list_triaged(session, project)
        found = next((one.regression for one in triaged if one.regression_id == str(regression_id)), None)
        if found is None:
            raise StoreError(f"regression {regression_id}: not in project {project!r}")
        point = series_to_bisect(found)
        if point is None:
            raise StoreError(f"regression {regression_id}: no time changed in a step, so there is nothing to bisect")
        return range_of(project, point, read_series(session, project, keys=[point.series]))
