"""One bisection from what is asked for to its end: measured here, and written to the database where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.bisection.plan import BisectPlan, folder_of
from roofwatch.bisection.report import Ended, end_of, progress_of, step_line
from roofwatch.bisection.search import bisect
from roofwatch.bisection.state import BisectState
from roofwatch.bisection.stored import StoredBisection, read_stored
from roofwatch.ci.bisect.request import range_of, series_to_bisect
from roofwatch.collector.errors import JournalError
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.bisections import Claim, claim_bisection
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_regressions
from roofwatch.db.regressions.triage import read_triage
from roofwatch.db.values import BisectionRange
from roofwatch.measuring.suite_history import commit_refs, commits_between, sha_of
from roofwatch.measuring.this_machine import describe_machine
from roofwatch.terminal import console, progress


@dataclass(frozen=True)
class BisectJob:
    """A bisection, and where it is written down.

    Args:
        plan: What to bisect, and how.
        project: That it belongs to.
        fork_server: Forks the workers.
        url: Of the database; None for none.
        claim: On a bisection there that was asked for.
        regression_id: That it is to explain.
    """

    plan: BisectPlan
    project: str
    fork_server: ForkServer
    url: str | None = None
    claim: Claim | None = None
    regression_id: UUID | None = None

    def of_regression(self, regression_id: UUID, *, folder: Path) -> BisectJob:
        """The same for what explains a regression.

        Args:
            regression_id: As triage and alerts name it.
            folder: Of the embedded database, for when none is configured.

        Raises:
            StoreError: there is no such regression, or nothing of it to bisect.
        """
        asked = range_of_regression(self.url, folder, self.project, regression_id)
        return replace(self._with_range(asked), regression_id=regression_id)

    def of_next(self) -> BisectJob | None:
        """The same for the oldest that waits for a machine like this one, which is nobody else's from then on; None
        where none waits.

        Raises:
            StoreError: no database is configured, or it cannot be reached.
            CollectorError: the machine cannot be described.
        """
        if self.url is None:
            raise StoreError("--next needs a database that others ask in: set ROOFWATCH_DATABASE_URL")
        plan = self.plan
        environment = describe_machine(plan.path, plan.plan.device, plan.plan.thread_count, self.fork_server)
        with open_store(self.url) as engine:
            claim = claim_bisection(engine, self.project, environment.runner_class)
        if claim is None:
            return None
        detail = read_stored(self.url, claim.bisection_id)
        assert detail is not None, "it was claimed a moment ago"
        known = detail.bisection
        asked = BisectionRange(
            known.project, known.case_id, known.implementation, known.good_sha, known.bad_sha, known.runner_class
        )
        return replace(self._with_range(asked), claim=claim)

    def run(self) -> Ended:
        """Do it.

        Raises:
            CollectorError: it cannot be done; the message says why.
            StoreError: the database cannot be reached, or another runner is at it.
        """
        stored = None if self.url is None or self.claim is None else StoredBisection(self.url, self.claim)
        try:
            stored = self._stored()
            return self._run(stored)
        except Exception as error:
            # where another process is at it here, it has not failed
            if stored is not None and (self.claim is not None or not isinstance(error, JournalError)):
                stored.fail(str(error))
            raise
        except BaseException:
            # stopped: what was asked for in the database, another may go on with
            if stored is not None and self.claim is not None:
                stored.release()
            raise

    def _run(self, stored: StoredBisection | None) -> Ended:
        plan = self.plan
        good = sha_of(plan.path, plan.good)
        refs = commit_refs(plan.path, good, commits_between(plan.path, good, plan.bad))
        told = 0
        with progress("bisection") as on_progress:

            def watch(state: BisectState) -> None:
                nonlocal told
                if len(state.visits) > told:
                    told = len(state.visits)
                    console().print(step_line(state, refs), markup=False, soft_wrap=True)
                if stored is not None:
                    stored.note(progress_of(state, refs))

            ended = end_of(bisect(plan, self.fork_server, on_progress, watch), refs)
        if stored is not None:
            stored.finish(ended)
        return ended

    def _with_range(self, asked: BisectionRange) -> BisectJob:
        plan = replace(
            self.plan,
            case_id=asked.case_id,
            implementation=asked.implementation,
            good=asked.good_sha,
            bad=asked.bad_sha,
        )
        return replace(self, plan=plan)

    def _stored(self) -> StoredBisection | None:
        if self.url is None:
            return None
        folder = folder_of(self.plan)
        if self.claim is not None:
            return StoredBisection(self.url, self.claim).keep(folder)
        plan = self.plan
        asked = BisectionRange(
            project=self.project,
            case_id=plan.case_id,
            implementation=plan.implementation,
            good_sha=sha_of(plan.path, plan.good),
            bad_sha=sha_of(plan.path, plan.bad),
        )
        return StoredBisection.begin(
            self.url, asked, requested_by="command line", regression_id=self.regression_id, folder=folder
        )


def range_of_regression(url: str | None, folder: Path, project: str, regression_id: UUID) -> BisectionRange:
    """What to bisect to explain a regression of the store.

    Args:
        url: Of the database; None for the embedded one.
        folder: Of the embedded one.
        project: Of the regression.
        regression_id: As triage and alerts name it.

    Raises:
        StoreError: there is no such regression, or nothing of it to bisect.
    """
    with open_store(url, folder=folder) as engine, Session(engine) as session:
        keys = {key for key, triage in read_triage(session, project).items() if triage.regression_id == regression_id}
        found = next((each for each in list_regressions(session, project) if each.key in keys), None)
        if found is None:
            raise StoreError(f"regression {regression_id}: not in project {project!r}; judge it again, or name another")
        point = series_to_bisect(found)
        series = [] if point is None else read_series(session, project, keys=[point.series])
    asked = range_of(found, next(iter(series), None))
    if asked is None:
        raise StoreError(f"regression {regression_id}: no time of it moved in a step, so there is nothing to bisect")
    return asked
