"""What somebody may see of the runs, and of what a question is about."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.api.access import Principal
from roofwatch.api.problems import ProblemError, not_found
from roofwatch.api.state import State
from roofwatch.db.projects import record_name
from roofwatch.db.queries.question import Concerned
from roofwatch.db.queries.resource_scope import projects_of_bisections, projects_of_runs
from roofwatch.db.regressions.judging import RunState, read_run_state


def seen_run(state: State, principal: Principal, run_id: UUID) -> RunState:
    """The run, if this one may see it. One of another project looks as if there were none.

    Raises:
        ProblemError: there is none that this one may see.
    """
    with state.reading() as session:
        found = read_run_state(session, run_id)
    if found is None or not principal.may_see(found.project):
        raise no_run(run_id)
    return found


def no_run(run_id: UUID) -> ProblemError:
    return not_found(f"run {run_id}", "GET /v1/runs lists those of a project")


def check_concerned(session: Session, principal: Principal, concerned: Concerned) -> None:
    """Whether this one may see all that a question is about.

    Raises:
        ProblemError: not all. A project that it may not see is said to be forbidden, as it was named; a run or
            a bisection of one looks as if there were none.
    """
    for project in concerned.projects:
        principal.check_project(record_name(project))
    if concerned.run_ids:
        projects = projects_of_runs(session, concerned.run_ids)
        for run_id in map(UUID, concerned.run_ids):
            if str(run_id) not in projects or not principal.may_see(projects[str(run_id)]):
                raise no_run(run_id)
    if concerned.bisected and not all(map(principal.may_see, projects_of_bisections(session, concerned.bisected))):
        raise not_found("this regression", "GET /v1/regressions lists those of a project")
