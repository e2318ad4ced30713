"""The bisections of a database: claim one, store its progress and its result."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID, uuid5

from sqlalchemy.orm import Session

from roofwatch.bisection.bisect import BisectPlan
from roofwatch.bisection.commits import describe_machine
from roofwatch.ci.bisect.pairs import range_of, series_to_bisect
from roofwatch.collector.redaction import Redaction
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.console.terminal import print_error
from roofwatch.db.bisections import (
    Claim,
    begin_bisection,
    claim_bisection,
    read_bisection,
    update_bisection,
)
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.leases import ClaimLostError
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.history import Regression
from roofwatch.model.triage import BisectionRange, BisectionResult

_NAMESPACE = UUID("7d1f2c58-6b0e-4d0a-9b57-3f6c1a9e2d44")


@dataclass(frozen=True)
class StoredBisection:
    """The right to write to one bisection of a database. If the database is away, measuring
    continues.
    """

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
    redact = Redaction.of_this_machine().text
    commits = [replace(commit, reason=redact(commit.reason)) for commit in result.progress.commits]
    steps = [replace(step, note=redact(step.note)) for step in result.progress.steps]
    progress = replace(result.progress, commits=tuple(commits), steps=tuple(steps))
    return replace(result, progress=progress, notes=tuple(map(redact, result.notes)))


def _claim_id(output: Path) -> UUID:
    """Return the ID with which this machine claims bisections in a folder, the same for a process
    that resumes one.
    """
    return uuid5(_NAMESPACE, f"{platform.node()}\n{output.resolve()}")


def begin(
    url: str,
    commit_range: BisectionRange,
    output: Path,
    regression_id: UUID | None,
) -> StoredBisection:
    """Store that this machine begins a bisection that somebody started on its command line.

    Raises:
        StoreError: the database is not reachable, or another runner works on it.
    """
    with open_store(url) as engine:
        claim = begin_bisection(
            engine,
            commit_range,
            _claim_id(output),
            requested_by="command line",
            regression_id=regression_id,
        )
    return StoredBisection(url, claim)


def claim_next(
    plan: BisectPlan,
    fork_server: ForkServer,
    url: str | None,
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
            engine=engine,
            project=plan.commit_range.project,
            runner_class=runner_class,
            claim_id=_claim_id(plan.output),
        )
        if claim is None:
            return None
        commit_range = read_bisection(session, claim.bisection_id)
    # deleted between the claim and this line
    if commit_range is None:
        return None
    return replace(plan, commit_range=commit_range), claim


def read_regression(
    url: str | None,
    folder: Path,
    project: str,
    regression_id: UUID,
) -> tuple[Regression, BisectionRange | None]:
    """Read a regression from the database at a URL, else from the embedded one of a folder.

    Returns:
        The regression, and what to bisect; None if no time changed in a step.

    Raises:
        StoreError: there is no such regression.
    """
    with open_store(url, folder=folder) as engine, Session(engine) as session:
        by_id = {triaged.regression_id: triaged for triaged in list_triaged(session, project)}
        stored = by_id.get(str(regression_id))
        if stored is None:
            raise StoreError(f"regression {regression_id}: not in project {project!r}")
        point = series_to_bisect(stored.regression)
        if point is None:
            return stored.regression, None
        series = read_series(session, project, keys=[point.series])
        return stored.regression, range_of(project, point, series)
