"""What somebody may see of the runs."""

from __future__ import annotations

from uuid import UUID

from api.access import Principal
from api.problems import ProblemError, not_found
from api.state import State
from db.judged.judging import RunState, read_run_state


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
